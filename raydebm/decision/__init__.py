"""Triage: what to do with the best candidate of a problem: give it out, ask again with feedback, or abstain.

In:   candidates with their constraint reports and energies.
Out:  an Outcome: the decision, the energy minimiser, and what happened in each pass.
Does not know: Ray, torch, HTTP, gold answers (calibration gets labels as values).

``policy`` decides, ``checks`` checks, ``feedback`` words what the next pass is told, ``drawing`` is one pass against
protocols, ``loop`` all of them, ``deadline`` their time, ``replay`` feeds them from recorded candidates, ``redecide``
decides again about a record, ``calibration`` chooses the thresholds.
"""
