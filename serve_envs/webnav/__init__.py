"""MiniWoB++'s web pages in a real browser."""
