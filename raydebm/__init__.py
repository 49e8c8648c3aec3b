"""raydebm: choose among LLM answers, and know when none can be trusted.

The public names below are imported on first use: importing this package loads neither Ray nor torch.

    best_of         decide about given answers, in this process
    load_recipe     read and check a recipe
    Pipeline        make the stages of a run
    EnsembleScorer  energies of texts from a trained ensemble
    get_task        a task by name; Task and Constraint are the parts of a new one

``docs/architecture.md`` describes the other modules.
"""

import importlib
from typing import Any

__version__ = "1.0.0"
__all__ = [
    "Candidate",
    "Choice",
    "Chooser",
    "Constraint",
    "Energies",
    "EnsembleScorer",
    "Gold",
    "Label",
    "Pipeline",
    "Policy",
    "Problem",
    "RaydebmError",
    "Recipe",
    "Task",
    "best_of",
    "get_task",
    "load_recipe",
]

_NAMES_OF = {
    "raydebm.choose": ("Choice", "Chooser", "best_of"),
    "raydebm.config": ("Recipe", "load_recipe"),
    "raydebm.tasks.constraints": ("Constraint",),
    "raydebm.decision.policy": ("Policy",),
    "raydebm.errors": ("RaydebmError",),
    "raydebm.pipeline.runner": ("Pipeline",),
    "raydebm.records": ("Candidate", "Energies", "Gold", "Label", "Problem"),
    "raydebm.scorer.ensemble": ("EnsembleScorer",),
    "raydebm.tasks": ("get_task",),
    "raydebm.tasks.base": ("Task",),
}
"""Public names by module, as declared for type checkers in ``__init__.pyi``."""
_MODULE_OF = {name: module for module, names in _NAMES_OF.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'raydebm' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
