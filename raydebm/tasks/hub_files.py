"""Files of a data set on the hub: the files of each split, and their local paths.

The repository's data files are read directly, and its scripts are never run: a data set without data files is read from
the hub's own copy in Parquet (revision ``refs/convert/parquet``). Downloads use ``huggingface_hub``: they follow
HF_ENDPOINT, HF_TOKEN, HF_HOME and HF_HUB_OFFLINE, resume after interruptions, and are cached.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

CONVERTED = "refs/convert/parquet"
"""Revision with the hub's own copy in Parquet: ``<configuration>/<split>/<number>.parquet``."""

SUFFIXES = (".parquet", ".jsonl", ".json", ".csv", ".jsonl.gz", ".json.gz", ".csv.gz")
_CARD = "README.md"
_USUAL_SPLITS = ("train", "validation", "test", "dev")

Splits = dict[str, list[str]]
"""Files by split, in order."""

_NO_ROWS = ("dataset_infos.json", "dataset_info.json")
"""Files that describe a data set and do not contain rows."""


def hub_splits(dataset: str, configuration: str | None = None) -> tuple[Splits, str | None]:
    """Find the splits of a data set (empty if it has no rows for the configuration), and their revision (None for the
    newest).

    Errors of the hub's client are raised unchanged if the data set does not exist or cannot be accessed.
    """
    names = _repository_files(dataset)
    card = _card(download(dataset, [_CARD])[0]) if _CARD in names else {}
    splits = splits_of(names, card, configuration)
    if splits:
        return splits, None
    splits = converted_splits(_repository_files(dataset, CONVERTED), configuration)
    return splits, CONVERTED


def splits_of(names: Iterable[str], card: Mapping[str, Any], configuration: str | None) -> Splits:
    """Assign a repository's files to the splits of a configuration, by default of the default one.

    The splits come from the data set's card (``configs``), else from folders or words in the names of the files. If no
    name contains a split, all files are ``train``, as in `datasets`.
    """
    data = sorted(name for name in names if name.endswith(SUFFIXES) and PurePosixPath(name).name not in _NO_ROWS)
    configs = [config for config in card.get("configs") or () if config.get("data_files")]
    if configs:
        chosen = _chosen(configs, configuration)
        return {} if chosen is None else _declared(data, chosen)
    if configuration is not None:
        within = [name for name in data if configuration in PurePosixPath(name).parts[:-1]]
        data = within or [name for name in data if _has_word(name, configuration)]
    splits: Splits = {}
    for name in data:
        split = next((word for word in _USUAL_SPLITS if _has_word(name, word)), None)
        if split is not None:
            splits.setdefault(split, []).append(name)
    return splits or ({"train": data} if data else {})


def converted_splits(names: Iterable[str], configuration: str | None) -> Splits:
    """Assign files of the hub's Parquet copy to splits."""
    splits: Splits = {}
    parts = [PurePosixPath(name).parts for name in sorted(names) if name.endswith(".parquet")]
    configurations = list(dict.fromkeys(part[0] for part in parts if len(part) == 3))
    wanted = configuration or (configurations[0] if len(configurations) == 1 else "default")
    for part in parts:
        if len(part) == 3 and part[0] == wanted:
            splits.setdefault(part[1].removeprefix("partial-"), []).append("/".join(part))
    return splits


def _chosen(configs: Sequence[Mapping[str, Any]], wanted: str | None) -> Mapping[str, Any] | None:
    if wanted is not None:
        return next((config for config in configs if config.get("config_name") == wanted), None)
    default = (config for config in configs if config.get("default") or config.get("config_name") == "default")
    return next(default, configs[0] if len(configs) == 1 else None)


def _declared(data: Sequence[str], config: Mapping[str, Any]) -> Splits:
    """Files that match a configuration's patterns in the card: patterns by split, or patterns of ``train`` alone."""
    declared = config["data_files"]
    entries = declared if isinstance(declared, list) else [declared]
    splits: Splits = {}
    for entry in entries:
        split, paths = (entry["split"], entry["path"]) if isinstance(entry, Mapping) else ("train", entry)
        patterns = [PurePosixPath(path).as_posix() for path in ([paths] if isinstance(paths, str) else paths)]
        files = [name for name in data if any(fnmatch(name, pattern) for pattern in patterns)]
        if files:
            splits.setdefault(str(split), []).extend(files)
    return splits


def _has_word(name: str, word: str) -> bool:
    return re.search(rf"(?:^|[/_.\-]){re.escape(word)}(?:[/_.\-]|$)", name) is not None


def _card(file: Path) -> Mapping[str, Any]:
    """The YAML block at the beginning of a README.md; empty without one."""
    match = re.match(r"---\s*\n(.*?)\n---", file.read_text(encoding="utf-8"), re.DOTALL)
    try:
        card = yaml.safe_load(match[1]) if match else None
    except yaml.YAMLError:
        return {}
    return card if isinstance(card, Mapping) else {}


def _repository_files(dataset: str, revision: str | None = None) -> list[str]:
    """Names of the repository's files; in offline mode, those of earlier downloads."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import OfflineModeIsEnabled

    try:
        return list(HfApi(endpoint=_endpoint()).list_repo_files(dataset, repo_type="dataset", revision=revision))
    except OfflineModeIsEnabled:
        return _cached_files(dataset, revision or "main")


def _cached_files(dataset: str, revision: str) -> list[str]:
    from huggingface_hub import constants, scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        cache = scan_cache_dir(constants.HF_HUB_CACHE)  # where ``snapshot_download`` puts its files
    except CacheNotFound:
        return []
    return [
        file.file_path.relative_to(snapshot.snapshot_path).as_posix()
        for repository in cache.repos
        if (repository.repo_id, repository.repo_type) == (dataset, "dataset")
        for snapshot in repository.revisions
        if revision in snapshot.refs
        for file in snapshot.files
    ]


def download(dataset: str, files: list[str], revision: str | None = None) -> list[Path]:
    """Local paths of a data set's files, downloaded if necessary. Raises the errors of ``hub_splits``."""
    from huggingface_hub import snapshot_download

    folder = snapshot_download(
        dataset, repo_type="dataset", revision=revision, allow_patterns=files, endpoint=_endpoint(), max_workers=4
    )
    return [Path(folder) / name for name in files]


def _endpoint() -> str | None:
    """Address of the hub. The client itself reads the variable only at import."""
    return os.environ.get("HF_ENDPOINT")
