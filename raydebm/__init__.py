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
    choose       the decision alone, in this process: ``best_of``

Importing this package loads neither Ray nor torch; public names are imported when they are used.
"""

import importlib
from typing import Any

__version__ = "0.2.0"

_MODULE_OF = {"best_of": "raydebm.choose", "Choice": "raydebm.choose", "Chooser": "raydebm.choose"}
"""Public names, by the module that has them."""


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'raydebm' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULE_OF])
