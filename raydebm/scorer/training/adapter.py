"""Training of one adapter with its head: Bradley-Terry on pairs, early stopping, resumable after each epoch.

In:   the frozen backbone; groups of texts with pairs, for training and validation; settings.
Out:  an adapter folder (see ``checkpoint``), and one report per epoch with a folder to resume from.
Independent of: Ray, labels, tasks. The caller makes bags and splits.

Training is deterministic on one machine with a fixed number of threads, even if it resumes after an epoch: order and
dropout are seeded per epoch.

Shapes: N distinct texts of a step, P pairs.
"""

import logging
import math
import random
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from raydebm.config import AdapterConfig
from raydebm.errors import CheckpointError, PoolError, ScoringError, TrainingError, in_one_line
from raydebm.identity import content_id, seed_for
from raydebm.scorer.checkpoint import load_tensors, read_record, save_tensors, versions, write_adapter
from raydebm.scorer.checkpoint_records import AdapterRecord, EpochMetrics, Record
from raydebm.scorer.model.backbone import Backbone
from raydebm.scorer.model.batching import MicroBatch, TextEncoder, micro_batches
from raydebm.scorer.model.lora import plain_config
from raydebm.scorer.training.gradient import backward
from raydebm.scorer.training.loss import StepPairs, bradley_terry_loss, num_ordered, step_pairs
from raydebm.scorer.training.member import HEAD, LORA, EnsembleMember, gather, under_prefix
from raydebm.scorer.training.schedule import (
    AdapterData,
    Portion,
    Step,
    data_fingerprint,
    learning_rate_factor,
    plan_steps,
    portions_of,
)
from raydebm.scorer.training.settings import PLACEMENT, TrainingSettings, autocast_dtype, graph_bytes

STATE_FILE = "state.json"
MEMBER_FILE = "member.safetensors"
BEST_FILE = "best.safetensors"
OPTIMIZER_FILE = "optimizer.safetensors"
LOG = logging.getLogger(__name__)
MORE_MEMORY = "lower scorer.micro_batch_tokens, or raise ray.gpus_per_adapter so that fewer adapters share a GPU"


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochReport:
    """One finished epoch. ``checkpoint`` has everything needed to resume."""

    adapter: str
    metrics: EpochMetrics
    is_best: bool
    """Whether the validation loss is the lowest so far; always true without validation pairs."""
    is_last: bool
    """Whether training ends with this epoch, early or not."""
    checkpoint: Path
    """Folder for ``resume_from``, removed at the end of the next epoch or of the training."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterResult:
    """A trained adapter."""

    adapter: str
    folder: Path
    record: AdapterRecord


class ResumeState(Record):
    """Contents of state.json in an epoch's checkpoint."""

    run_fingerprint: str
    """Hash of everything that must be equal to resume."""
    epochs: tuple[EpochMetrics, ...]
    best_epoch: int
    step: int
    is_last: bool
    grad_scale: float


def train_adapter(
    adapter: AdapterConfig,
    data: AdapterData,
    *,
    backbone: Backbone,
    settings: TrainingSettings,
    out_dir: Path,
    report: Callable[[EpochReport], None],
    resume_from: Path | None = None,
) -> AdapterResult:
    """Train one adapter and its head and write its folder.

    Args:
        out_dir: adapter folder to write.
        report: callback after each epoch.
        resume_from: ``checkpoint`` of an earlier report of the same call. Training continues at the next epoch.

    Raises:
        PoolError: there is nothing to train on.
        TrainingError: loss or gradient became NaN or infinite, or a GPU ran out of memory; names adapter and epoch.
        CheckpointError: ``resume_from`` is corrupt or was made with other data or settings.
        OSError: ``out_dir`` cannot be written.
    """
    if not data.train:
        raise PoolError(f"adapter {adapter.name!r}: nothing to train on; sample more candidates per problem")
    devices = [backbone.device] if backbone.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed_for(settings.seed, "adapter", adapter.name))
        run = _AdapterRun(adapter, data, backbone, settings, out_dir)
        if resume_from is not None:
            run.restore(resume_from)
        while not run.is_last:
            report(run.run_epoch())
    return run.finish()


