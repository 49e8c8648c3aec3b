"""Models and answers that ship with the package, so that everything runs without a network, a key or a GPU.

One encoder for the scorer and four causal models that write Knights & Knaves solutions, each with its own style and
strength. ``MODEL_CARD.md`` says how they were made and how good they are; ``tools/embedded`` makes them again. The
package also has 200 problems of GSM8K, for a recipe that small LLMs answer on a CPU, the answers of three such LLMs to
half of them, and a finished run of the demo's recipe, for the service and ``best_of``.
"""

from pathlib import Path

from raydebm.errors import CheckpointError, UnknownNameError

ENCODER = "encoder-mini"
GENERATORS = ("kk-ada", "kk-bo", "kk-cy", "kk-dee")
"""Embedded language models, the strongest first."""
NAMES = (ENCODER, *GENERATORS)
SMALL_LLMS = "gsm8k_small_llms"
"""Folder of the GSM8K problems (``train.jsonl``, ``test.jsonl``) and the answers (``candidates.parquet``)."""
PREFIX = "embedded:"
DEMO_RUN = "demo"
"""Name of the finished run, accepted as a run directory to read. A folder of that name is given as ``./demo``."""

_FOLDER = Path(__file__).parent
DEMO_RUN_FOLDER = _FOLDER / "demo_run"


def local_path(name: str) -> Path:
    """Local path of a name in a recipe. A name after ``embedded:`` is a folder or file of this package.

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
