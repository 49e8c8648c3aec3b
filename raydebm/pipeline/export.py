"""Export of a run's scorer as a folder for the Hugging Face hub, with a model card: that of the checkpoint, with
metadata, thresholds, the origin of the data, and the evaluation.

::

    README.md      the model card
    ensemble.json  list of the parts; written last
    policy.json    lambda and thresholds, if the run is calibrated
    a0/ ... a4/    adapter_config.json and adapter_model.safetensors for PEFT, head.safetensors, training.json

``EnsembleScorer.load`` reads the folder; ``PeftModel.from_pretrained(backbone, folder, subfolder="a0")`` an adapter.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from raydebm import __version__
from raydebm.config import Recipe
from raydebm.config.scorer import BAG_FRAC
from raydebm.decision.policy import Policy
from raydebm.errors import CheckpointError, ConfigError
from raydebm.evaluation.report.document import markdown_table
from raydebm.evaluation.report.evaluation_tables import energy_table, selector_table
from raydebm.evaluation.results.evaluation import Evaluation
from raydebm.evaluation.selectors import PAPER_RULE
from raydebm.pipeline.stages.evaluation import read_evaluation
from raydebm.run.addresses import local_copy
from raydebm.run.directory import RunDir
from raydebm.run.ensemble_file import ENSEMBLE_FILE, holds_ensemble
from raydebm.run.fingerprints import current_manifest
from raydebm.run.stages import StageName
from raydebm.scorer.checkpoint import CARD_FILE, read_ensemble
from raydebm.user_files import writing

TAGS = ["raydebm", "lora", "energy-based-model", "reward-model", "verifier", "reranking", "uncertainty"]
ALONE = "mu only"
"""The selector that uses only the scorer."""


def export_scorer(run_dir: str, out: Path, *, license: str | None = None) -> list[str]:
    """Write the folder.

    Args:
        run_dir: the run, a folder or a URL; a repaired run has the repaired heads.
        out: a folder that does not exist or is empty.
        license: the hub's name of the licence. Default: the card says that none was stated.

    Returns:
        A note on each missing optional part, with the command that makes it.

    Raises:
        CheckpointError: the run has no complete scorer, or its files do not match.
        ConfigError: ``run_dir`` is not a run; ``out`` is not empty or cannot be written.
    """
    run = RunDir(run_dir).absolute()
    recipe = run.recipe()
    if not holds_ensemble(run.uri("scorer")):
        raise CheckpointError(f"{run.uri('scorer')} contains no complete scorer; run `raydebm run`")
    evaluation = read_evaluation(run) if _is_current(run, recipe, "scorer", "evaluation") else None
    policy = None
    if _is_current(run, recipe, "scorer", "calibration"):
        policy = Policy.from_json(run.needed_object("calibration", "policy.json"))
    with writing(out), local_copy(run.uri("scorer")) as source:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise ConfigError(f"{str(out)!r} exists and is not empty; choose another --out, or remove it first")
        sections = [
            (source / CARD_FILE).read_text(encoding="utf-8").replace("# Energy scorer", "## Energy scorer").strip(),
            *([] if policy is None else ["## Thresholds", _thresholds(policy)]),
            "## Training",
            _training(recipe, run.facts("pairs")),
            "## Evaluation",
            *_evaluation(evaluation),
        ]
        card = _card(recipe, read_ensemble(source)[0].backbone, sections, license)
        for adapter in read_ensemble(source)[0].adapters:
            (out / adapter).mkdir(parents=True)
            for path in (source / adapter).iterdir():
                shutil.copyfile(path, out / adapter / path.name)
        if policy is not None:
            (out / "policy.json").write_text(json.dumps(policy.to_json(), indent=2) + "\n", encoding="utf-8")
        (out / CARD_FILE).write_text(card, encoding="utf-8")
        shutil.copyfile(source / ENSEMBLE_FILE, out / ENSEMBLE_FILE)
    lacking = {
        "thresholds: the run has none for this scorer; `raydebm calibrate` finds them": policy,
        "an evaluation: the run has none of this scorer; `raydebm run` makes it": evaluation,
    }
    return [words for words, value in lacking.items() if value is None]


def _is_current(run: RunDir, recipe: Recipe, *stages: StageName) -> bool:
    """True if the stages are complete and match the run's current settings.

    Another version of this package has different fingerprints; its stages are accepted unchecked.
    """
    manifests = {stage: run.manifest(stage) for stage in stages}
    return all(
        manifest is not None
        and (manifest.get("version") != __version__ or current_manifest(stage, recipe, run) is not None)
        for stage, manifest in manifests.items()
    )


def _card(recipe: Recipe, backbone: str, sections: Sequence[str], license: str | None) -> str:
    """README.md, with the hub's metadata block at its top."""
    task = recipe.task
    sources = (source.source or "" for source in (task.train, task.test))
    fields = {
        "license": license or "unknown",
        "library_name": "peft",
        "base_model": _hub_backbone(backbone),
        "pipeline_tag": "text-ranking",
        "tags": [*TAGS, task.name],
        "datasets": list(dict.fromkeys(name.removeprefix("hub:") for name in sources if name.startswith("hub:"))),
    }
    shown = {key: value for key, value in fields.items() if value}
    stated = "None was stated for the adapters and heads; ask their publisher."
    parts = [
        f"# {recipe.name}",
        f"A scorer for answers to `{task.name}` problems, made with [raydebm](https://github.com/raydebm/raydebm).",
        *sections,
        "## Licence",
        f"{stated if license is None else f'`{license}`, for the adapters and heads.'} The backbone has its own.",
    ]
    metadata = yaml.safe_dump(shown, sort_keys=False, allow_unicode=True)
    return f"---\n{metadata}---\n\n" + "\n\n".join(parts) + "\n"


