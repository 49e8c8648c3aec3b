"""Checkpoint folders: writing, reading and validation.

::

    <ensemble>/ensemble.json   adapters in order, backbone, fingerprints, metrics, versions; written last
               README.md       the model card
               a0/ ... a4/     one folder per adapter:
                   adapter_config.json, adapter_model.safetensors   PEFT's layout: PeftModel.from_pretrained reads it
                   head.safetensors                                 the energy head
                   training.json                                    settings, curves, fingerprints; written last

Checkpoints contain no pickle, and loading one runs no code.
"""

import json
import os
import platform
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from raydebm.errors import CheckpointError, in_one_line
from raydebm.run.ensemble_file import ENSEMBLE_FILE
from raydebm.scorer.card import model_card
from raydebm.scorer.checkpoint_records import SHARED_FIELDS, AdapterRecord, EnsembleRecord, ReadingRecord, Record

CARD_FILE = "README.md"
RECORD_FILE = "training.json"
PEFT_CONFIG_FILE = "adapter_config.json"
PEFT_WEIGHTS_FILE = "adapter_model.safetensors"
HEAD_FILE = "head.safetensors"

SCORER_FILES = (
    ENSEMBLE_FILE, *(f"*/{file}" for file in (PEFT_CONFIG_FILE, PEFT_WEIGHTS_FILE, HEAD_FILE, RECORD_FILE))
)  # fmt: skip
"""Files of a hub repository that scoring needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAdapter:
    """The contents of one adapter folder."""

    record: AdapterRecord
    peft_config: Mapping[str, Any]
    lora: Mapping[str, Tensor]
    head: Mapping[str, Tensor]


_OS_ERROR = re.compile(r"\(os error (\d+)\)")
"""The operating system's error number, which safetensors reports only in its message."""
RecordType = TypeVar("RecordType", bound=Record)


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that wrote the weights, by name."""
    names = ("torch", "transformers", "peft")
    return {"python": platform.python_version()} | {name: metadata.version(name) for name in names}


def write_adapter(
    folder: Path,
    *,
    record: AdapterRecord,
    config: Mapping[str, Any],
    lora: Mapping[str, Tensor],
    head: Mapping[str, Tensor],
) -> None:
    """Write one adapter folder. training.json is written last and marks the folder as complete.

    Args:
        config: PEFT's config.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / RECORD_FILE).unlink(missing_ok=True)
    plain = dict(config) | {"inference_mode": True}
    (folder / PEFT_CONFIG_FILE).write_text(json.dumps(plain, indent=2) + "\n", encoding="utf-8")
    save_tensors(folder / PEFT_WEIGHTS_FILE, lora)
    save_tensors(folder / HEAD_FILE, head)
    (folder / RECORD_FILE).write_text(record.model_dump_json(indent=2) + "\n", encoding="utf-8")


def read_adapter(folder: Path) -> StoredAdapter:
    """Read one adapter folder. Raises CheckpointError if a file is missing, corrupt or of another format."""
    record = read_record(folder / RECORD_FILE, AdapterRecord)
    try:
        peft_config = json.loads(_read_text(folder / PEFT_CONFIG_FILE))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{folder / PEFT_CONFIG_FILE} is not JSON: {error}") from error
    return StoredAdapter(
        record=record,
        peft_config=peft_config,
        lora=load_tensors(folder / PEFT_WEIGHTS_FILE),
        head=load_tensors(folder / HEAD_FILE),
    )