class _AdapterRun:
    """State of one adapter's training."""

    def __init__(
        self, adapter: AdapterConfig, data: AdapterData, backbone: Backbone, settings: TrainingSettings, out_dir: Path
    ) -> None:
        self._adapter, self._backbone, self._settings, self._out_dir = adapter, backbone, settings, out_dir
        self._train, self._validation = list(data.train), list(data.validation)
        self._data = data.fingerprint or data_fingerprint(self._validation)
        self._max_length = min(settings.max_length, backbone.context)
        self._encode_texts()
        autocast = autocast_dtype(settings.dtype, backbone.device)
        self._member = EnsembleMember(
            backbone, adapter, head_dropout=settings.head_dropout, autocast=autocast, pooling=settings.pooling
        )
        self._parameters = [parameter for _, parameter in self._member.trainable()]
        self._optimizer = torch.optim.AdamW(
            self._parameters, lr=settings.learning_rate, weight_decay=settings.weight_decay
        )
        self._scaler = torch.amp.GradScaler(backbone.device.type, enabled=autocast == torch.float16)
        self._plans = [self._plan(epoch) for epoch in range(1, settings.max_epochs + 1)]
        self._num_steps = sum(len(plan) for plan in self._plans)
        self._step = 0
        self._epochs: list[EpochMetrics] = []
        self._best_epoch = 0
        self._best = self._member.trainable_state()
        self.is_last = False

    def _encode_texts(self) -> None:
        encoder = TextEncoder(
            self._backbone.tokenizer, max_length=self._max_length, is_decoder=self._backbone.is_decoder
        )
        texts = [
            (group.prompt, text) for part in (self._train, self._validation) for group in part for text in group.texts
        ]
        encoded = encoder(texts)
        self._num_texts = len(encoded)
        self._num_truncated_texts = sum(text.num_truncated > 0 for text in encoded)
        num_cut = sum(text.answer_read < 1 for text in encoded)
        if 2 * num_cut > len(encoded):
            LOG.warning(
                "adapter %s: %d of %d answers do not fit into the %d tokens that backbone %s reads, and lose their "
                "middle; raise max_length, or name a backbone with a longer context",
                *(self._adapter.name, num_cut, len(encoded), self._max_length, self._backbone.name),
            )
        self._ids = {pair: text.ids for pair, text in zip(texts, encoded, strict=True)}

    def _plan(self, epoch: int) -> list[Step]:
        groups = sorted(self._train, key=lambda group: group.problem_id)
        portions = [portion for group in groups for portion in portions_of(group, batch_size=self._settings.batch_size)]
        random.Random(seed_for(self._settings.seed, "order", self._adapter.name, epoch)).shuffle(portions)
        return plan_steps(portions, batch_size=self._settings.batch_size)

    def run_epoch(self) -> EpochReport:
        epoch = len(self._epochs) + 1
        started = time.perf_counter()
        torch.manual_seed(seed_for(self._settings.seed, "dropout", self._adapter.name, epoch))
        try:
            train_loss = self._train_epoch(epoch)
            validation_loss, accuracy = self._validate(epoch)
        except torch.OutOfMemoryError as error:
            reason = f"epoch {epoch}: {in_one_line(str(error))}; {MORE_MEMORY}"
            raise TrainingError({self._adapter.name: reason}, ()) from error
        metrics = EpochMetrics(
            epoch=epoch,
            train_loss=train_loss,
            validation_loss=validation_loss,
            validation_accuracy=accuracy,
            learning_rate=self._optimizer.param_groups[0]["lr"],
            seconds=time.perf_counter() - started,
        )
        is_best = self._is_best(metrics)
        self._epochs.append(metrics)
        if is_best:
            self._best_epoch, self._best = epoch, self._member.trainable_state()
        self.is_last = epoch == self._settings.max_epochs or epoch - self._best_epoch >= self._settings.patience
        return EpochReport(
            adapter=self._adapter.name,
            metrics=metrics,
            is_best=is_best,
            is_last=self.is_last,
            checkpoint=self._save(epoch),
        )

    def _is_best(self, metrics: EpochMetrics) -> bool:
        if metrics.validation_loss is None or not self._epochs:
            return True
        best = self._epochs[self._best_epoch - 1].validation_loss
        return best is None or metrics.validation_loss < best

    def _train_epoch(self, epoch: int) -> float:
        """Mean loss over the epoch's problems, each with the weights before its step."""
        self._member.train()
        total = 0.0
        plan = self._plans[epoch - 1]
        for index, step in enumerate(plan, start=1):
            factor = learning_rate_factor(self._step, num_steps=self._num_steps, warmup_frac=self._settings.warmup_frac)
            for group in self._optimizer.param_groups:
                group["lr"] = self._settings.learning_rate * factor
            total += self._optimize(step, where=f"epoch {epoch}, step {index} of {len(plan)}") * step.num_problems
            self._step += 1
        return total / len(self._train)

    def _optimize(self, step: Step, *, where: str) -> float:
        try:
            loss = self._backward(step)
        except ScoringError as error:
            raise self._diverged(f"{where}: {error}") from error
        self._scaler.unscale_(self._optimizer)
        norm = torch.nn.utils.clip_grad_norm_(self._parameters, self._settings.max_grad_norm)
        if not self._scaler.is_enabled() and not math.isfinite(float(norm)):
            raise self._diverged(f"{where}: the gradient's norm is {float(norm)}")
        self._scaler.step(self._optimizer)
        self._scaler.update()
        self._optimizer.zero_grad(set_to_none=True)
        return loss

    def _diverged(self, what: str) -> TrainingError:
        reason = f"{what}; try a lower training.learning_rate, or scorer.dtype=float32"
        return TrainingError({self._adapter.name: reason}, ())

    def _backward(self, step: Step) -> float:
        return backward(
            self._member,
            self._batches(step),
            self._pairs(step),
            scaler=self._scaler,
            max_graph_bytes=graph_bytes(self._settings, self._member.device),
        )

    def _pairs(self, step: Step) -> StepPairs:
        return step_pairs(
            [(group.problem_id, len(group.texts), group.pairs) for group in step.groups], device=self._member.device
        )

    def _batches(self, step: Step) -> list[MicroBatch]:
        ids = [self._ids[group.prompt, text] for group in step.groups for text in group.texts]
        return micro_batches(
            ids,
            max_tokens=self._settings.micro_batch_tokens,
            pad_id=int(self._backbone.tokenizer.pad_token_id),
            device=self._backbone.device.type,
        )

    @torch.no_grad()
    def _validate(self, epoch: int) -> tuple[float | None, float | None]:
        """Loss (mean over problems) and share of pairs in the right order. None without validation problems."""
        if not self._validation:
            return None, None
        self._member.eval()
        total_loss, total_ordered, total_pairs = 0.0, 0, 0
        portions = [Portion(group) for group in self._validation]
        for step in plan_steps(portions, batch_size=self._settings.batch_size):
            energies_N, pairs = self._energies(step), self._pairs(step)
            try:
                total_loss += float(bradley_terry_loss(energies_N, pairs)) * len(step.groups)
            except ScoringError as error:
                raise self._diverged(f"validation of epoch {epoch}: {error}") from error
            total_ordered += num_ordered(energies_N, pairs)
            total_pairs += step.num_pairs
        return total_loss / len(self._validation), total_ordered / total_pairs

    def _energies(self, step: Step) -> Tensor:
        batches = self._batches(step)
        return gather([self._member(batch.to(self._member.device)) for batch in batches], batches)

    def _run_fingerprint(self) -> str:
        settings = {key: value for key, value in asdict(self._settings).items() if key not in PLACEMENT}
        data = data_fingerprint(self._train, self._validation)
        return content_id(self._adapter.model_dump(), self._backbone.fingerprint, settings, data)

    def _save(self, epoch: int) -> Path:
        """Write the epoch's checkpoint, state.json last, and delete the previous one."""
        folder = self._out_dir / "epochs" / f"epoch-{epoch}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        save_tensors(folder / MEMBER_FILE, self._member.trainable_state())
        save_tensors(folder / BEST_FILE, self._best)
        moments = {
            f"{index}.{key}": torch.as_tensor(value)
            for index, state in self._optimizer.state_dict()["state"].items()
            for key, value in state.items()
        }
        save_tensors(folder / OPTIMIZER_FILE, moments)
        state = ResumeState(
            run_fingerprint=self._run_fingerprint(),
            epochs=tuple(self._epochs),
            best_epoch=self._best_epoch,
            step=self._step,
            is_last=self.is_last,
            grad_scale=self._scaler.get_scale(),
        )
        (folder / STATE_FILE).write_text(state.model_dump_json(indent=2) + "\n", encoding="utf-8")
        shutil.rmtree(self._out_dir / "epochs" / f"epoch-{epoch - 1}", ignore_errors=True)
        return folder

    def restore(self, folder: Path) -> None:
        """Restore the state at the end of an epoch."""
        state = read_record(folder / STATE_FILE, ResumeState)
        if state.run_fingerprint != self._run_fingerprint():
            raise CheckpointError(
                f"{folder} was made with other data, settings, adapter or backbone than this training of adapter "
                f"{self._adapter.name!r}; remove it to train again"
            )
        self._member.load_trainable_state(load_tensors(folder / MEMBER_FILE))
        self._best = load_tensors(folder / BEST_FILE)
        moments: dict[int, dict[str, Tensor]] = {}
        for key, tensor in load_tensors(folder / OPTIMIZER_FILE).items():
            index, _, name = key.partition(".")
            moments.setdefault(int(index), {})[name] = tensor
        optimizer = self._optimizer.state_dict()
        self._optimizer.load_state_dict({"state": moments, "param_groups": optimizer["param_groups"]})
        if self._scaler.is_enabled():
            self._scaler.load_state_dict(self._scaler.state_dict() | {"scale": state.grad_scale})
        self._epochs, self._best_epoch = list(state.epochs), state.best_epoch
        self._step, self.is_last = state.step, state.is_last

    def finish(self) -> AdapterResult:
        """Write the best epoch's weights as the adapter folder, and delete the epochs' checkpoints."""
        record = AdapterRecord(
            adapter=self._adapter,
            backbone=self._backbone.name,
            backbone_fingerprint=self._backbone.fingerprint,
            data_fingerprint=self._data,
            family=self._backbone.family,
            hidden_size=self._backbone.hidden_size,
            max_length=self._max_length,
            pooling=self._settings.pooling,
            reasoning=self._settings.reasoning,
            settings=asdict(self._settings),
            epochs=tuple(self._epochs),
            best_epoch=self._best_epoch,
            num_train_problems=len(self._train),
            num_train_pairs=sum(len(group.pairs) for group in self._train),
            num_validation_problems=len(self._validation),
            num_validation_pairs=sum(len(group.pairs) for group in self._validation),
            num_truncated_texts=self._num_truncated_texts,
            num_texts=self._num_texts,
            versions=versions(),
        )
        write_adapter(
            self._out_dir,
            record=record,
            config=plain_config(self._member.lora_config, backbone=self._backbone.name),
            lora=under_prefix(self._best, LORA),
            head=under_prefix(self._best, HEAD),
        )
        shutil.rmtree(self._out_dir / "epochs", ignore_errors=True)  # missing if no epoch was left to train
        return AdapterResult(adapter=self._adapter.name, folder=self._out_dir, record=record)
