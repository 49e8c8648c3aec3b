"""Ray Data and Ray Train around the pure stages: rows in, a call of a pure function, rows out.

In:   records of the previous stage, a recipe, a run directory.
Out:  the stage's tables or checkpoint under the run directory, and a summary.
Independent of: mathematics, labels, thresholds. Importing this package does not import Ray; its modules do.
"""
