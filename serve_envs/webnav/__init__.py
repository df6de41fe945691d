"""Web pages in a real browser, as text: what webarena_local is built on."""
