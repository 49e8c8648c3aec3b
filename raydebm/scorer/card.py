"""The model card of a checkpoint, in Markdown."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from raydebm.scorer.checkpoint_records import AdapterRecord, EnsembleRecord


def model_card(record: "EnsembleRecord", adapters: Sequence["AdapterRecord"]) -> str:
    """The model card of an ensemble, for a user who finds its folder."""
    return "\n".join(
        [
            "# Energy scorer",
            "",
            description(record),
            "",
            *adapter_table(adapters),
            "",
            *notes(record, adapters),
            "",
            LIMITS,
            "",
            "```python",
            "from raydebm.scorer.ensemble import EnsembleScorer",
            "",
            'scorer = EnsembleScorer.load("<this folder>")',
            'scorer.score([("the problem", "a candidate")])',
            "```",
            "",
        ]
    )


_POOLED = {"cls": "the state of [CLS]", "mean": "the mean of the tokens' states", "last": "the state of the last token"}
LIMITS = (
    "Energies rank candidates of one problem, of the kind that the scorer was trained on; they are not probabilities, "
    "and energies of different checkpoints cannot be compared."
)


def description(record: "EnsembleRecord") -> str:
    """Describe the ensemble in one or two sentences."""
    return (
        f"{len(record.adapters)} low-rank adapters with an energy head each, on the frozen backbone "
        f"`{record.backbone}` (weights {record.backbone_fingerprint}), reading {_POOLED[record.pooling]}. Lower energy "
        "is better; mu is the members' mean and sigma their population standard deviation."
    )


def adapter_table(adapters: Sequence["AdapterRecord"]) -> list[str]:
    """Lines of a Markdown table: each adapter's LoRA settings, its training data, and the figures of its best epoch."""
    rows = [
        f"| {record.adapter.name} | {record.adapter.rank} | {record.adapter.alpha} "
        f"| {', '.join(record.adapter.targets)} | {record.num_train_problems} | {record.num_train_pairs} "
        f"| {record.best_epoch} of {len(record.epochs)} "
        f"| {_figure(record.best.train_loss)} | {_figure(record.best.validation_loss)} "
        f"| {_figure(record.best.validation_accuracy)} |"
        for record in adapters
    ]
    return [
        "| adapter | rank | alpha | targets | train problems | train pairs | kept epoch | train loss | validation loss "
        "| validation pair accuracy |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *rows,
    ]


def notes(record: "EnsembleRecord", adapters: Sequence["AdapterRecord"]) -> list[str]:
    """Notes on the data behind the table of adapters."""
    first = adapters[0]
    return [
        f"Losses in nats (Bradley-Terry: chance is 0.693). Validation: {first.num_validation_problems} problems, "
        f"{first.num_validation_pairs} pairs, never seen in training. Inputs of up to {record.max_length} tokens; "
        f"{first.num_truncated_texts} of {first.num_texts} texts of the first adapter were cut to fit.",
        "",
        f"Data {record.data_fingerprint}. Versions: {', '.join(f'{k} {v}' for k, v in record.versions.items())}.",
    ]


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
