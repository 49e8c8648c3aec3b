"""Evaluation: what each way of choosing a candidate is worth, with intervals, and a report of it.

In:   problems, candidates, labels, constraint reports and energies of a run; outcomes of the loop.
Out:  an ``Evaluation`` (numbers as data), and Markdown, JSON and HTML made from it.
Does not know: Ray, torch.
"""
