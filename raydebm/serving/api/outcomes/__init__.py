"""Reports about stored decisions over HTTP, and live accuracy."""
