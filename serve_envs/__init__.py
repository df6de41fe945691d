"""Environments, and the Ray Serve applications that host them."""
