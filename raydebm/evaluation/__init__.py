"""Evaluation: the value of each way to select a candidate, the certainty of a selection, and reports.

In:   problems, candidates, labels, constraint reports, energies and outside scores of a run; loop outcomes.
Out:  an ``Evaluation`` of a run; a ``StudyResults`` of a pool with all studies; a ``Reproduction`` of several pools
      next to the paper's tables; Markdown, JSON and HTML made from them.
Independent of: Ray; torch, except in ``baselines`` and ``confounding``.

All functions take a ``PoolTable`` (``decision.table``): selectors -> entries -> results (one run) -> study (one pool)
-> reproduction (several pools). Tables, figures and reports only format these results.
"""
