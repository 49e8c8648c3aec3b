"""Fitting of policies on labelled pools: thresholds, posterior, profile and guarantee."""
