"""Training of one adapter with its head."""
