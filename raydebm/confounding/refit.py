"""Repair: the energy heads trained again on group-balanced data, everything else frozen (DFR; Kirichenko et al. 2023).

A scorer that has learned who writes well can often still see what is written well: only its last layers prefer the
first. Where every (generator, label) group weighs the same, knowing the generator is worth nothing, and heads that are
trained there use the rest.

In:   the features of a checkpoint; labelled texts with their generators, for training and for early stopping.
Out:  a new checkpoint folder of the same form, with other heads, and a record of what was done.
Does not know: Ray, tasks, pools, metrics.

Shapes: N texts, P pairs, D hidden size, K adapters.
"""

import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import softplus

from raydebm.confounding.balance import (
    RepairText,
    _cell_size,
    _sizes_text,
    balanced_cells,
    balanced_pairs,
    cell_weights,
    check_split,
)
from raydebm.confounding.features import FeatureExtractor
from raydebm.errors import ConfigError, PoolError, ScoringError
from raydebm.identity import seed_for
from raydebm.scorer.checkpoint import (
    CARD_FILE,
    StoredAdapter,
    write_adapter,
    write_ensemble,
)
from raydebm.scorer.checkpoint_records import EnsembleRecord
from raydebm.scorer.ensemble import head_of
from raydebm.scorer.model.head import EnergyHead

