"""Export of a run's scorer as a folder for the Hugging Face hub, with a model card.

::

    README.md      the model card
    ensemble.json  list of the parts; written last
    policy.json    lambda and thresholds, if the run is calibrated
    a0/ ... a4/    adapter_config.json and adapter_model.safetensors for PEFT, head.safetensors, training.json

``EnsembleScorer.load`` reads the folder; ``PeftModel.from_pretrained(backbone, folder, subfolder="a0")`` an adapter.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from raydebm import __version__
from raydebm.config import Pooling, Recipe
from raydebm.config.pairs import BAG_FRAC
from raydebm.decision.policy import Policy
from raydebm.errors import CheckpointError, ConfigError
from raydebm.evaluation.report.document import markdown_table
from raydebm.evaluation.report.evaluation_tables import energy_table, selector_table
from raydebm.evaluation.results.entries import ANSWERED
from raydebm.evaluation.results.evaluation import Evaluation
from raydebm.evaluation.selectors import PAPER_RULE
from raydebm.evaluation.stats.intervals import Estimate
from raydebm.pipeline.stages.evaluation import read_evaluation
from raydebm.pretrained import is_decoder_type
from raydebm.run.addresses import local_copy
from raydebm.run.directory import RunDir
from raydebm.run.ensemble_file import ENSEMBLE_FILE, holds_ensemble
from raydebm.run.fingerprints import current_manifest
from raydebm.run.stages import StageName
from raydebm.scorer.card import LIMITS, adapter_table, description, notes
from raydebm.scorer.checkpoint import CARD_FILE, read_ensemble
from raydebm.user_files import writing

TAGS = ["raydebm", "lora", "energy-based-model", "reward-model", "verifier", "reranking", "uncertainty"]
ALONE = "mu only"
"""The selector that uses only the scorer."""
_MINILM_ON_HUB = "sentence-transformers/all-MiniLM-L6-v2"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """Results of a run that belong to its current scorer."""

    recipe: Recipe
    pairs: Mapping[str, Any]
    """Facts of the stage: ``{"train": {"pairs": 96, "problems": 20}, "validation": ...}``."""
    evaluation: Evaluation | None
    policy: Policy | None


def export_scorer(run_dir: str, out: Path, *, license: str | None = None) -> list[str]:
    """Write the folder.

    Args:
        run_dir: the run, a folder or a URL; a repaired run has the repaired heads.
        out: a folder that does not exist or is empty.
        license: the hub's name of the licence. Default: the card says that none was stated.

    Returns:
        Missing optional parts, in words, with the way to get them.

    Raises:
        CheckpointError: the run has no complete scorer, or its files do not match.
        ConfigError: ``run_dir`` is not a run; ``out`` is not empty or cannot be written.
    """
    run = RunDir(run_dir).absolute()
    recipe = run.recipe()
    if not holds_ensemble(run.uri("scorer")):
        raise CheckpointError(f"{run.uri('scorer')} contains no complete scorer; run `raydebm run`")
    made = _Made(
        recipe=recipe,
        pairs=run.facts("pairs"),
        evaluation=read_evaluation(run) if _is_current(run, recipe, "scorer", "evaluation") else None,
        policy=Policy.from_json(run.needed_object("calibration", "policy.json"))
        if _is_current(run, recipe, "scorer", "calibration")
        else None,
    )
    with writing(out), local_copy(run.uri("scorer")) as source:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise ConfigError(f"{str(out)!r} exists and is not empty; choose another --out, or remove it first")
        card = _card(source, made, license)
        for adapter in read_ensemble(source)[0].adapters:
            (out / adapter).mkdir(parents=True)
            for path in (Path(source) / adapter).iterdir():
                shutil.copyfile(path, out / adapter / path.name)
        if made.policy is not None:
            (out / "policy.json").write_text(json.dumps(made.policy.to_json(), indent=2) + "\n", encoding="utf-8")
        (out / CARD_FILE).write_text(card, encoding="utf-8")
        shutil.copyfile(Path(source) / ENSEMBLE_FILE, out / ENSEMBLE_FILE)
    lacking = {
        "thresholds: the run has none for this scorer; `raydebm calibrate` finds them": made.policy,
        "an evaluation: the run has none of this scorer; `raydebm run` makes it": made.evaluation,
    }
    return [words for words, value in lacking.items() if value is None]


def _is_current(run: RunDir, recipe: Recipe, *stages: StageName) -> bool:
    """True if the stages are complete and match the run's current settings.

    Another version of this package has different fingerprints; its stages are accepted unchecked.
    """

    def is_current(stage: StageName) -> bool:
        manifest = run.manifest(stage)
        if manifest is None:
            return False
        return manifest.get("version") != __version__ or current_manifest(stage, recipe, run) is not None

    return all(map(is_current, stages))


# ---- the card ------------------------------------------------------------------------------------------------------


def _card(source: Path, made: _Made, license: str | None) -> str:
    """README.md, with the metadata block at its top."""
    record, stored = read_ensemble(source)
    adapters = [adapter.record for adapter in stored]
    recipe = made.recipe
    licence = "None was stated for the adapters and heads; ask whoever published them. The backbone has its own."
    if license is not None:
        licence = f"`{license}`, for the adapters and heads; the backbone has its own."
    sections = [
        f"# {recipe.name}",
        f"A scorer for answers to `{recipe.task.name}` problems: it ranks the candidates of several LLMs and says, by "
        f"the spread over its members, when none can be trusted. {description(record)}",
        "## Use",
        "Energies of candidates, with [raydebm](https://github.com/raydebm/raydebm), in this folder:",
        SCORER_EXAMPLE,
        "One adapter with PEFT and its head, without raydebm (the text must fit the backbone's context here):",
        peft_example(
            record.backbone,
            adapter=record.adapters[0],
            pooling=record.pooling,
            is_decoder=is_decoder_type(record.family),
        ),
        *([] if made.policy is None else ["## Thresholds", _thresholds(made.policy)]),
        "## Training",
        _training(recipe, made.pairs),
        "\n".join(adapter_table(adapters)),
        "\n".join(notes(record, adapters)),
        "## Evaluation",
        *_evaluation(made.evaluation),
        "## Limits",
        LIMITS,
        "## Licence",
        licence,
    ]
    return _front_matter(made, record.backbone, license) + "\n" + "\n\n".join(sections) + "\n"


def _front_matter(made: _Made, backbone: str, license: str | None) -> str:
    """The YAML block for the hub, without empty values."""
    task = made.recipe.task
    sources = (source.source or "" for source in (task.train, task.test))
    datasets = list(dict.fromkeys(source.removeprefix("hub:") for source in sources if source.startswith("hub:")))
    metrics = [] if made.evaluation is None else _metrics(made.evaluation)
    result = {
        "task": {"type": "text-ranking", "name": "choice among candidates"},
        "dataset": {"type": datasets[0] if datasets else task.name, "name": task.name},
        "metrics": metrics,
    }
    fields = {
        "license": license or "unknown",
        "library_name": "peft",
        "base_model": _hub_backbone(backbone),
        "pipeline_tag": "text-ranking",
        "tags": [*TAGS, task.name],
        "datasets": datasets,
        "metrics": sorted({metric["type"] for metric in metrics}),
        "model-index": [{"name": made.recipe.name, "results": [result]}] if metrics else [],
    }
    shown = {key: value for key, value in fields.items() if value}
    return f"---\n{yaml.safe_dump(shown, sort_keys=False, allow_unicode=True)}---\n"


def _metrics(evaluation: Evaluation) -> list[dict[str, Any]]:
    """Metrics of an evaluation for the hub; names contain the interval, because the hub has no field for it."""
    rows = {row.name: row for row in evaluation.rows}
    energies = {row.name: row for row in evaluation.energies}
    metrics: list[tuple[str, str, Estimate]] = []
    if ALONE in rows:
        metrics.append(("accuracy", "pass@1 by the mean energy alone", rows[ALONE].pass_at_1))
        metrics.append(("gap_closed", "gap from random to oracle, mean energy alone", rows[ALONE].gap_closed))
    if PAPER_RULE in rows:
        metrics.append(("accuracy", "pass@1 with the task's constraints added", rows[PAPER_RULE].pass_at_1))
    if ANSWERED in rows:
        metrics.append(("accuracy", "pass@1 of the whole loop where it answers", rows[ANSWERED].pass_at_1))
    if "mu" in energies:
        metrics.append(("pair_accuracy", "pair accuracy of the mean energy", energies["mu"].pair_accuracy))
    return [
        {"type": kind, "value": round(estimate.value, 4), "name": f"{name} ({_interval(estimate)})"}
        for kind, name, estimate in metrics
        if estimate.value is not None
    ]


def _interval(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return f"n={estimate.n}"
    return f"95 % interval {estimate.low:.4f} to {estimate.high:.4f}, n={estimate.n}"


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


# ---- code of the card: it runs as it is, in the folder ------------------------------------------------------------

SCORER_EXAMPLE = """```python
import statistics

from raydebm.scorer.ensemble import EnsembleScorer

problem = "What is 2 + 2?"
candidates = ["2 + 2 = 4. The answer is 4.", "The answer is 5."]
scorer = EnsembleScorer.load(".")  # this folder, or "user/name" of the hub
scored = scorer.score([(problem, candidate) for candidate in candidates])
for candidate, energies in zip(candidates, scored):
    mu, sigma = statistics.fmean(energies.members), statistics.pstdev(energies.members)
    print(f"{mu:.3f} +- {sigma:.3f}  {candidate}")
```"""

_ENCODER_FORM = """    cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id
    tokens = torch.tensor([[cls, *ids(problem), sep, *ids(candidate), sep]])"""
_DECODER_FORM = """    first = tokenizer("\\n")["input_ids"][:1]
    opening = first if first == [tokenizer.bos_token_id] else []
    tokens = torch.tensor([[*opening, *ids(problem), *ids("\\n"), *ids(candidate), tokenizer.eos_token_id]])"""


def _hub_backbone(backbone: str) -> str | None:
    """The backbone's name on the hub, or None if it is not there."""
    if backbone == "package:minilm":
        return _MINILM_ON_HUB
    is_local = Path(backbone).is_dir() or backbone.startswith((".", "/", "~")) or backbone.count("/") > 1
    return None if is_local or ":" in backbone else backbone


