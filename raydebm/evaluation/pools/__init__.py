"""Scored, labelled candidates of a problem: as a pool, and all pools as arrays."""
