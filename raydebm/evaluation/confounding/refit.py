"""Repair: retrain the energy heads on group-balanced data, with everything else frozen (DFR; Kirichenko et al. 2023).

A scorer that recognises good authors often has features that also encode the quality of a text; it is the heads that
ignore it. If every (generator, label) group has the same weight, the generator has no predictive value, and retrained
heads use the remaining information.

Shapes: N texts, D hidden size, K adapters.
"""

import math
import shutil
from array import array
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

import torch
from torch import Tensor
from torch.nn.functional import softplus

from raydebm.errors import CheckpointError, ConfigError, PoolError, ScoringError
from raydebm.identity import seed_for
from raydebm.scorer.checkpoint import CARD_FILE, StoredAdapter, read_ensemble, write_adapter, write_ensemble
from raydebm.scorer.checkpoint_records import EnsembleRecord
from raydebm.scorer.ensemble import EnsembleScorer, MergedEngine, backbone_for, head_of, text_encoder
from raydebm.scorer.model.head import EnergyHead


class FeatureExtractor:
    """Features of texts, as inputs of a checkpoint's heads.

    Each distinct text is encoded once, by the scoring engine, and its features are cached for retrained heads
    and for scorers that differ only in their heads.

    Memory: 4 * K * D bytes per distinct text (20 KB with five adapters and 1,024 dimensions), and 4 bytes per token.
    """

    def __init__(
        self, folder: str | Path, *, device: str = "auto", dtype: str = "auto", micro_batch_tokens: int = 8192
    ) -> None:
        """Load a checkpoint and merge its adapters into the backbone.

        Raises:
            CheckpointError: parts are missing or corrupt, or were trained on another backbone.
        """
        self.folder = Path(folder)
        self.record, self.adapters = read_ensemble(self.folder)
        self.backbone = backbone_for(self.record, device=device, dtype=dtype)
        self.dtype = self.backbone.dtype
        self._encoder = text_encoder(self.record, self.backbone)
        self._engine = MergedEngine(self.backbone, self.adapters, micro_batch_tokens=micro_batch_tokens)
        self._known: dict[bytes, Tensor] = {}

    def features(self, texts: Sequence[tuple[str, str]]) -> Tensor:
        """Inputs of each adapter's head, shape (N, K, D), float32, on the CPU, for N >= 1 texts in order."""
        return self.of_ids([text.ids for text in self._encoder(texts)])

    def has(self, texts: Sequence[tuple[str, str]]) -> list[bool]:
        """Whether the features of each text are cached, in order."""
        return [_key(text.ids) in self._known for text in self._encoder(texts)]

    def scorer(self, folder: str | Path) -> EnsembleScorer:
        """Scorer of a checkpoint that differs from the extractor's at most in its heads.

        Raises:
            CheckpointError: parts are missing or corrupt, or adapters or backbone differ.
        """
        record, adapters = read_ensemble(Path(folder))
        if _without_heads(record, adapters) != _without_heads(self.record, self.adapters):
            raise CheckpointError(f"{folder}: its adapters differ from those of the cached features; load it by itself")
        heads = [head_of(adapter, hidden_size=self.backbone.hidden_size) for adapter in adapters]
        return EnsembleScorer(record=record, encoder=self._encoder, engine=_HeadsEngine(self, heads))

    def of_ids(self, ids: Sequence[Sequence[int]]) -> Tensor:
        """``features`` of token ids."""
        by_key = {_key(text): text for text in ids}
        missing = {key: text for key, text in by_key.items() if key not in self._known}
        if missing:
            features_KND = self._engine.features(list(missing.values()), range(len(self.adapters)))
            self._known |= zip(missing, features_KND.unbind(1), strict=True)
        return torch.stack([self._known[_key(text)] for text in ids])


def _key(ids: Sequence[int]) -> bytes:
    """Cache key with four bytes per token, where a tuple would need 36."""
    return array("i", ids).tobytes()


