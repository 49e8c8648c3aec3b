"""Distillation: one adapter learns what an ensemble says of a text, so that one forward pass takes the place of K.

In:   texts with the ensemble's mu and sigma; the ensemble's record.
Out:  two member folders, ``low`` and ``high``, of one adapter and two heads. They say mu - sigma and mu + sigma, so
      that mean and population standard deviation of the two are what was learnt of mu and sigma, and nothing that reads
      an ensemble has to know that it was distilled. Scoring runs the encoder once for members of equal adapters.
Does not know: Ray, labels, tasks.

The loss is the squared error of both heads in units of the spread of mu over the texts. Every text of every problem
counts, labelled or not. (Ensemble distribution distillation, Malinin et al., arXiv 1905.00076, learns the members'
distribution likewise; two quantities are enough for what is decided here.)

Shapes: N texts of a step, D hidden size.
"""

import copy
import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from raydebm.config import AdapterConfig
from raydebm.errors import PoolError, TrainingError
from raydebm.identity import seed_for
from raydebm.scorer.checkpoint import versions, write_adapter
from raydebm.scorer.checkpoint_records import AdapterRecord, EnsembleRecord, EpochMetrics
from raydebm.scorer.model.backbone import Backbone
from raydebm.scorer.model.batching import EncodedText, MicroBatch, TextEncoder, micro_batches
from raydebm.scorer.model.head import rescaled
from raydebm.scorer.model.lora import plain_config
from raydebm.scorer.training.gradient import backward
from raydebm.scorer.training.member import HEAD, LORA, EnsembleMember, gather, part
from raydebm.scorer.training.schedule import learning_rate_factor
from raydebm.scorer.training.settings import TrainingSettings, autocast_dtype, graph_bytes

LOW, HIGH = "low", "high"
"""Names of the two members."""
_HIGH_HEAD = "high."


