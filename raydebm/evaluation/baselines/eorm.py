"""EORM (Jiang et al., 2025): a small transformer trained from scratch that assigns an energy to a solution.

Architecture and training follow the authors' released code: token embeddings times sqrt(D) without positions, pre-norm
encoder layers, the first token's state through LayerNorm -> Linear -> GELU -> Linear; Bradley-Terry over all pairs of a
problem, one problem per step, AdamW, cosine with warm-up, the epoch with the highest validation accuracy. With the
GPT-2 vocabulary it has 53.4 million parameters. One difference: a long input is cut in the middle of its problem and
of its answer (``batching.fitted``), whereas the released code cuts its end, which may be the whole answer.

Shapes: B texts of a micro-batch, T tokens, D hidden size.
"""

import math
import random
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from raydebm.errors import CheckpointError, PoolError
from raydebm.evaluation.baselines.protocol import PoolTexts, TextScore, flattened, regrouped
from raydebm.identity import seed_for
from raydebm.pretrained import ModelSource
from raydebm.scorer.checkpoint import load_tensors, read_record, save_tensors
from raydebm.scorer.checkpoint_records import Record
from raydebm.scorer.model.backbone import resolve_backbone, resolve_device
from raydebm.scorer.model.batching import MicroBatch, fitted, ids_of_pairs, micro_batches
from raydebm.scorer.pairs import TrainingGroup
from raydebm.scorer.training.loss import bradley_terry_loss, step_pairs
from raydebm.scorer.training.member import gather
from raydebm.scorer.training.schedule import data_fingerprint, learning_rate_factor

RECORD_FILE = "eorm.json"
WEIGHTS_FILE = "eorm.safetensors"
NUM_LAYERS, NUM_HEADS, DROPOUT, WEIGHT_DECAY, WARMUP_FRAC = 2, 4, 0.2, 0.01, 0.1
"""Values of the authors' released code."""
MICRO_BATCH_TOKENS = 8192
NUM_SPECIAL = 2
"""[CLS] before the problem and [SEP] after it."""


class EormSize(Record):
    """Size and training of a model. The defaults are those of the authors' released code."""

    tokenizer: str = "gpt2"
    """Hub name, local folder, ``embedded:<name>`` or ``package:minilm``."""
    hidden_size: int = 768
    max_length: int = 2048
    """Maximum input in tokens. Longer texts are cut as for the scorer (docs/training.md)."""
    learning_rate: float = 5e-5
    max_epochs: int = 20


SIZES: Mapping[str, EormSize] = {
    "published": EormSize(),
    # Four epochs, because it overfits from the third one on (docs/log/eorm.md).
    "small": EormSize(tokenizer="package:minilm", hidden_size=128, max_length=512, learning_rate=3e-4, max_epochs=4),
}


class EormEpoch(Record):
    epoch: int
    train_loss: float
    """Training loss in nats; ln 2 is chance."""
    validation_accuracy: float | None
    """Share of validation problems in which a correct candidate has the lowest energy. None without validation
    problems."""


class EormRecord(Record):
    """Contents of eorm.json, which is written last."""

    format: int = 2
    size: EormSize
    data_fingerprint: str
    vocabulary: int
    epochs: tuple[EormEpoch, ...]
    best_epoch: int
    num_train_problems: int
    num_train_pairs: int
    num_validation_problems: int
    num_parameters: int


class EormModel(nn.Module):
    """Energies of token ids. Lower is better."""

    def __init__(self, *, hidden_size: int, vocabulary: int) -> None:
        super().__init__()
        size = hidden_size
        self._scale = math.sqrt(size)
        self.embedding = nn.Embedding(vocabulary, size)
        layer = nn.TransformerEncoderLayer(
            size, NUM_HEADS, dim_feedforward=4 * size, dropout=DROPOUT, activation="gelu",
            batch_first=True, norm_first=True,
        )  # fmt: skip
        self.encoder = nn.TransformerEncoder(layer, NUM_LAYERS, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.LayerNorm(size), nn.Linear(size, size), nn.GELU(), nn.Linear(size, 1))

    def forward(self, batch: MicroBatch) -> Tensor:
        """Energies, shape (B,)."""
        embedded_BTD = self.embedding(batch.ids) * self._scale  # noqa: N806
        hidden_BTD = self.encoder(embedded_BTD, src_key_padding_mask=batch.mask == 0)  # noqa: N806
        energies_B: Tensor = self.head(hidden_BTD[:, 0]).squeeze(-1)  # noqa: N806
        return energies_B