class _HeadsEngine:
    """``EnergyEngine`` with cached features."""

    def __init__(self, features: FeatureExtractor, heads: Sequence[EnergyHead]) -> None:
        self._features, self._heads = features, heads

    @torch.inference_mode()
    def energies(self, ids: Sequence[Sequence[int]], members: Sequence[int]) -> Tensor:
        of_adapters = self._features.of_ids(ids).unbind(1)
        return torch.stack([self._heads[index](of_adapters[index]) for index in members])


def _without_heads(record: EnsembleRecord, adapters: Sequence[StoredAdapter]) -> tuple[object, ...]:
    """Value that is equal for checkpoints with the same features."""
    weights = [
        {key: tensor.view(torch.uint8).numpy().tobytes() for key, tensor in adapter.lora.items()}
        for adapter in adapters
    ]
    configs = [dict(adapter.peft_config) for adapter in adapters]
    return record.backbone_fingerprint, record.pooling, record.max_length, configs, weights


Sizes = Mapping[str, tuple[int, int]]
"""Generator -> numbers of correct and of incorrect texts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairText:
    candidate_id: str
    problem_id: str
    prompt: str
    text: str
    generator: str
    correct: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairSettings:
    """Training of the heads: logistic loss of each text's label, with equal weight for all (generator, label) cells."""

    cap: int = 396
    """Maximum number of texts in a cell (paper), sampled with the seed."""
    min_cell: int = 8
    """Minimum number of texts in each of a generator's cells. With fewer, its name would still predict the label."""
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    head_dropout: float = 0.2
    batch_size: int = 256
    """Texts per optimiser step."""
    max_epochs: int = 100
    patience: int = 10
    """Epochs without a lower validation loss before training stops."""
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadResult:
    """One refitted head. Losses in nats; ln 2 = 0.693 is chance."""

    adapter: str
    num_epochs: int
    best_epoch: int
    train_loss: float
    validation_loss: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairResult:
    folder: Path
    cells: Sizes
    left_out: Sizes
    heads: tuple[HeadResult, ...]
    trainable_share: float
    """Parameters of the heads over all parameters of the ensemble (the paper: 0.4 %, with the backbone counted once per
    adapter)."""


def repair_heads(
    extractor: FeatureExtractor,
    out: Path,
    *,
    train: Sequence[RepairText],
    validation: Sequence[RepairText] = (),
    settings: RepairSettings,
) -> RepairResult:
    """Refit every head of a checkpoint and write the repaired checkpoint to ``out``.

    Deterministic on one machine with one number of threads.

    Args:
        extractor: Features of the checkpoint.
        train: Training texts, without problems of ``validation`` or of the test split.
        validation: Texts for early stopping, balanced in the same way. If empty, all epochs run and the last is stored.

    Raises:
        PoolError: fewer than two generators have both labels, or ``train`` and ``validation`` share problems.
        ScoringError: a loss became NaN or infinite.
        ConfigError: ``out`` is the checkpoint itself.
    """
    if out.resolve() == extractor.folder.resolve():
        raise ConfigError(f"repair writes a new checkpoint, but {str(out)!r} is the one to repair; name another folder")
    shared = {example.problem_id for example in train} & {example.problem_id for example in validation}
    if shared:
        raise PoolError(
            f"{len(shared)} problems are in both the training and the validation part of the repair, such as "
            f"{min(shared)!r}; use each in one part only"
        )
    fit, left_out = balanced_cells(train, cap=settings.cap, min_cell=settings.min_cell, seed=settings.seed)
    generators = {example.generator for example in fit}
    if len(generators) < 2:
        raise PoolError(
            f"repair needs at least two generators with {settings.min_cell} correct and {settings.min_cell} incorrect "
            f"answers each; left out: {_in_words(left_out)}"
        )
    check = [example for example in validation if example.generator in generators]
    features_NKD = extractor.features([(example.prompt, example.text) for example in (*fit, *check)])
    heads: list[HeadResult] = []
    shutil.rmtree(out, ignore_errors=True)
    for adapter, states_ND in zip(extractor.adapters, features_NKD.unbind(1), strict=True):
        head, fitted = _refit(adapter.record.adapter.name, states_ND, fit, check, settings)
        heads.append(fitted)
        # The head's loss already determines its scale, so no rescaling is stored.
        repaired = {"repair": {"settings": asdict(settings), "result": asdict(fitted)}}
        changes = {"settings": adapter.record.settings | repaired, "scale": 1.0, "offset": 0.0}
        write_adapter(
            out / fitted.adapter,
            record=adapter.record.model_copy(update=changes),
            config=adapter.peft_config,
            lora=adapter.lora,
            head=head.state_dict(),
        )
    result = RepairResult(
        folder=out,
        cells=cell_sizes(fit),
        left_out=left_out,
        heads=tuple(heads),
        trainable_share=_trainable_share(extractor),
    )
    _write_ensemble(result, extractor, settings)
    return result


