"""Statistics that know nothing of pools: intervals, paired tests, effects of generators, logistic regression."""
