"""``ensemble.json``: the file that makes a folder a trained ensemble, and says which one it is. Needs no torch."""

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
    """One trained ensemble: where it lies, and which one it is."""

    folder: str
    """A path that every scorer replica's node can read, or a filesystem URL."""
    fingerprint: str
    """``versions["checkpoint"]``: the content id of its ensemble.json."""


def holds_ensemble(address: str) -> bool:
    """Whether a folder, or what a filesystem URL names, is a trained ensemble."""
    return Folder(address).exists(ENSEMBLE_FILE)


def read_ensemble_file(address: str) -> dict[str, Any]:
    """What ``ensemble.json`` says of the data, the backbone and every adapter.

    Raises:
        CheckpointError: there is no ensemble, or its file is not a JSON object.
    """
    where = f"{address}/{ENSEMBLE_FILE}"
    try:
        ensemble = Folder(address).read_json(ENSEMBLE_FILE)
    except FileNotFoundError as error:
        raise CheckpointError(
            f"{address} holds no trained ensemble (no {ENSEMBLE_FILE}); run `raydebm train`"
        ) from error
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{where} cannot be read: {error}; train again") from error
    if not isinstance(ensemble, dict):
        raise CheckpointError(f"{where} must be an object, got {type(ensemble).__name__}; train again")
    return ensemble


def backbone_names(ensemble: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the members' backbones, each once, in the order of the members; () where the file names none.

    Args:
        ensemble: what ``read_ensemble_file`` gave. Format 1 named one backbone, for all members.
    """
    members = ensemble["members"] if isinstance(ensemble.get("members"), list) else [ensemble]
    named = [member["backbone"] for member in members if isinstance(member, dict) and "backbone" in member]
    return tuple(dict.fromkeys(map(str, named)))


def reasoning_of(ensemble: Mapping[str, Any]) -> Reasoning:
    """What an ensemble reads of a candidate that thinks before it answers.

    Args:
        ensemble: what ``read_ensemble_file`` gave.
    """
    return "all" if ensemble.get("reasoning") == "all" else "answer"


def fingerprint_of(ensemble: object) -> str:
    """The id of a checkpoint: that of its parsed ``ensemble.json``."""
    return content_id(ensemble, length=12)


def read_ref(address: str) -> CheckpointRef:
    """What lies in a checkpoint folder or behind a filesystem URL now.

    Raises:
        CheckpointError: there is no ensemble, or its ensemble.json is not JSON.
    """
    return CheckpointRef(address, fingerprint_of(read_ensemble_file(address)))
