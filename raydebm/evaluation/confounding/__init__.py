"""Confounding: experiments that test whether a scorer recognises its generators, and the repair.

In:   evaluated pools, a scorer, the features of its heads, rewriters; for the repair also labelled texts.
Out:  ``ConfoundingReport`` (numbers as data, tables, a page), a repaired checkpoint.
Independent of: Ray, gold. Labels are part of the pools; a checker of rewritten texts is an argument.

Results that need only energies (picks, spreads, ranking within a generator) are in ``screen``.
"""
