"""Policies fitted on labelled pools: thresholds by grid, posterior, profile, guarantee."""
