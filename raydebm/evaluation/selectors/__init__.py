"""Selectors: ways to choose one candidate of a pool."""