class _EormTexts:
    """Token ids of ``[CLS] problem [SEP] candidate``. GPT-2's single special token is used for both marks, as
    published."""

    def __init__(self, name: str, size: EormSize) -> None:
        source = ModelSource(
            called=f"baseline {name!r}: tokenizer {size.tokenizer!r}",
            place=resolve_backbone(size.tokenizer),
            remedy="Check the network, or give a local folder or package:minilm",
        )
        self._tokenizer: Any = source.tokenizer()
        tokenizer = self._tokenizer
        self.cls = _first(tokenizer.bos_token_id, tokenizer.cls_token_id, tokenizer.eos_token_id)
        self.sep = _first(tokenizer.eos_token_id, tokenizer.sep_token_id)
        self.pad = _first(tokenizer.pad_token_id, self.sep)
        self.vocabulary = len(tokenizer)
        self._room = size.max_length - NUM_SPECIAL

    def __call__(self, texts: Sequence[tuple[str, str]]) -> list[Sequence[int]]:
        return [self._join(*ids) for ids in ids_of_pairs(self._tokenizer, texts)]

    def _join(self, whole: Sequence[int], request: Sequence[int], answer: Sequence[int]) -> Sequence[int]:
        problem, answer = fitted(whole, answer, self._room, request=request)
        return array("i", (self.cls, *problem, self.sep, *answer))


def _first(*ids: int | None) -> int:
    for token_id in ids:
        if token_id is not None:
            return token_id
    raise CheckpointError("EORM's tokenizer needs an EOS token, or [SEP] with BOS or [CLS]; choose another")


def train_eorm(
    name: str,
    size: EormSize,
    *,
    train: Sequence[TrainingGroup],
    validation: Sequence[TrainingGroup],
    folder: Path,
) -> EormRecord:
    """Train from scratch and write the best epoch's weights. Deterministic on one machine.

    Args:
        name: Name of the baseline in messages.
        train: Problems with all their pairs.
        validation: Problems by whose accuracy the epoch is chosen. If empty, the last epoch is stored.

    Raises:
        PoolError: there is nothing to train on.
        ScoringError: the loss became NaN or infinite.
        CheckpointError: the tokenizer cannot be read.
    """
    if not train:
        raise PoolError(f"baseline {name!r}: no pairs to train on; sample more candidates per problem")
    device = resolve_device("auto")
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed_for(0, "eorm"))
        return _Training(size, _EormTexts(name, size), train, validation, device).run(folder)


