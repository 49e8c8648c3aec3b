"""The scorer of a run as a folder for the Hugging Face hub.

::

    README.md      the model card
    ensemble.json  what belongs together; written last
    policy.json    lambda and thresholds, where the run is calibrated
    a0/ ... a4/    adapter_config.json and adapter_model.safetensors as PEFT reads them, head.safetensors, training.json

``EnsembleScorer.load`` reads the folder; ``PeftModel.from_pretrained(backbone, folder, subfolder="a0")`` an adapter.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from raydebm.decision.policy import Policy
from raydebm.errors import CheckpointError
from raydebm.export.examples import hub_backbone
from raydebm.export.finished_run import FinishedRun
from raydebm.export.model_card import CardFacts, Listing, scorer_card
from raydebm.export.target import fresh_folder
from raydebm.run.addresses import local_copy
from raydebm.run.ensemble_file import ENSEMBLE_FILE, fingerprint_of, holds_ensemble
from raydebm.scorer.checkpoint import CARD_FILE, StoredAdapter, read_ensemble, write_adapter
from raydebm.scorer.checkpoint_records import AdapterRecord, EnsembleRecord

POLICY_FILE = "policy.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScorerExport:
    """What was written."""

    folder: Path
    adapters: tuple[str, ...]
    left_out: tuple[str, ...]
    """In words: what an export can hold and this one does not, and the way to have it."""


def export_scorer(
    finished: FinishedRun,
    out: Path,
    listing: Listing | None = None,
    *,
    repository: str | None = None,
    stage: str = "scorer",
) -> ScorerExport:
    """Write the folder.

    Args:
        finished: the run.
        out: a folder that does not exist or is empty.
        listing: what the hub shows of it.
        repository: name on the hub under which readers of the card will find the folder; None: none.
        stage: where the run keeps the checkpoint; ``repair/scorer`` for repaired heads.

    Raises:
        CheckpointError: the run has no complete checkpoint there, or it is torn.
        ConfigError: ``out`` is not empty or cannot be written.
    """
    listing = listing or Listing()
    if not holds_ensemble(finished.run.uri(stage)):
        verb = "train" if stage == "scorer" else "repair"
        raise CheckpointError(f"{finished.run.uri(stage)} holds no complete scorer; `raydebm {verb}` makes it")
    with local_copy(finished.run.uri(stage)) as source:
        record, stored = read_ensemble(source)
    record = _with_backbone(record, listing.base_model)
    ensemble = record.model_dump_json(indent=2)
    is_trained = stage == "scorer"
    evaluation, policy = (finished.evaluation(), finished.policy()) if is_trained else (None, None)
    if policy is not None:
        policy = _calibrated_with(policy, fingerprint_of(json.loads(ensemble)))
    facts = CardFacts(
        title=listing.title or finished.recipe.name,
        license=listing.license,
        datasets=listing.datasets or _hub_sources(finished),
        repository=repository,
        recipe=finished.recipe,
        pairs=finished.facts("pairs"),
        evaluation=evaluation,
        policy=policy,
    )
    with fresh_folder(out) as folder:
        records = _write_adapters(folder, stored, record)
        if policy is not None:
            (folder / POLICY_FILE).write_text(json.dumps(policy.to_json(), indent=2) + "\n", encoding="utf-8")
        (folder / CARD_FILE).write_text(scorer_card(record, records, facts), encoding="utf-8")
        (folder / ENSEMBLE_FILE).write_text(ensemble + "\n", encoding="utf-8")
    lacks_policy, lacks_evaluation = is_trained and policy is None, is_trained and evaluation is None
    left_out = _left_out(record.backbone, lacks_policy=lacks_policy, lacks_evaluation=lacks_evaluation)
    return ScorerExport(folder=out, adapters=record.adapters, left_out=left_out)


def _calibrated_with(policy: Policy, checkpoint: str) -> Policy:
    """With the fingerprint of the export, whose backbone may have another name, in place of the run's."""
    if policy.posterior is None or not policy.posterior.checkpoint:
        return policy
    return policy.replaced(posterior=replace(policy.posterior, checkpoint=checkpoint))


def _with_backbone(record: EnsembleRecord, name: str | None) -> EnsembleRecord:
    """With the name by which readers of the export know the backbone."""
    if name is None:
        return record
    return record.model_copy(update={"backbone": name})


def _write_adapters(folder: Path, stored: Sequence[StoredAdapter], ensemble: EnsembleRecord) -> list[AdapterRecord]:
    """Write each adapter to a folder of its name, with the backbone's name as the ensemble has it."""
    records = []
    for name, adapter in zip(ensemble.adapters, stored, strict=True):
        records.append(adapter.record.model_copy(update={"backbone": ensemble.backbone}))
        config = {**adapter.peft_config, "base_model_name_or_path": ensemble.backbone}
        write_adapter(folder / name, record=records[-1], config=config, lora=adapter.lora, head=adapter.head)
    return records


def _left_out(backbone: str, *, lacks_policy: bool, lacks_evaluation: bool) -> tuple[str, ...]:
    """What the folder lacks, a phrase each with the remedy."""
    left_out = []
    if lacks_policy:
        left_out.append("thresholds: the run has none for this scorer; `raydebm calibrate` finds them")
    if lacks_evaluation:
        left_out.append("an evaluation: the run has none of this scorer; `raydebm evaluate` makes it")
    if ":" not in backbone and hub_backbone(backbone) is None:
        left_out.append(
            f"a backbone that others can load: this one is the folder {backbone}; give its name on the hub as "
            "--base-model"
        )
    return tuple(left_out)


def _hub_sources(finished: FinishedRun) -> tuple[str, ...]:
    """The hub's data sets that the recipe names itself."""
    sources = (finished.recipe.task.train.source, finished.recipe.task.test.source)
    named = [source.removeprefix("hub:") for source in sources if source is not None and source.startswith("hub:")]
    return tuple(dict.fromkeys(name for name in named if name))