def balanced_cells(
    texts: Sequence[RepairText], *, cap: int, min_cell: int, seed: int
) -> tuple[list[RepairText], dict[str, tuple[int, int]]]:
    """At most ``cap`` texts per (generator, label) cell, and the excluded generators.

    Equal texts of a problem and generator count once. The order of ``texts`` has no effect.
    """
    cells: dict[tuple[str, bool], list[RepairText]] = defaultdict(list)
    distinct = {(example.problem_id, example.generator, example.text, example.correct): example for example in texts}
    for _, example in sorted(distinct.items()):
        cells[example.generator, example.correct].append(example)
    sizes = cell_sizes(list(distinct.values()))
    left_out = {name: size for name, size in sizes.items() if min(size) < min_cell}
    examples: list[RepairText] = []
    for name in sizes:
        for label in (True, False):
            cell = [] if name in left_out else cells[name, label]
            examples += Random(seed_for(seed, "cell", name, label)).sample(cell, min(cap, len(cell)))
    return examples, left_out


def cell_sizes(texts: Sequence[RepairText]) -> dict[str, tuple[int, int]]:
    """Numbers of correct and incorrect texts by generator, sorted by name."""
    counts = Counter((example.generator, example.correct) for example in texts)
    return {name: (counts[name, True], counts[name, False]) for name in sorted({name for name, _ in counts})}


def cell_weights(texts: Sequence[RepairText]) -> list[float]:
    """Weights that sum to 1, with the same sum for every (generator, label) cell."""
    sizes = Counter((example.generator, example.correct) for example in texts)
    return [1.0 / (len(sizes) * sizes[example.generator, example.correct]) for example in texts]


def _in_words(sizes: Sizes) -> str:
    return ", ".join(f"{name} ({right} correct, {wrong} incorrect)" for name, (right, wrong) in sizes.items()) or "none"


def _refit(
    name: str, states_ND: Tensor, fit: Sequence[RepairText], check: Sequence[RepairText], settings: RepairSettings
) -> tuple[EnergyHead, HeadResult]:
    """Train a new head on ``fit`` until the loss on ``check`` stops decreasing, and keep the best epoch. ``states_ND``
    has the features of both, in this order."""
    objective = _Objective.of(fit, states_ND[: len(fit)])
    held_out = _Objective.of(check, states_ND[len(fit) :]) if check else None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_for(settings.seed, "repair", name))
        head = EnergyHead(states_ND.shape[1], dropout=settings.head_dropout)
        torch.manual_seed(seed_for(settings.seed, "repair steps", name))
        optimizer = torch.optim.AdamW(head.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay)
        best_loss, best_epoch, best_train, best, epoch = math.inf, 0, math.nan, dict[str, Tensor](), 0
        for epoch in range(1, settings.max_epochs + 1):
            train_loss, loss = _train_epoch(name, head, objective, optimizer, settings.batch_size), None
            if held_out is not None:
                with torch.no_grad():
                    loss = float(held_out.loss(head.eval(), torch.arange(len(check))))
            if loss is None or loss < best_loss or not best:
                best_loss, best_epoch, best_train = math.inf if loss is None else loss, epoch, train_loss
                best = {key: tensor.clone() for key, tensor in head.state_dict().items()}
            if epoch - best_epoch >= settings.patience:
                break
    head.load_state_dict(best)
    return head.eval(), HeadResult(
        adapter=name,
        num_epochs=epoch,
        best_epoch=best_epoch,
        train_loss=best_train,
        validation_loss=None if held_out is None else best_loss,
    )


