"""Starter files of ``raydebm init`` and ``raydebm task new``.

``serve_config.yaml`` and ``cluster.yaml`` are links to the files at the top of the repository; a wheel has copies. The
task in ``task/`` answers a shop's customers and states the refund. Its recorded answers are of two authors: the careful
one is wrong in some second answers, the hasty one breaks rules.
"""

import json
from pathlib import Path
from string import Template

from raydebm.errors import ConfigError, TaskDataError

FOLDER = Path(__file__).resolve().parent
RECIPE = FOLDER / "recipe.yaml"
SERVE_CONFIG = FOLDER / "serve_config.yaml"
CLUSTER = FOLDER / "cluster.yaml"
FILES = (RECIPE, SERVE_CONFIG, CLUSTER)
_TASK = FOLDER / "task"


def task_files(name: str, folder: str) -> dict[str, str]:
    """Contents by file name of a small task that runs offline. The recipe names the files in ``folder``. Raises
    ConfigError for an invalid task name."""
    _check_name(name)
    paths = {"task": json.dumps(f"{folder}/task.yaml"), "pool": json.dumps(f"{folder}/answers.jsonl")}
    names = ("task.yaml", "recipe.yaml", "train.jsonl", "test.jsonl", "answers.jsonl")
    return {file: _filled(file, name=name, folder=folder, **paths) for file in names}


def task_file_for(name: str, folder: str, data: Path) -> str:
    """A task file for a user's data file, with all columns of the data in the prompt. Raises ConfigError for an invalid
    task name, TaskDataError for a file that cannot be read or has no rows."""
    from raydebm.tasks.sources import file_rows

    _check_name(name)
    row = next((row for _, row in file_rows(data)), None)
    if not row:
        raise TaskDataError(f"file {str(data)!r} has no rows")
    prompt = "\n".join(f"  {column}: {{{column}}}" for column in row)
    return _filled("own_task.yaml", name=name, folder=folder, prompt=prompt, data=json.dumps(str(data.resolve())))


def _check_name(name: str) -> None:
    from raydebm.tasks.declared.definition import NAME

    if not NAME.fullmatch(name):
        raise ConfigError(f"task name {name!r} must be lowercase letters, digits and _, such as support_reply")


def _filled(file: str, **values: str) -> str:
    return Template((_TASK / file).read_text(encoding="utf-8")).safe_substitute(values)
