"""Models and answers that ship with the package, so that everything runs without a network, a key or a GPU.

One encoder for the scorer and four causal models that write Knights & Knaves solutions, each with its own style and
strength. ``MODEL_CARD.md`` says how they were made and how good they are; ``tools/embedded`` makes them again. And 200
problems of GSM8K, for a recipe that small LLMs answer on a CPU, with the answers of three of them to half of these. And
a finished run of the demo's recipe, for the service and ``best_of``.
"""

from pathlib import Path

from raydebm.errors import CheckpointError, UnknownNameError

ENCODER = "encoder-mini"
GENERATORS = ("kk-ada", "kk-bo", "kk-cy", "kk-dee")
"""Embedded language models, the strongest first."""
NAMES = (ENCODER, *GENERATORS)
SMALL_LLMS = "gsm8k_small_llms"
"""The problems, as a folder of ``train.jsonl`` and ``test.jsonl``, and answers as its ``candidates.parquet``."""
PREFIX = "embedded:"
DEMO_RUN = "demo"
"""Name of the finished run, in the place of a run directory that is read; a folder of that name is ``./demo``."""

_FOLDER = Path(__file__).parent
DEMO_RUN_FOLDER = _FOLDER / "demo_run"


def local_path(name: str) -> Path:
    """Path that a recipe names; a name after ``embedded:`` is a folder or file of this package.

    Raises:
        UnknownNameError: the package has no file of this name.
        CheckpointError: the installation lacks the model's files.
    """
    if not name.startswith(PREFIX):
        return Path(name)
    rest = name.removeprefix(PREFIX)
    return _FOLDER / "pools" / rest if rest == SMALL_LLMS else embedded_path(rest)


def embedded_path(name: str) -> Path:
    """The local folder of an embedded model, for ``from_pretrained``.

    Raises:
        UnknownNameError: no such model.
        CheckpointError: the installation lacks the model's files.
    """
    if name not in NAMES:
        raise UnknownNameError("embedded model", name, NAMES)
    folder = _FOLDER / "models" / name
    if not (folder / "config.json").is_file():
        raise CheckpointError(
            f"the files of embedded model {name!r} are missing at {folder}; install the package again, "
            "or train the model as MODEL_CARD.md beside this file says"
        )
    return folder