Balance = Literal["cells", "pairs"]
MAX_WHOLE_STEPS = 10
"""Steps of an epoch whose steps see all texts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairSettings:
    """How the heads are trained."""

    balance: Balance = "cells"
    """``cells``: logistic loss of each text's label, all (generator, label) cells of equal weight (paper).
    ``pairs``: Bradley-Terry within problems, "a beats b" and "b beats a" of equal weight for each two generators."""
    cap: int = 396
    """Texts of one cell at most (paper); drawn by the seed."""
    min_cell: int = 8
    """A generator with a smaller cell is left out: there, its name still tells the label."""
    equalise: float = 0.0
    """With ``cells``: weight of a penalty on what balancing leaves, the variance over generators of their mean
    energies among correct and among incorrect texts, in units of the squared gap between the two. 0: none (paper). A
    second training, from the balanced heads, whose steps see all texts."""
    from_scratch: bool = True
    """Fresh heads; False goes on from the trained ones."""
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    head_dropout: float = 0.2
    batch_size: int = 256
    """Texts (or pairs) of an optimiser step."""
    max_epochs: int = 100
    patience: int = 10
    """Epochs without a better validation loss."""
    seed: int = 0

    def __post_init__(self) -> None:
        for field in ("cap", "min_cell", "batch_size", "max_epochs", "patience"):
            if getattr(self, field) < 1:
                raise ConfigError(f"repair setting {field} must be at least 1, got {getattr(self, field)}")
        if not self.equalise >= 0 or (self.equalise and self.balance != "cells"):  # written so that NaN fails too
            raise ConfigError(
                f"repair setting equalise must be at least 0, and 0 with balance: pairs; got {self.equalise}"
            )
        if not self.learning_rate > 0:
            raise ConfigError(f"repair setting learning_rate must be above 0, got {self.learning_rate}")


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
    """A repaired checkpoint."""

    folder: Path
    record: EnsembleRecord
    cells: Mapping[str, tuple[int, int]]
    """Generator -> (correct, incorrect) texts that were used."""
    left_out: Mapping[str, tuple[int, int]]
    """Generators with too small a cell, and what they had."""
    heads: tuple[HeadResult, ...]
    trainable_share: float
    """Parameters of the heads over all parameters of the ensemble (the paper: 0.4 %, which counts the backbone once
    an adapter)."""


def repair_heads(
    extractor: FeatureExtractor,
    out: Path,
    *,
    train: Sequence[RepairText],
    validation: Sequence[RepairText] = (),
    settings: RepairSettings,
) -> RepairResult:
    """Refit every head of a checkpoint and write the repaired checkpoint to ``out``.

    The same call gives the same heads (on one machine, with one number of threads).

    Args:
        extractor: of the checkpoint.
        train: problems of ``validation`` and of the test must not be among them.
        validation: balanced in the same way, for early stopping; without any, all epochs run and the last is kept.

    Raises:
        PoolError: fewer than two generators have both labels, or nothing can be paired; problems are on both sides.
        ScoringError: a loss became NaN or infinite.
        ConfigError: ``out`` is the checkpoint itself.
    """
    if out.resolve() == extractor.folder.resolve():
        raise ConfigError(f"repair writes a new checkpoint; {str(out)!r} is the one that is to be repaired")
    check_split(train, validation)
    options = {"cap": settings.cap, "min_cell": settings.min_cell, "seed": settings.seed}
    fit, left_out = balanced_cells(train, **options)
    if len({example.generator for example in fit}) < 2:
        raise PoolError(
            f"repair needs at least two generators with {settings.min_cell} correct and {settings.min_cell} incorrect "
            f"answers each; left out: {_sizes_text(left_out)}"
        )
    generators = {example.generator for example in fit}
    check = [example for example in validation if example.generator in generators]
    states = extractor.states([(example.prompt, example.text) for example in (*fit, *check)])
    heads: list[HeadResult] = []
    shutil.rmtree(out, ignore_errors=True)
    for adapter, states_ND in zip(extractor.adapters, states, strict=True):
        trainer = _HeadTrainer(adapter, states_ND, fit=fit, check=check, settings=settings)
        heads.append(trainer.run())
        _write(out / heads[-1].adapter, adapter, trainer.head, heads[-1], settings)
    cells = {name: _cell_size(fit, name) for name in sorted(generators)}
    record = _gather(out, extractor, settings=settings, cells=cells, left_out=left_out, heads=heads)
    return RepairResult(
        folder=out,
        record=record,
        cells=cells,
        left_out=left_out,
        heads=tuple(heads),
        trainable_share=_trainable_share(extractor),
    )


class _HeadTrainer:
    """One head on fixed features: rows of ``fit``, then rows of ``check``."""

    def __init__(
        self,
        adapter: StoredAdapter,
        states_ND: Tensor,
        *,
        fit: Sequence[RepairText],
        check: Sequence[RepairText],
        settings: RepairSettings,
    ) -> None:
        self._name = adapter.record.adapter.name
        self._settings = settings
        self._fit_ND, self._check_ND = states_ND[: len(fit)], states_ND[len(fit) :]
        self._fit = _Objective.of(fit, settings)
        # A validation part without anything to compare cannot stop the training.
        self._check = _Objective.of(check, settings) if check else None
        if not len(self._fit.weights):
            raise PoolError("repair: no two generators beat each other in both directions; use balance: cells")
        if self._check is not None and not len(self._check.weights):
            self._check = None
        size = states_ND.shape[1]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed_for(settings.seed, "repair", self._name))
            fresh = EnergyHead(size, dropout=settings.head_dropout)
            trained = head_of(adapter, hidden_size=size, dropout=settings.head_dropout)
        self.head = fresh if settings.from_scratch else trained

    def run(self) -> HeadResult:
        settings = self._settings
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed_for(settings.seed, "repair steps", self._name))
            result = self._train(equalise=0.0)
            # On the balanced head, because among the tiny energies of a fresh one the penalty has no scale to work on.
            return self._train(equalise=settings.equalise, after=result.num_epochs) if settings.equalise else result

    def _train(self, *, equalise: float, after: int = 0) -> HeadResult:
        settings = self._settings
        optimizer = torch.optim.AdamW(
            self.head.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay
        )
        best_loss, best_epoch, best_train = math.inf, 0, math.nan
        best = {key: tensor.clone() for key, tensor in self.head.state_dict().items()}
        epoch = 0
        for epoch in range(1, settings.max_epochs + 1):
            train_loss = self._epoch(optimizer, equalise)
            loss = self._validate(equalise)
            if loss is None or loss < best_loss:
                best_loss, best_epoch, best_train = (math.inf if loss is None else loss), epoch, train_loss
                best = {key: tensor.clone() for key, tensor in self.head.state_dict().items()}
            if epoch - best_epoch >= settings.patience:
                break
        self.head.load_state_dict(best)
        self.head.eval()
        return HeadResult(
            adapter=self._name,
            num_epochs=after + epoch,
            best_epoch=after + best_epoch,
            train_loss=best_train,
            validation_loss=None if self._check is None else best_loss,
        )

    def _epoch(self, optimizer: torch.optim.Optimizer, equalise: float) -> float:
        """Balanced loss over the epoch, each part as it was when its step ran."""
        self.head.train()
        total, size = 0.0, len(self._fit.weights)
        steps = self._steps(size, whole=equalise > 0)
        for rows in steps:
            loss = self._fit.loss(self.head, self._fit_ND, rows, equalise=equalise)
            if not torch.isfinite(loss):
                raise ScoringError(
                    f"repair of adapter {self._name!r}: the loss is {float(loss)}; try a lower learning_rate"
                )
            optimizer.zero_grad(set_to_none=True)
            # As if the step were the whole, so that the step's size does not depend on the number of steps.
            (loss * (size / len(rows))).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            total += float(loss.detach())
        return total / len(steps) if equalise else total

    def _steps(self, size: int, *, whole: bool) -> list[Tensor]:
        """The rows of each step of an epoch: every row once, or all rows in every step."""
        if whole:
            return [torch.arange(size)] * min(math.ceil(size / self._settings.batch_size), MAX_WHOLE_STEPS)
        return list(torch.split(torch.randperm(size), self._settings.batch_size))

    @torch.no_grad()
    def _validate(self, equalise: float) -> float | None:
        if self._check is None:
            return None
        self.head.eval()
        rows = torch.arange(len(self._check.weights))
        return float(self._check.loss(self.head, self._check_ND, rows, equalise=equalise))


@dataclass(frozen=True, slots=True, eq=False)
class _Objective:
    """A weighted sum over texts, or over pairs of texts."""

    first: Tensor
    """Positions of texts: of the correct ones of pairs, or of all texts, shape (P,) or (N,)."""
    second: Tensor | None
    """Positions of the incorrect ones; None for texts by themselves."""
    signs: Tensor
    """Signs of the texts, one by one: 1 for correct, -1 for incorrect."""
    weights: Tensor
    cells: Tensor | None = None
    """Shape (2 * generators, N): takes energies to the cells' means, correct ones first."""

    @classmethod
    def of(cls, texts: Sequence[RepairText], settings: RepairSettings) -> "_Objective":
        if settings.balance == "cells":
            signs = torch.tensor([1.0 if example.correct else -1.0 for example in texts])
            cells = _cell_means(texts) if settings.equalise else None
            return cls(torch.arange(len(texts)), None, signs, torch.tensor(cell_weights(texts)), cells)
        pairs, weights = balanced_pairs(texts)
        first = torch.tensor([chosen for chosen, _ in pairs], dtype=torch.long)
        second = torch.tensor([rejected for _, rejected in pairs], dtype=torch.long)
        return cls(first, second, torch.ones(len(pairs)), torch.tensor(weights))

    def loss(self, head: EnergyHead, states_ND: Tensor, rows: Tensor, *, equalise: float) -> Tensor:
        """Over the chosen rows; over all of them it is the balanced mean, in nats. All rows where ``equalise`` > 0."""
        energies = head(states_ND[self.first[rows]])
        if self.second is not None:
            energies = energies - head(states_ND[self.second[rows]])
        # P(correct) = sigmoid(-E): a low energy is a good answer.
        loss = (softplus(energies * self.signs[rows]) * self.weights[rows]).sum()
        if self.cells is None or equalise == 0:
            return loss
        return loss + equalise * _inequality(self.cells[:, rows] @ energies)


