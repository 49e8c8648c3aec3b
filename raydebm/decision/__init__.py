"""Triage: return the best candidate of a problem, ask again with feedback, or abstain.

In:   candidates with their constraint reports and energies.
Out:  an Outcome: the decision, the energy minimiser, and the record of each pass.
Independent of: Ray, torch, HTTP, gold answers (calibration gets labels as values).

``policy`` and ``rules`` decide from ``evidence``. ``loop`` samples passes (``sampling``) until it accepts or abstains,
and ``stopping`` ends a pass early. ``replay`` feeds the loop from recorded candidates, ``redecide`` repeats a recorded
decision under other settings. ``calibration`` fits a policy and ``guarantee`` certifies its error rate.
"""
