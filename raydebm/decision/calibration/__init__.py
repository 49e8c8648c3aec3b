"""Fitting a policy on labelled pools: thresholds by grid, posterior, profile, and promises."""
