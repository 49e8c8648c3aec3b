"""``ensemble.json``: the file that identifies a trained ensemble. Readable without torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from raydebm.errors import CheckpointError
from raydebm.identity import content_id
from raydebm.records import Reasoning
from raydebm.run.folder import Folder

ENSEMBLE_FILE = "ensemble.json"


@dataclass(frozen=True, slots=True)
class CheckpointRef:
    """Address and identity of one trained ensemble."""

    folder: str
    """A path readable by every scorer replica's node, or a filesystem URL."""
    fingerprint: str
    """``versions["checkpoint"]``: the content id of its ensemble.json."""


def holds_ensemble(address: str) -> bool:
    """Whether a folder or filesystem URL contains a trained ensemble."""
    return Folder(address).exists(ENSEMBLE_FILE)


def read_ensemble_file(address: str) -> dict[str, Any]:
    """The parsed ``ensemble.json``: data, backbone and adapters.

    Raises:
        CheckpointError: there is no ensemble, or its file is not a JSON object.
    """
    where = f"{address}/{ENSEMBLE_FILE}"
    try:
        ensemble = Folder(address).read_json(ENSEMBLE_FILE)
    except FileNotFoundError as error:
        raise CheckpointError(
            f"{address} does not contain a trained ensemble (no {ENSEMBLE_FILE}); run `raydebm run`"
        ) from error
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{where} cannot be read: {error}; train again") from error
    if not isinstance(ensemble, dict):
        raise CheckpointError(f"{where} must be an object, got {type(ensemble).__name__}; train again")
    return ensemble


def reasoning_of(ensemble: Mapping[str, Any]) -> Reasoning:
    """The part of a reasoning candidate that the ensemble scores.

    Args:
        ensemble: the parsed ``ensemble.json``.
    """
    return "all" if ensemble.get("reasoning") == "all" else "answer"


def fingerprint_of(ensemble: object) -> str:
    """The id of a checkpoint: the content id of its parsed ``ensemble.json``."""
    return content_id(ensemble, length=12)


def read_ref(address: str) -> CheckpointRef:
    """Reference to the current ensemble at an address.

    Raises:
        CheckpointError: there is no ensemble, or its ensemble.json is not JSON.
    """
    return CheckpointRef(address, fingerprint_of(read_ensemble_file(address)))
