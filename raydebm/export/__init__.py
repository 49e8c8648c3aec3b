"""Exports: a run's scorer as a folder for the Hugging Face hub, and its pairs as a data set for other trainers.

In:   a run directory (local or a filesystem URL).
Out:  a folder: the scorer with its model card (``scorer_folder``), or preference data (``pairs_folder``); optionally
      pushed to the hub (``hub``).
Does not know: Ray. Nothing in an export comes from gold but the order of the two sides of a pair.
"""
