"""The model card of an exported scorer: metadata that the hub reads, and what a person needs to know."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from raydebm import __version__
from raydebm.config import Recipe
from raydebm.config.pairs import BAG_FRAC
from raydebm.decision.policy import Policy
from raydebm.evaluation.report.document import markdown_table
from raydebm.evaluation.report.evaluation_tables import energy_table, selector_table
from raydebm.evaluation.results.entries import ANSWERED, OURS
from raydebm.evaluation.results.evaluation import Evaluation
from raydebm.evaluation.stats.intervals import Estimate
from raydebm.export.examples import hub_backbone, peft_example, scorer_example
from raydebm.export.target import front_matter
from raydebm.pretrained.model_source import is_decoder_type
from raydebm.scorer.card import LIMITS, adapter_table, description, notes
from raydebm.scorer.checkpoint_records import AdapterRecord, EnsembleRecord

TAGS = ["raydebm", "lora", "energy-based-model", "reward-model", "verifier", "reranking", "uncertainty"]
ALONE = "mu only"
"""The selector that uses nothing but the scorer."""
NO_LICENSE = "unknown"
"""The hub's word for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What the hub shows of an export and the run does not know."""

    title: str | None = None
    """Heading of the card; None: the run's name."""
    license: str | None = None
    """An identifier of the hub, such as ``apache-2.0``; None: the card says that none was stated."""
    datasets: tuple[str, ...] = ()
    """Names on the hub of the data that the problems came from; none: those that the recipe names."""
    base_model: str | None = None
    """The backbone's name on the hub, where the run has it under another name or as a local folder. The weights are
    checked whenever the scorer is loaded, so that a wrong name is found out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFacts:
    """What a card says beyond the checkpoint itself."""

    title: str
    license: str | None
    datasets: tuple[str, ...]
    repository: str | None
    """On the hub; None: the card speaks of "this folder"."""
    recipe: Recipe
    pairs: Mapping[str, Any]
    """Facts of the stage: ``{"train": {"pairs": 96, "problems": 20}, "validation": ...}``."""
    evaluation: Evaluation | None
    policy: Policy | None


def scorer_card(record: EnsembleRecord, adapters: Sequence[AdapterRecord], facts: CardFacts) -> str:
    """README.md, with the metadata block at its top."""
    sections = [
        f"# {facts.title}",
        _introduction(record, facts),
        "## Use",
        "Energies of candidates, with [raydebm](https://github.com/raydebm/raydebm):",
        scorer_example(facts.repository),
        "One adapter with PEFT and its head, without raydebm (the text must fit the backbone's context here):",
        peft_example(
            record.backbone,
            adapter=record.adapters[0],
            pooling=record.pooling,
            is_decoder=is_decoder_type(record.family),
            repository=facts.repository,
        ),
        *([] if facts.policy is None else ["## Thresholds", _thresholds(facts.policy)]),
        "## Training",
        _training(facts),
        "\n".join(adapter_table(adapters)),
        "\n".join(notes(record, adapters)),
        "## Evaluation",
        *_evaluation(facts.evaluation),
        "## Limits",
        LIMITS,
        "## Licence",
        _license(facts.license),
    ]
    return _metadata(record, facts) + "\n" + "\n\n".join(sections) + "\n"


def _metadata(record: EnsembleRecord, facts: CardFacts) -> str:
    metrics = [] if facts.evaluation is None else _metrics(facts.evaluation)
    dataset = {"type": facts.datasets[0] if facts.datasets else facts.recipe.task.name, "name": facts.recipe.task.name}
    return front_matter(
        {
            "license": facts.license or NO_LICENSE,
            "library_name": "peft",
            "base_model": hub_backbone(record.backbone),
            "pipeline_tag": "text-ranking",
            "tags": [*TAGS, facts.recipe.task.name],
            "datasets": list(facts.datasets),
            "metrics": sorted({metric["type"] for metric in metrics}),
            "model-index": metrics
            and [
                {
                    "name": facts.title,
                    "results": [
                        {
                            "task": {"type": "text-ranking", "name": "choice among candidates"},
                            "dataset": dataset,
                            "metrics": metrics,
                        }
                    ],
                }
            ],
        }
    )


def _metrics(evaluation: Evaluation) -> list[dict[str, Any]]:
    """What the hub shows of an evaluation; names carry the interval, because the hub has no field for it."""
    rows = {row.name: row for row in evaluation.rows}
    energies = {row.name: row for row in evaluation.energies}
    metrics: list[tuple[str, str, Estimate]] = []
    if ALONE in rows:
        metrics.append(("accuracy", "pass@1 by the mean energy alone", rows[ALONE].pass_at_1))
        metrics.append(("gap_closed", "gap from random to oracle, mean energy alone", rows[ALONE].gap_closed))
    if OURS in rows:
        metrics.append(("accuracy", "pass@1 with the task's constraints added", rows[OURS].pass_at_1))
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


def _introduction(record: EnsembleRecord, facts: CardFacts) -> str:
    return (
        f"A scorer for answers to `{facts.recipe.task.name}` problems: it ranks the candidates of several LLMs and "
        f"says, by the spread over its members, when none can be trusted. {description(record)}"
    )


def _thresholds(policy: Policy) -> str:
    rows = [f"| {name} | {value} |" for name, value in policy.settings().items()]
    heading = "Calibrated on validation problems; `policy.json` holds them for the service, with all that was fitted."
    return "\n".join([heading, "", "| setting | value |", "|---|---|", *rows])


def _training(facts: CardFacts) -> str:
    recipe = facts.recipe
    generators = ", ".join(f"`{config.name}`" for config in recipe.generators)
    counts = [
        f"{sizes['pairs']:,} pairs of {sizes['problems']:,} problems ({split})" for split, sizes in facts.pairs.items()
    ]
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
        f"({evaluation.num_bootstrap} resamples, seed {evaluation.seed}). `{ALONE}` is this scorer by itself; `{OURS}` "
        "adds the penalties of the task's constraints, which are not in this folder."
    ]
    for table in (selector_table(evaluation), energy_table(evaluation)):
        if table.rows:
            sections += [f"### {table.title}", table.caption, markdown_table(table)]
    return sections


def _license(license: str | None) -> str:
    if license is not None:
        return f"`{license}`, for the adapters and heads; the backbone has its own."
    return "None was stated for the adapters and heads; ask whoever published them. The backbone has its own."
