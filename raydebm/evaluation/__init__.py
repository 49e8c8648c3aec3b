"""Evaluation: what each way of choosing a candidate is worth, how far a choice can be trusted, and reports of it.

In:   problems, candidates, labels, constraint reports, energies and other scorers' columns of a run; loop outcomes.
Out:  an ``Evaluation`` of a run; a ``StudyResults`` of a pool with all studies; a ``Reproduction`` of several pools
      next to the paper's tables; Markdown, JSON and HTML made from them.
Does not know: Ray, torch.

pools -> selectors, agreement -> entries -> results (one run) -> study (one pool) -> reproduction (several pools).
A stack holds all pools as arrays for the studies; tables, figures and reports only draw what is already data.
"""