class _Training:
    def __init__(
        self,
        size: EormSize,
        texts: _EormTexts,
        train: Sequence[TrainingGroup],
        validation: Sequence[TrainingGroup],
        device: torch.device,
    ) -> None:
        self._size, self._texts, self._device = size, texts, device
        self._train, self._validation = list(train), list(validation)
        pairs = [(group.prompt, text) for group in (*train, *validation) for text in group.texts]
        self._ids = dict(zip(pairs, self._texts(pairs), strict=True))
        self._model = EormModel(hidden_size=size.hidden_size, vocabulary=texts.vocabulary).to(device)
        self._optimizer = torch.optim.AdamW(
            self._model.parameters(), lr=size.learning_rate, weight_decay=WEIGHT_DECAY, fused=True
        )
        self._step = 0

    def run(self, folder: Path) -> EormRecord:
        epochs: list[EormEpoch] = []
        best_epoch, best = 0, dict[str, Tensor]()
        for epoch in range(1, self._size.max_epochs + 1):
            loss = self._train_epoch(epoch)
            accuracy = self._accuracy()
            epochs.append(EormEpoch(epoch=epoch, train_loss=loss, validation_accuracy=accuracy))
            before = epochs[best_epoch - 1].validation_accuracy if best_epoch else None
            if accuracy is None or before is None or accuracy > before:
                best_epoch = epoch
                best = {key: tensor.detach().cpu().clone() for key, tensor in self._model.state_dict().items()}
        return self._write(folder, epochs, best_epoch, best)

    def _train_epoch(self, epoch: int) -> float:
        self._model.train()
        groups = sorted(self._train, key=lambda group: group.problem_id)
        random.Random(seed_for(0, "eorm", "order", epoch)).shuffle(groups)
        total, num_steps = 0.0, len(groups) * self._size.max_epochs
        for group in groups:
            factor = learning_rate_factor(self._step, num_steps=num_steps, warmup_frac=WARMUP_FRAC)
            for parameters in self._optimizer.param_groups:
                parameters["lr"] = self._size.learning_rate * factor
            pairs = step_pairs([(group.problem_id, len(group.texts), group.pairs)], device=self._device)
            loss = bradley_terry_loss(self._energies([group]), pairs)
            self._optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
            self._optimizer.step()
            total += float(loss.detach())
            self._step += 1
        return total / len(groups)

    def _energies(self, groups: Sequence[TrainingGroup]) -> Tensor:
        ids = [self._ids[group.prompt, text] for group in groups for text in group.texts]
        batches = micro_batches(ids, max_tokens=MICRO_BATCH_TOKENS, pad_id=self._texts.pad)
        return gather([self._model(batch.to(self._device)) for batch in batches], batches)

    @torch.no_grad()
    def _accuracy(self) -> float | None:
        if not self._validation:
            return None
        self._model.eval()
        won = 0
        for group in self._validation:
            picked = int(self._energies([group]).argmin())
            won += picked in {chosen for chosen, _ in group.pairs}
        return won / len(self._validation)

    def _write(self, folder: Path, epochs: Sequence[EormEpoch], best_epoch: int, best: dict[str, Tensor]) -> EormRecord:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / RECORD_FILE).unlink(missing_ok=True)
        record = EormRecord(
            size=self._size,
            data_fingerprint=data_fingerprint(self._train, self._validation),
            vocabulary=self._texts.vocabulary,
            epochs=tuple(epochs),
            best_epoch=best_epoch,
            num_train_problems=len(self._train),
            num_train_pairs=sum(len(group.pairs) for group in self._train),
            num_validation_problems=len(self._validation),
            num_parameters=sum(tensor.numel() for tensor in best.values()),
        )
        save_tensors(folder / WEIGHTS_FILE, best)
        (folder / RECORD_FILE).write_text(record.model_dump_json(indent=2) + "\n", encoding="utf-8")
        return record


class Eorm:
    """Scorer with a trained EORM. The score is minus its energy."""

    def __init__(self, folder: Path, name: str) -> None:
        """Load a checkpoint.

        Raises:
            CheckpointError: the folder is missing or corrupt, the weights do not match its record, or its tokenizer
                cannot be read or is a different one.
        """
        record = read_record(folder / RECORD_FILE, EormRecord)
        weights = load_tensors(folder / WEIGHTS_FILE)
        self.name = name
        self.record = record
        self._texts = _EormTexts(name, record.size)
        self._device = resolve_device("auto")
        self._model = EormModel(hidden_size=record.size.hidden_size, vocabulary=record.vocabulary)
        try:
            self._model.load_state_dict(weights)
        except RuntimeError as error:
            raise CheckpointError(
                f"baseline {name!r}: the weights do not match {RECORD_FILE}; train again: {error}"
            ) from error
        if self._texts.vocabulary != record.vocabulary:
            raise CheckpointError(
                f"baseline {name!r}: tokenizer {record.size.tokenizer!r} has {self._texts.vocabulary} tokens, "
                f"the checkpoint was trained with {record.vocabulary}; use the same tokenizer, or train again"
            )
        self._model = self._model.eval().to(self._device)

    @staticmethod
    def is_trained(folder: Path, size: EormSize, *parts: Sequence[TrainingGroup]) -> bool:
        """Whether the folder has a checkpoint of these settings and this data (train, validation). Without data, only
        the settings are compared."""
        try:
            record = read_record(folder / RECORD_FILE, EormRecord)
        except CheckpointError:  # missing, or of another version
            return False
        return record.size == size and (not any(parts) or record.data_fingerprint == data_fingerprint(*parts))

    @torch.inference_mode()
    def score(self, pools: Sequence[PoolTexts]) -> list[list[TextScore]]:
        ids = self._texts(flattened(pools))
        scores: list[TextScore] = [TextScore(None, "not reached")] * len(ids)
        for batch in micro_batches(ids, max_tokens=MICRO_BATCH_TOKENS, pad_id=self._texts.pad):
            energies = self._model(batch.to(self._device)).float().cpu().tolist()
            for position, energy in zip(batch.positions, energies, strict=True):
                scores[position] = TextScore.of(-energy)
        return regrouped(pools, scores)
