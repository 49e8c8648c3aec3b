"""Results of one evaluation, as data."""
