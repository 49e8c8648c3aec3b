"""Studies of scored pools: effects of the number of adapters and of candidates, generators, terms, other scorers.

Each study is a function of a ``PoolTable`` and returns rows of numbers with intervals over problems. Nothing is
generated or scored again, so all of them run on recorded pools.
"""
