"""Triage: what to do with the best candidate of a problem: give it out, ask again with feedback, or abstain.

In:   candidates with their constraint reports and energies.
Out:  an Outcome: the decision, the energy minimiser, and what happened in each pass.
Does not know: Ray, torch, HTTP, gold answers (calibration gets labels as values).

``policy`` and ``rules`` decide from ``evidence``; ``loop`` samples passes (``sampling``) until a decision stands, and
``stopping`` ends a pass early; ``replay`` feeds the loop from recorded candidates, ``redecide`` decides again about a
record; ``calibration`` fits a policy, ``guarantee`` says what may be promised about it.
"""
