"""``/v1/decisions``: stored decisions over HTTP."""
