"""Confounding: experiments that find out whether a scorer recognises its generators, and the repair if it does.

In:   evaluated pools, a scorer, the features that its heads see, rewriters; for the repair also labelled texts.
Out:  ``ConfoundingReport`` (numbers as data, tables, a page), a repaired checkpoint.
Does not know: Ray, gold. Labels come in with the pools; a checker of rewritten texts is handed in.

What follows from the energies alone (picks, spreads, ranking within a generator) is ``raydebm.confounding.screen``.
"""
