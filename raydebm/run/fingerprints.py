"""Dependencies of a stage's output: settings, files named in the recipe, and the output of the stages before it."""

import hashlib
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

from raydebm import __version__
from raydebm.config import BaselineConfig, ModelBaseline, Recipe
from raydebm.embedded import local_path
from raydebm.extensions import extension_files
from raydebm.identity import content_id
from raydebm.run.directory import RunDir
from raydebm.run.stages import StageName, stage_named

_PLACEMENT = frozenset(
    {
        "max_in_flight", "num_in_flight", "num_processes", "timeout_s", "max_retries", "requests_per_minute",
        "micro_batch_tokens", "max_usd", "url", "replica_urls", "python",
    }
)  # fmt: skip
"""Settings of placement and speed, which must not invalidate results."""
CONTENTS_IN_MEMORY = 256
"""Number of files and folders with a cached hash."""
FILES = "files"
"""Fact of the problems stage: the files that the task reads (names or patterns), by source."""
_PAGES = frozenset({"README", "LICENSE", "LICENCE", "COPYING", "NOTICE"})
"""Stems of documentation files."""


def stage_fingerprint(stage: StageName, recipe: Recipe, run: RunDir) -> str:
    """Hash of the package version and the settings that affect a stage of a run."""
    tree = recipe.model_dump(mode="json")
    settings = {name: _without_placement(tree[name]) for name in stage_named(stage).settings}
    has_evidence = bool(recipe.evidence) and ("decision" in settings or stage == "scores")
    if ("scorer" in settings and stage != "scorer") or (has_evidence and stage == "scores"):
        settings["scored_out_of_bag"] = run.learns_out_of_bag(recipe)
    if has_evidence:
        settings["evidence"] = [_without_placement(baseline.model_dump(mode="json")) for baseline in recipe.evidence]
    if stage == "pairs":  # equal texts count once, and the mode decides which texts are equal
        settings["reasoning"] = recipe.scorer.reasoning
    return content_id(__version__, settings)


def _stage_contents(
    stage: StageName, recipe: Recipe, run: RunDir, facts: Mapping[str, Any] | None = None
) -> dict[str, str]:
    """Content ids of the local files and folders that matter to a stage, by their names in the recipe.

    These are sources of problems, recorded pools, local or embedded models, and, from calibration on, a user's modules
    with terms and selectors (``raydebm.extensions``). Hub names and URLs count by name alone, and the code of a task
    does not count, so that an update of either does not repeat paid requests. Of a folder only data counts, not
    documentation (``*.md``, README, LICENSE, NOTICE), hidden files, bytecode, or files of a problem source that the
    task does not read.

    Args:
        facts: facts of the problems stage. Default: from its manifest.
    """
    sections = stage_named(stage).settings
    if facts is None:
        facts = run.facts("problems")
    content_ids = _contents(_dependencies(recipe, stage), facts.get(FILES, {}))
    if "decision" in sections:
        files = extension_files()
        contents = _contents(str(file) for file in files.values())
        content_ids |= {
            f"extension {name}": contents[str(file)] for name, file in files.items() if str(file) in contents
        }
    return content_ids


def baseline_state(baseline: BaselineConfig) -> dict[str, Any]:
    """Dependencies of a baseline's scores other than the candidates: its settings and the local files in them."""
    return {
        "config": _without_placement(baseline.model_dump(mode="json")),
        "contents": _contents(_names_of_baseline(baseline)),
    }


def is_unchanged(made: Mapping[str, Any], contents: Mapping[str, str]) -> bool:
    """Whether a stage was made from these contents. Files missing on this machine count as unchanged."""
    return not _changed(made, contents)


def _changed(made: Mapping[str, Any], contents: Mapping[str, str]) -> list[str]:
    """Names of the contents that differ from the stage's."""
    made_from: Mapping[str, str] = made.get("contents", {})
    return [name for name, content in contents.items() if made_from.get(name) != content]


def _contents(names: Iterable[str], files: Mapping[str, Sequence[str]] | None = None) -> dict[str, str]:
    """Content ids by name. Names that are not local are omitted. ``files``: patterns of relevant files, by folder."""
    by_name = {name: _content(name, (files or {}).get(name, ("**/*",))) for name in sorted(set(names))}
    return {name: content for name, content in by_name.items() if content is not None}


