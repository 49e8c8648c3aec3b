"""Outcome reports on stored decisions, and tests of a policy's guarantee against them."""
