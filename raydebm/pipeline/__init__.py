"""The pipeline: brings a run to a stage, and studies finished runs together.

In:   a recipe.
Out:  a run directory (``run``): every stage's tables, and its manifest last.
Does not know: Ray. What runs on a cluster is called by name from ``distributed``, which is imported when it is needed.
"""