def new_manifest(stage: StageName, recipe: Recipe, run: RunDir, *, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest of a stage that was just completed."""
    return {
        "fingerprint": stage_fingerprint(stage, recipe, run),
        "contents": _stage_contents(stage, recipe, run, facts if stage == "problems" else None),
        "inputs": {before.name: build_id(before.name, run) for before in stage_named(stage).inputs},
        "making": uuid.uuid4().hex,
        "version": __version__,
        "facts": dict(facts),
    }


def current_manifest(stage: StageName, recipe: Recipe, run: RunDir) -> dict[str, Any] | None:
    """The stage's manifest if the stage is current for this recipe, else None.

    A current stage has the same settings and file contents, and was made from the stages before it as they are now.
    """
    return run.manifest(stage) if why_not_current(stage, recipe, run) is None else None


NOT_COMPLETE = "not complete"


def why_not_current(stage: StageName, recipe: Recipe, run: RunDir) -> str | None:
    """Reason why a stage is not current for this recipe, in a few words; None if it is current."""
    manifest = run.manifest(stage)
    if manifest is None:
        return NOT_COMPLETE
    if manifest.get("fingerprint") != stage_fingerprint(stage, recipe, run):
        if manifest.get("version") != __version__:
            return f"made by raydebm {manifest.get('version')}, and this is {__version__}"
        return f"made with other settings ({run.uri('recipe.json')} has those of the last run)"
    changed = _changed(manifest, _stage_contents(stage, recipe, run))
    if changed:
        return f"content of {', '.join(map(repr, changed))} changed"
    made_from = manifest.get("inputs", {})
    for before in stage_named(stage).inputs:
        build = build_id(before.name, run)
        if build is not None and made_from.get(before.name) != build:
            return f"{before.name} made again"
    return None


def build_id(stage: StageName, run: RunDir) -> str | None:
    """An id that changes each time the stage is made; None if the stage is incomplete."""
    return (run.manifest(stage) or {}).get("making")


def basis(stage: StageName, recipe: Recipe, run: RunDir) -> str:
    """An id of the current state of the stage, for results that depend on it but are not a stage."""
    return content_id(stage_fingerprint(stage, recipe, run), build_id(stage, run))


def _dependencies(recipe: Recipe, stage: StageName) -> Iterator[str]:
    sections = stage_named(stage).settings
    if "task" in sections:
        yield from (source.source for source in (recipe.task.train, recipe.task.test) if source.source is not None)
    if "generators" in sections:
        yield from (generator.pool for generator in recipe.generators if generator.kind == "recorded")
        yield from (generator.model for generator in recipe.generators if generator.kind == "transformers")
    if "scorer" in sections:
        yield recipe.scorer.backbone
    if "decision" in sections or stage == "scores":
        yield from chain.from_iterable(map(_names_of_baseline, recipe.evidence))
    if "baselines" in sections:
        yield from chain.from_iterable(map(_names_of_baseline, recipe.baselines))


def _names_of_baseline(baseline: BaselineConfig) -> list[str]:
    return [baseline.model] if isinstance(baseline, ModelBaseline) else []


def _content(name: str, patterns: Sequence[str]) -> str | None:
    """Content id of a local file or folder; None if it does not exist."""
    path = local_path(name)
    try:
        found = {file for pattern in patterns for file in path.glob(pattern) if _is_data(file, path)}
        files = [path] if path.is_file() else sorted(found)
        versions = tuple((file, file.stat().st_size, file.stat().st_mtime_ns) for file in files)
    except OSError:  # a name that no path can have, such as one too long
        return None
    return _digest(path, versions) if versions else None


@lru_cache(maxsize=CONTENTS_IN_MEMORY)
def _digest(path: Path, versions: tuple[tuple[Path, int, int], ...]) -> str:
    """Hash of names and contents of the files of a path.

    Args:
        versions: file, size and modification time in nanoseconds: the cache key.
    """
    digest = hashlib.blake2b(digest_size=16)
    for file, _, _ in versions:
        digest.update(file.relative_to(path).as_posix().encode() + b"\0")
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "blake2b").digest())
    return digest.hexdigest()


def _is_data(file: Path, folder: Path) -> bool:
    """Whether the file is data rather than documentation, hidden or bytecode."""
    parts = file.relative_to(folder).parts
    if any(part.startswith(".") or part == "__pycache__" for part in parts) or not file.is_file():
        return False
    is_page = file.suffix == ".md" or (file.stem.upper() in _PAGES and file.suffix in {"", ".txt", ".rst"})
    return not is_page


def _without_placement(section: Any) -> Any:
    """A section, or each entry of a list, without placement settings at its top level."""
    if isinstance(section, list):
        return [_without_placement(entry) for entry in section]
    if isinstance(section, dict):
        return {key: value for key, value in section.items() if key not in _PLACEMENT}
    return section
