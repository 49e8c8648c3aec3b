"""``/v1/triage``: the full record of a decision, its progress events, and batches."""
