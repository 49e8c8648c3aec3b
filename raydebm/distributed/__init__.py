"""Ray Data and Ray Train around the pure stages: rows go in, a function from below is called, rows come out.

In:   records of the stage before, a recipe, a run directory.
Out:  the stage's tables or checkpoint under the run directory, and a summary.
Does not know: mathematics, labels, thresholds. Importing this package does not import Ray; its modules do.
"""
