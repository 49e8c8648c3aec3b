"""Scored, labelled candidates: one problem's pool, and all pools as arrays."""
