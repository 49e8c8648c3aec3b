"""raydebm: choose among LLM answers, and know when none can be trusted.

The flow, in the order in which data meets the rooms:

    tasks        a problem (never its gold)
    generators   several LLMs write candidates
    labels       deterministic checkers compare candidates with gold
    pairs        correct/incorrect candidates of one problem, bags and splits
    scorer       five LoRA adapters on one frozen backbone give five energies per candidate
    triage       mu + lambda * E_constraint ranks, sigma decides: accept, regenerate, abstain
    evaluation   selectors, metrics and intervals over scored pools
    distributed  the same on Ray Data and Ray Train
    serving      the same as a Ray Serve application

Importing this package loads neither Ray nor torch.
"""

__version__ = "0.2.0"
