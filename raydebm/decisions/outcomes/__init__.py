"""What users report about stored decisions, and whether it contradicts what was promised about a policy."""