@dataclass(frozen=True, slots=True, kw_only=True)
class TaughtText:
    """A text and what the ensemble says of it."""

    problem_id: str
    prompt: str
    text: str
    mu: float
    sigma: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TaughtTexts:
    """Texts to learn from, and texts of other problems."""

    train: Sequence[TaughtText]
    """A step takes whole problems, ``batch_size`` texts or more."""
    held_out: Sequence[TaughtText]
    """They choose the epoch and end the training; without any, the last epoch is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Student:
    """A distilled ensemble."""

    folders: dict[str, Path]
    """Member -> its folder, for ``checkpoint.write_ensemble``."""
    epochs: tuple[EpochMetrics, ...]
    """Losses: mean squared error of both heads, in squared standard deviations of mu."""
    best_epoch: int


def distill(
    texts: TaughtTexts,
    *,
    teacher: EnsembleRecord,
    adapter: AdapterConfig,
    backbone: Backbone,
    settings: TrainingSettings,
    out_dir: Path,
    report: Callable[[EpochMetrics], None] = lambda metrics: None,
) -> Student:
    """Train the student and write its two members below ``out_dir``.

    Args:
        teacher: the ensemble.
        adapter: the student's one adapter, whatever its name.
        backbone: the student's, which may be another one than the ensemble's.
        report: called after each epoch.

    Raises:
        PoolError: there is nothing to learn from.
        TrainingError: the loss became NaN or infinite.
    """
    if not texts.train:
        raise PoolError("distillation: no text has energies of the ensemble; run `raydebm score` first")
    max_length = min(settings.max_length, backbone.context)
    settings = replace(settings, max_length=max_length, reasoning=teacher.reasoning, scaled=False)
    devices = [backbone.device] if backbone.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed_for(settings.seed, "distillation"))
        run = _Distillation(texts, adapter=adapter, backbone=backbone, settings=settings)
        while not run.is_finished:
            report(run.run_epoch())
    return run.finish(out_dir, teacher)


class _TwoHeads(EnsembleMember):
    """Energies (B, 2) of one adapter: mu - sigma and mu + sigma."""

    def __init__(self, backbone: Backbone, adapter: AdapterConfig, *, settings: TrainingSettings) -> None:
        autocast = autocast_dtype(settings.dtype, backbone.device)
        super().__init__(
            backbone, adapter, head_dropout=settings.head_dropout, autocast=autocast, pooling=settings.pooling
        )
        self.high = copy.deepcopy(self.head)

    def forward(self, batch: MicroBatch) -> Tensor:
        features_BD = self.features(batch)
        return torch.stack([self.head(features_BD), self.high(features_BD)], dim=-1)

    def trainable_state(self) -> dict[str, Tensor]:
        high = {_HIGH_HEAD + key: tensor.detach().cpu().clone() for key, tensor in self.high.state_dict().items()}
        return super().trainable_state() | high


def _squared_error(energies_N2: Tensor, target_N2: Tensor) -> Tensor:
    return ((energies_N2 - target_N2) ** 2).mean()


class _Distillation:
    """The state of one distillation."""

    def __init__(
        self,
        texts: TaughtTexts,
        *,
        adapter: AdapterConfig,
        backbone: Backbone,
        settings: TrainingSettings,
    ) -> None:
        self._adapter, self._backbone, self._settings = adapter, backbone, settings
        mu_N = torch.tensor([text.mu for text in texts.train])
        self._center, self._scale = float(mu_N.mean()), max(float(mu_N.std(correction=0)), 1e-6)
        encoder = TextEncoder(backbone.tokenizer, max_length=settings.max_length, is_decoder=backbone.is_decoder)
        self._problems = [self._encoded(problem, encoder) for problem in _by_problem(texts.train)]
        self._held_out = [self._encoded(problem, encoder) for problem in _by_problem(texts.held_out)]
        self._member = _TwoHeads(backbone, adapter, settings=settings)
        self._parameters = [parameter for _, parameter in self._member.trainable()]
        self._optimizer = torch.optim.AdamW(
            self._parameters, lr=settings.learning_rate, weight_decay=settings.weight_decay
        )
        autocast = autocast_dtype(settings.dtype, backbone.device)
        self._scaler = torch.amp.GradScaler(backbone.device.type, enabled=autocast == torch.float16)
        self._plans = [self._plan(epoch) for epoch in range(1, settings.max_epochs + 1)]
        self._num_steps = sum(map(len, self._plans))
        self._step = self._best_epoch = 0
        self._epochs: list[EpochMetrics] = []
        self._best = self._member.trainable_state()

    @property
    def is_finished(self) -> bool:
        done = len(self._epochs)
        return done == self._settings.max_epochs or (done > 0 and done - self._best_epoch >= self._settings.patience)

    def _encoded(self, texts: Sequence[TaughtText], encoder: TextEncoder) -> tuple[list[EncodedText], Tensor]:
        targets = [
            [(text.mu - text.sigma - self._center) / self._scale, (text.mu + text.sigma - self._center) / self._scale]
            for text in texts
        ]
        return encoder([(text.prompt, text.text) for text in texts]), torch.tensor(targets)

    def _plan(self, epoch: int) -> list[list[int]]:
        """Steps of an epoch: places of problems, whole ones until a step has enough texts."""
        order = list(range(len(self._problems)))
        random.Random(seed_for(self._settings.seed, "distillation", epoch)).shuffle(order)
        steps: list[list[int]] = [[]]
        for place in order:
            if sum(len(self._problems[other][0]) for other in steps[-1]) >= self._settings.batch_size:
                steps.append([])
            steps[-1].append(place)
        return steps

    def run_epoch(self) -> EpochMetrics:
        epoch, started = len(self._epochs) + 1, time.perf_counter()
        torch.manual_seed(seed_for(self._settings.seed, "distillation dropout", epoch))
        self._member.train()
        steps = [[self._problems[place] for place in step] for step in self._plans[epoch - 1]]
        errors = [self._optimize(step) * sum(len(texts) for texts, _ in step) for step in steps]
        validation = self._validate()
        metrics = EpochMetrics(
            epoch=epoch,
            train_loss=math.fsum(errors) / sum(len(texts) for texts, _ in self._problems),
            validation_loss=validation,
            validation_accuracy=None,
            learning_rate=self._optimizer.param_groups[0]["lr"],
            seconds=time.perf_counter() - started,
        )
        best = self._epochs[self._best_epoch - 1].validation_loss if self._epochs else None
        if best is None or validation is None or validation < best:
            self._best_epoch, self._best = epoch, self._member.trainable_state()
        self._epochs.append(metrics)
        return metrics

    def _optimize(self, problems: Sequence[tuple[list[EncodedText], Tensor]]) -> float:
        factor = learning_rate_factor(self._step, num_steps=self._num_steps, warmup_frac=self._settings.warmup_frac)
        for group in self._optimizer.param_groups:
            group["lr"] = self._settings.learning_rate * factor
        loss = backward(
            self._member,
            self._batches(problems),
            torch.cat([target for _, target in problems]).to(self._member.device),
            loss_of=_squared_error,
            scaler=self._scaler,
            max_graph_bytes=graph_bytes(self._settings, self._member.device),
        )
        if not math.isfinite(loss):
            reason = f"step {self._step + 1}: the loss is {loss}; try a lower training.learning_rate"
            raise TrainingError({self._adapter.name: reason}, ())
        self._scaler.unscale_(self._optimizer)
        torch.nn.utils.clip_grad_norm_(self._parameters, self._settings.max_grad_norm)
        self._scaler.step(self._optimizer)
        self._scaler.update()
        self._optimizer.zero_grad(set_to_none=True)
        self._step += 1
        return loss

    def _batches(self, problems: Sequence[tuple[list[EncodedText], Tensor]]) -> list[MicroBatch]:
        ids = [text.ids for texts, _ in problems for text in texts]
        pad_id = int(self._backbone.tokenizer.pad_token_id)
        return micro_batches(ids, max_tokens=self._settings.micro_batch_tokens, pad_id=pad_id)

    @torch.no_grad()
    def _validate(self) -> float | None:
        if not self._held_out:
            return None
        self._member.eval()
        batches = self._batches(self._held_out)
        energies_N2 = gather([self._member(batch.to(self._member.device)) for batch in batches], batches)
        return float(_squared_error(energies_N2.cpu(), torch.cat([target for _, target in self._held_out])))

    def finish(self, out_dir: Path, teacher: EnsembleRecord) -> Student:
        """Write the best epoch's weights, with the heads in the ensemble's own units."""
        encoded = [text for texts, _ in (*self._problems, *self._held_out) for text in texts]
        folders = {}
        for name, prefix in ((LOW, HEAD), (HIGH, _HIGH_HEAD)):
            head = rescaled(part(self._best, prefix), scale=self._scale, shift=self._center)
            adapter = self._adapter.without_own_settings().model_copy(update={"name": name})
            record = AdapterRecord(
                adapter=adapter,
                backbone=self._backbone.name,
                backbone_fingerprint=self._backbone.fingerprint,
                data_fingerprint=teacher.data_fingerprint,
                family=self._backbone.family,
                hidden_size=self._backbone.hidden_size,
                max_length=self._settings.max_length,
                pooling=self._settings.pooling,
                reasoning=teacher.reasoning,
                settings=asdict(self._settings),
                epochs=tuple(self._epochs),
                best_epoch=self._best_epoch,
                num_train_problems=len(self._problems),
                num_train_pairs=0,
                num_validation_problems=len(self._held_out),
                num_validation_pairs=0,
                num_truncated_texts=sum(text.num_truncated > 0 for text in encoded),
                num_texts=len(encoded),
                versions=versions(),
            )
            config = plain_config(self._member.lora_config, backbone=self._backbone.name)
            write_adapter(out_dir / name, record=record, config=config, lora=part(self._best, LORA), head=head)
            folders[name] = out_dir / name
        return Student(folders=folders, epochs=tuple(self._epochs), best_epoch=self._best_epoch)


def _by_problem(texts: Sequence[TaughtText]) -> list[list[TaughtText]]:
    problems: dict[str, list[TaughtText]] = {}
    for text in texts:
        problems.setdefault(text.problem_id, []).append(text)
    return [problems[problem_id] for problem_id in sorted(problems)]
