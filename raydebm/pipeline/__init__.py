"""The stages of a run, and studies of finished runs.

In:   a recipe.
Out:  a run directory (``run``): every stage's tables, and its manifest last.
Independent of: Ray. Cluster work is called by name from ``pipeline/ray``, which is imported on use.
"""
