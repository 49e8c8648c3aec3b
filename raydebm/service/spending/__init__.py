"""Limits on cost: ceilings, the daily ledger, and the affordable part of a pass."""
