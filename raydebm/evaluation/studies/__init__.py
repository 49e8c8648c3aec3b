"""Studies of scored pools: effects of the number of adapters, candidates and generators, of lambda and of thresholds.

Each study is a function of a ``PoolTable`` and returns rows of numbers with intervals over problems. Nothing is
generated or scored again, so all of them run on recorded pools.
"""
