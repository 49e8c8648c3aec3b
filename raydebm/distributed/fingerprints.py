"""What a stage's output depends on, as one id: settings, and the weights that lie on this machine."""

import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from raydebm import __version__
from raydebm.config import REPORTING, Recipe
from raydebm.embedded import embedded_path
from raydebm.identity import content_id

_SETTINGS: dict[str, tuple[str, ...]] = {"problems": ("task", "seed")}
_SETTINGS["candidates"] = (*_SETTINGS["problems"], "generators", "generation")
_SETTINGS["labels"] = _SETTINGS["candidates"]
_SETTINGS["pairs"] = (*_SETTINGS["labels"], "pairs")
_SETTINGS["scorer"] = (*_SETTINGS["pairs"], "scorer", "training")
_SETTINGS["energies"] = _SETTINGS["scorer"]
_SETTINGS["calibration"] = (*_SETTINGS["energies"], "triage", "calibration")
_SETTINGS["evaluation"] = (*_SETTINGS["calibration"], "baselines", "evaluation")
"""The recipe's sections that matter to a stage: by construction, all those upstream too."""

_PLACEMENT = frozenset(
    {
        "device", "max_in_flight", "num_in_flight", "num_processes", "timeout_s", "max_retries", "requests_per_minute",
        "micro_batch_tokens", "max_usd",
    }
)  # fmt: skip
"""Settings that say where and how fast, not what: they must not invalidate results."""


def stage_fingerprint(stage: str, recipe: Recipe) -> str:
    """The same id exactly when a stage would make the same thing again.

    Weights in local folders and of embedded models count by their content, so that a model trained anew is noticed;
    models of a hub count by their name.
    """
    sections = _SETTINGS[stage]
    tree = recipe.model_dump(mode="json", exclude={"training": REPORTING})
    settings = {name: _without_placement(tree[name]) for name in sections}
    return content_id(__version__, settings, [_weights_id(name) for name in _models(recipe, sections)])


def _models(recipe: Recipe, sections: Iterable[str]) -> list[str]:
    found = []
    if "generators" in sections:
        found += [config.model for config in recipe.generators if config.kind == "transformers"]
    if "scorer" in sections:
        found.append(recipe.scorer.backbone)
    return found


@cache
def _weights_id(model: str) -> str | None:
    folder = embedded_path(model.removeprefix("embedded:")) if model.startswith("embedded:") else Path(model)
    if not folder.is_dir():
        return None
    digest = hashlib.blake2b(digest_size=16)
    for file in sorted(folder.glob("*.safetensors")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _without_placement(section: Any) -> Any:
    """Of a section, or of each entry of a list, the settings of its own; what users nest below them counts as it is."""
    if isinstance(section, list):
        return [_without_placement(entry) for entry in section]
    if isinstance(section, dict):
        return {key: value for key, value in section.items() if key not in _PLACEMENT}
    return section
