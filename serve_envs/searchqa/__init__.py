"""Questions that take several look-ups in real reference texts."""
