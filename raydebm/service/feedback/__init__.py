"""Stored decisions with their outcomes, as labelled problems for calibration and training.

In:   the records folder of a service.
Out:  labels of candidates that follow from outcomes (``labelled``); a run directory with complete problems, candidates
      and labels, from which `raydebm run` continues (``run_folder``).
"""

from raydebm.service.feedback.labelled import LabelledDecision, labelled_decisions

__all__ = ["LabelledDecision", "labelled_decisions"]
