"""Studies of scored pools: what the number of adapters, of candidates and of generators, lambda and thresholds change.

Each study is a function of a ``Stack`` (all pools as arrays) and gives rows of numbers with intervals over problems.
Nothing is generated or scored again, so everything runs on recorded pools.
"""