def write_ensemble(folder: Path, adapters: Mapping[str, Path], meta: Mapping[str, Any]) -> EnsembleRecord:
    """Write an ensemble folder from adapter folders. Adapters already in ``folder`` under their name are kept.

    Args:
        folder: folder of the ensemble, existing or new.
        adapters: adapter folders by name, in the order of the energies.
        meta: JSON values for ensemble.json and the model card, such as the run's name and its recipe.

    Raises:
        CheckpointError: an adapter is corrupt, or two adapters differ in a shared field, such as the backbone.
    """
    if not adapters:
        raise CheckpointError(f"{folder}: an ensemble needs at least one adapter")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ENSEMBLE_FILE).unlink(missing_ok=True)
    for name, source in adapters.items():
        if source.resolve() != (folder / name).resolve():
            shutil.rmtree(folder / name, ignore_errors=True)
            shutil.copytree(source, folder / name)
    stored = {name: read_adapter(folder / name) for name in adapters}
    records = {name: adapter.record for name, adapter in stored.items()}
    (name, first), *others = records.items()
    for other in others:
        _check_equal((name, first), other)
    record = EnsembleRecord(
        adapters=tuple(records),
        backbone=first.backbone,
        metrics={name: own.best for name, own in records.items()},
        meta=dict(meta),
        versions=versions(),
        **{field: getattr(first, field) for field in SHARED_FIELDS},
    )
    card = model_card(record, list(records.values()))
    (folder / CARD_FILE).write_text(card, encoding="utf-8")
    (folder / ENSEMBLE_FILE).write_text(record.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return record


_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+(@[\w./-]+)?")


def checkpoint_folder(name: str | Path) -> Path:
    """Local folder of a checkpoint: the folder itself, or a copy of the hub's ``user/repo`` or ``user/repo@revision``.

    Raises:
        CheckpointError: no folder has this name, and the hub has no such repository or cannot be reached.
    """
    folder = Path(name)
    if folder.exists() or not _HUB_NAME.fullmatch(str(name)):
        return folder
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError

    repository, _, revision = str(name).partition("@")
    try:
        local_copy = snapshot_download(repository, revision=revision or None, allow_patterns=list(SCORER_FILES))
    except (HfHubHTTPError, OSError, ValueError) as error:
        raise CheckpointError(
            f"{str(name)!r} is not a folder here, and the hub gave no repository of that name: "
            f"{in_one_line(str(error))}; correct the path, or log in if the repository is private"
        ) from error
    return Path(local_copy)


def read_ensemble(folder: Path) -> tuple[EnsembleRecord, list[StoredAdapter]]:
    """Read and check an ensemble.

    Args:
        folder: folder, or the name of a repository on the hub (see ``checkpoint_folder``).

    Raises:
        CheckpointError: a part is missing, corrupt, or does not belong to the others.
    """
    folder = checkpoint_folder(folder)
    if not (folder / ENSEMBLE_FILE).is_file():
        raise CheckpointError(f"{folder} is not a scorer checkpoint: {ENSEMBLE_FILE} is missing; train one")
    record = read_record(folder / ENSEMBLE_FILE, EnsembleRecord)
    stored = {name: read_adapter(folder / name) for name in record.adapters}
    for name, adapter in stored.items():
        _check_equal((ENSEMBLE_FILE, record), (name, adapter.record))
    return record, list(stored.values())


def _check_equal(one: tuple[str, ReadingRecord], other: tuple[str, ReadingRecord]) -> None:
    for field in SHARED_FIELDS:
        values = [getattr(record, field) for _, record in (one, other)]
        if values[0] != values[1]:
            raise CheckpointError(
                f"checkpoint mixes parts that do not belong together: {field} is {values[0]!r} in {one[0]} and "
                f"{values[1]!r} in {other[0]}; train them in one run"
            )


def read_record(file: Path, kind: type[RecordType]) -> RecordType:
    """Read a record. Raises CheckpointError if the file is missing or invalid."""
    try:
        return kind.model_validate_json(_read_text(file))
    except ValidationError as error:
        raise CheckpointError(f"{file} is not a valid {kind.__name__}: {error}") from error


def save_tensors(file: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors from any device as safetensors, readable by ``load_tensors``.

    Raises:
        OSError: the file cannot be written.
    """
    try:
        save_file({key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}, file)
    except SafetensorError as error:
        number = _OS_ERROR.search(str(error))
        if number is None:
            raise
        code = int(number[1])
        raise OSError(code, os.strerror(code), str(file)) from error


def load_tensors(file: Path) -> dict[str, Tensor]:
    """Read tensors. Raises CheckpointError if the file is missing or corrupt."""
    try:
        return dict(load_file(file))
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{file} cannot be read: {error}; copy or train this part again") from error


def _read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{file} cannot be read: {error}; copy or train this part again") from error
