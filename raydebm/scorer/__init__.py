"""The scorer: the frozen backbone, its adapters and heads, their training, and the ensemble that scores candidates.

In:   texts ``(problem, candidate)``; for training, groups of texts with the pairs among them.
Out:  energies, one per adapter; lower is better. Checkpoint folders that PEFT reads.
Independent of: Ray, tasks, gold, constraints.

This module imports nothing heavy; import from ``model``, ``training`` and ``ensemble``.
"""
