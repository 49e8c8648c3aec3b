"""Stored decisions with their outcomes, as labelled problems: for calibration and for training.

In:   the records folder of a service.
Out:  labels of every candidate that an outcome says something about (``labelled``); a run directory whose problems,
      candidates and labels are complete, so that `raydebm run` goes on from there (``run_folder``).
"""

from raydebm.decision_import.labelled import LabelledDecision, labelled_decisions

__all__ = ["LabelledDecision", "labelled_decisions"]