def peft_example(backbone: str, *, adapter: str, pooling: Pooling, is_decoder: bool = False) -> str:
    """Code for one adapter's energy with only PEFT and torch."""
    name = _hub_backbone(backbone)
    imports, source = "", f'"{name or backbone}"'
    if name is None and ":" in backbone:
        imports = (
            "from raydebm.scorer.model.backbone import resolve_backbone  # only for the place of its own encoder\n"
        )
        source = f'str(resolve_backbone("{backbone}"))'
    # One text has no padding, so the plain mean is the mean over its tokens.
    pooled = {"cls": "[:, 0]", "last": "[:, -1]", "mean": ".mean(dim=1)"}[pooling]
    form = _DECODER_FORM if is_decoder else _ENCODER_FORM
    return f"""```python
import torch
from peft import PeftModel
from safetensors.torch import load_file
from torch.nn.functional import gelu, layer_norm, linear
from transformers import AutoModel, AutoTokenizer
{imports}
folder = "."  # this folder
backbone = {source}
tokenizer = AutoTokenizer.from_pretrained(backbone)
encoder = AutoModel.from_pretrained(backbone, dtype=torch.float32)
encoder = PeftModel.from_pretrained(encoder, folder, subfolder="{adapter}").eval()
head = load_file(f"{{folder}}/{adapter}/head.safetensors")


def ids(text):
    return tokenizer(text, add_special_tokens=False)["input_ids"]


@torch.no_grad()
def energy(problem, candidate):
{form}
    hidden = encoder(input_ids=tokens, attention_mask=torch.ones_like(tokens)).last_hidden_state{pooled}
    hidden = layer_norm(hidden, hidden.shape[-1:], head["norm.weight"], head["norm.bias"])
    hidden = gelu(linear(hidden, head["hidden.weight"], head["hidden.bias"]))
    return float(linear(hidden, head["out.weight"], head["out.bias"]))


print(energy("What is 2 + 2?", "2 + 2 = 4. The answer is 4."))
```"""