def _train_epoch(
    name: str, head: EnergyHead, objective: "_Objective", optimizer: torch.optim.Optimizer, batch_size: int
) -> float:
    """Train for one epoch. Returns the balanced loss, with each batch's part measured before its step."""
    head.train()
    total, size = 0.0, len(objective.weights)
    for rows in torch.split(torch.randperm(size), batch_size):
        loss = objective.loss(head, rows)
        if not torch.isfinite(loss):
            raise ScoringError(f"repair of adapter {name!r}: the loss is {float(loss)}")
        optimizer.zero_grad(set_to_none=True)
        # Scaled to the batch, so that the step size does not depend on the number of batches.
        (loss * (size / len(rows))).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        total += float(loss.detach())
    return total


@dataclass(frozen=True, slots=True, eq=False)
class _Objective:
    """Weighted logistic loss over texts."""

    states_ND: Tensor  # noqa: N815
    signs: Tensor
    """1 for correct, -1 for incorrect."""
    weights: Tensor

    @classmethod
    def of(cls, texts: Sequence[RepairText], states_ND: Tensor) -> "_Objective":
        signs = torch.tensor([1.0 if example.correct else -1.0 for example in texts])
        return cls(states_ND, signs, torch.tensor(cell_weights(texts)))

    def loss(self, head: EnergyHead, rows: Tensor) -> Tensor:
        """Loss over the selected rows. Over all rows it is the balanced mean, in nats."""
        energies = head(self.states_ND[rows])
        # P(correct) = sigmoid(-E): low energies are good.
        return (softplus(energies * self.signs[rows]) * self.weights[rows]).sum()


def _write_ensemble(result: RepairResult, extractor: FeatureExtractor, settings: RepairSettings) -> None:
    """Write the record of the repaired adapters, and a section of their card."""
    facts = {
        "settings": asdict(settings),
        "cells": {name: list(size) for name, size in result.cells.items()},
        "left_out": {name: list(size) for name, size in result.left_out.items()},
        "heads": [asdict(head) for head in result.heads],
    }
    folders = {name: result.folder / name for name in extractor.record.adapters}
    write_ensemble(result.folder, folders, dict(extractor.record.meta) | {"repair": facts})
    losses = ", ".join(
        f"{head.adapter} {head.train_loss:.4f} / "
        + ("-" if head.validation_loss is None else f"{head.validation_loss:.4f}")
        for head in result.heads
    )
    section = (
        "\n## Repair\n\n"
        "The energy heads were trained again on data in which every (generator, label) group weighs the same; adapters "
        "and backbone are as before. The table above describes the training before the repair.\n\n"
        f"Groups: {_in_words(result.cells)}. Left out: {_in_words(result.left_out)}. "
        f"Balanced loss (train / validation, nats): {losses}.\n"
    )
    card = result.folder / CARD_FILE
    card.write_text(card.read_text(encoding="utf-8") + section, encoding="utf-8")


def _trainable_share(extractor: FeatureExtractor) -> float:
    heads = sum(tensor.numel() for adapter in extractor.adapters for tensor in adapter.head.values())
    lora = sum(tensor.numel() for adapter in extractor.adapters for tensor in adapter.lora.values())
    encoder = sum(parameter.numel() for parameter in extractor.backbone.encoder.parameters())
    return heads / (heads + lora + len(extractor.adapters) * encoder)
