"""Web pages in a real browser, as text: MiniWoB++'s, and what webarena_local is built on."""