def _cell_means(texts: Sequence[RepairText]) -> Tensor | None:
    """None with fewer than two generators that have both labels."""
    both = sorted(
        set.intersection(
            *({example.generator for example in texts if example.correct is label} for label in (True, False))
        )
    )
    if len(both) < 2:
        return None
    rows = [
        [float(example.generator == name and example.correct is label) for example in texts]
        for label in (True, False)
        for name in both
    ]
    members = torch.tensor(rows)
    return members / members.sum(dim=1, keepdim=True)


def _inequality(means: Tensor) -> Tensor:
    """Variance of the cells' means around their label's mean, over the squared gap between the labels."""
    by_label = means.reshape(2, -1)
    centres = by_label.mean(dim=1, keepdim=True)
    # The gap is a unit here and no goal. Clamped far below any scale in use, or small energies would be a way out.
    gap = (centres[1] - centres[0]).detach()
    return (by_label - centres).pow(2).mean() / gap.pow(2).sum().clamp(min=1e-8)


def _write(
    folder: Path, adapter: StoredAdapter, head: EnergyHead, result: HeadResult, settings: RepairSettings
) -> None:
    repaired = {"settings": asdict(settings), "result": asdict(result)}
    # The head is as its own loss left it: nothing was multiplied afterwards.
    changes = {"settings": adapter.record.settings | {"repair": repaired}, "scale": 1.0, "offset": 0.0}
    record = adapter.record.model_copy(update=changes)
    write_adapter(folder, record=record, config=adapter.peft_config, lora=adapter.lora, head=head.state_dict())


def _gather(
    out: Path,
    extractor: FeatureExtractor,
    *,
    settings: RepairSettings,
    cells: Mapping[str, tuple[int, int]],
    left_out: Mapping[str, tuple[int, int]],
    heads: Sequence[HeadResult],
) -> EnsembleRecord:
    facts: dict[str, Any] = {
        "settings": asdict(settings),
        "cells": {name: list(size) for name, size in cells.items()},
        "left_out": {name: list(size) for name, size in left_out.items()},
        "heads": [asdict(head) for head in heads],
    }
    folders = {name: out / name for name in extractor.record.adapters}
    record = write_ensemble(out, folders, dict(extractor.record.meta) | {"repair": facts})
    card = out / CARD_FILE
    card.write_text(card.read_text(encoding="utf-8") + _card_section(cells, left_out, heads), encoding="utf-8")
    return record


def _card_section(
    cells: Mapping[str, tuple[int, int]], left_out: Mapping[str, tuple[int, int]], heads: Sequence[HeadResult]
) -> str:
    losses = ", ".join(f"{head.adapter} {head.train_loss:.4f} / {_figure(head.validation_loss)}" for head in heads)
    return (
        "\n## Repair\n\n"
        "The energy heads were trained again on data in which every (generator, label) group weighs the same; adapters "
        "and backbone are as before. The table above describes the training before the repair.\n\n"
        f"Groups: {_sizes_text(cells)}. Left out: {_sizes_text(left_out)}. "
        f"Balanced loss (train / validation, nats): {losses}.\n"
    )


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _trainable_share(extractor: FeatureExtractor) -> float:
    heads = sum(tensor.numel() for adapter in extractor.adapters for tensor in adapter.head.values())
    lora = sum(tensor.numel() for adapter in extractor.adapters for tensor in adapter.lora.values())
    return heads / (heads + extractor.num_backbone_parameters + lora)