def _hub_backbone(backbone: str) -> str | None:
    """The backbone's name on the hub, or None if it is not there."""
    if backbone == "package:minilm":
        return "sentence-transformers/all-MiniLM-L6-v2"
    is_local = Path(backbone).is_dir() or backbone.startswith((".", "/", "~")) or backbone.count("/") > 1
    return None if is_local or ":" in backbone else backbone


def _thresholds(policy: Policy) -> str:
    rows = [f"| {name} | {value} |" for name, value in policy.settings().items()]
    heading = "Calibrated on validation problems; `policy.json` holds them for the service, with all that was fitted."
    return "\n".join([heading, "", "| setting | value |", "|---|---|", *rows])


def _training(recipe: Recipe, pairs: Mapping[str, Any]) -> str:
    generators = ", ".join(f"`{config.name}`" for config in recipe.generators)
    counts = [f"{sizes['pairs']:,} pairs of {sizes['problems']:,} problems ({split})" for split, sizes in pairs.items()]
    data = f" Pairs: {'; '.join(counts)}." if counts else ""
    return (
        f"Run `{recipe.name}` with raydebm {__version__}, seed {recipe.seed}. Candidates were written by {generators}, "
        "labelled against reference answers, and paired, correct over incorrect; each adapter saw its own "
        f"{BAG_FRAC:.0%} of the training problems.{data}"
    )


def _evaluation(evaluation: Evaluation | None) -> list[str]:
    if evaluation is None:
        return ["This scorer was not evaluated before it was exported."]
    counts = evaluation.counts
    sections = [
        f"{counts.problems} test problems with {counts.candidates} candidates of {len(evaluation.generators)} "
        f"generators, {counts.unlabeled} unlabeled. Intervals: 95 %, percentile bootstrap over problems "
        f"({evaluation.num_bootstrap} resamples, seed {evaluation.seed}). `{ALONE}` is this scorer by itself; "
        f"`{PAPER_RULE}` adds the penalties of the task's constraints, which are not in this folder."
    ]
    for table in (selector_table(evaluation), energy_table(evaluation)):
        if table.rows:
            sections += [f"### {table.title}", table.caption, markdown_table(table)]
    return sections
