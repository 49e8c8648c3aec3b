"""Ways of choosing one candidate of a pool."""
