"""Statistics independent of pools: intervals, paired tests, effects of generators, logistic regression."""
