"""The trained ensemble as a scorer: energies of texts, one per adapter.

In:   a checkpoint folder; (problem, candidate) texts.
Out:  energies in the checkpoint's order of adapters, with the numbers of tokens read and cut.
Independent of: tasks, constraints, thresholds, Ray.

A text is tokenized once for all adapters, and blocks below the lowest adapted one run once.

Shapes: K adapters, M of them selected, N texts, B texts of a micro-batch, D hidden size.
"""

import copy
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor, nn

from raydebm.config import Pooling
from raydebm.cpus import free_cpus
from raydebm.errors import CheckpointError, ScoringError
from raydebm.scorer.checkpoint import StoredAdapter, read_ensemble, write_ensemble
from raydebm.scorer.checkpoint_records import EnsembleRecord
from raydebm.scorer.model.backbone import Backbone, Weights, load_backbone
from raydebm.scorer.model.batching import EncodedText, TextEncoder
from raydebm.scorer.model.head import EnergyHead, pooled
from raydebm.scorer.model.lora import PEFT_PREFIX, low_rank_updates, merged_copy
from raydebm.scorer.model.packing import PACKED, Packing, attention_for
from raydebm.scorer.model.precision import MIN_RANK_CORRELATION
from raydebm.scorer.model.prefix import Prefixes, Reading, readings, shares_prefixes
from raydebm.scorer.model.trunk import Trunk, lowest_adapted
from raydebm.scorer.texts import TextEnergies, rank_correlation, scores_or_errors

__all__ = ["EnergyEngine", "EnsembleScorer", "MergedEngine", "write_ensemble"]


class EnergyEngine(Protocol):
    """Interface from token ids to energies, for alternative implementations."""

    def energies(self, ids: Sequence[Sequence[int]], members: Sequence[int]) -> Tensor:
        """Energies of some adapters, shape (M, N), float32 on the CPU, for N >= 1 texts in order."""
        ...


class MergedEngine:
    """One copy of the encoder's structure per adapter, with the adapter merged in.

    Only adapted matrices are copied; embeddings, norms and the rest are the backbone's own. Texts run in micro-batches
    of similar length. Blocks below the lowest adapted one run once for all adapters, and a decoder reads a prefix that
    texts share, such as their problem, once per adapter.
    """

    def __init__(
        self,
        backbone: Backbone,
        adapters: Sequence[StoredAdapter],
        *,
        micro_batch_tokens: int,
        packed: bool | None = None,
    ) -> None:
        """Merge the adapters into copies of a backbone.

        Args:
            packed: whether an encoder that supports it reads texts concatenated into rows, without padding (see
                ``model.packing``). Default: ``PACKED`` on a GPU; padded texts on a CPU.
        """
        self._device = backbone.device
        self._pad_id = int(backbone.tokenizer.pad_token_id)
        self._micro_batch_tokens = micro_batch_tokens
        self._hidden_size = backbone.hidden_size
        self._members: list[tuple[nn.Module, EnergyHead, Pooling]] = []
        for adapter in adapters:
            where = f"adapter {adapter.record.adapter.name!r}"
            updates = low_rank_updates(adapter.lora, adapter.peft_config, where=where)
            head = head_of(adapter, hidden_size=backbone.hidden_size).to(backbone.device)
            self._members.append((merged_copy(backbone.encoder, updates, where=where), head, adapter.record.pooling))
        is_packed = PACKED and self._device.type == "cuda" if packed is None else packed
        attention = attention_for(backbone) if is_packed else None
        self.packing: Packing | None = None
        if attention is not None:
            encoders = [encoder for encoder, *_ in self._members]
            self.packing = Packing(encoders, attention, max_tokens=micro_batch_tokens, pad_id=self._pad_id)
        adapted = (name.removeprefix(PEFT_PREFIX) for adapter in adapters for name in adapter.lora)
        self._shares_prefixes = shares_prefixes(backbone.encoder.config) and all(
            pooling != "cls" for *_, pooling in self._members
        )
        self._trunk = Trunk([encoder for encoder, *_ in self._members], lowest_adapted(backbone.encoder, adapted))

    @torch.inference_mode()
    def energies(self, ids: Sequence[Sequence[int]], members: Sequence[int]) -> Tensor:
        heads = [self._members[index][1] for index in members]
        energies_MN = torch.empty(len(members), len(ids))
        for positions, features in self._batches(ids, members):
            energies = [head(features_BD) for head, features_BD in zip(heads, features, strict=True)]
            energies_MN[:, positions] = torch.stack(energies).float().cpu()
        return energies_MN

    @torch.no_grad()  # not inference mode: its tensors cannot be used to train a head
    def features(self, ids: Sequence[Sequence[int]], members: Sequence[int]) -> Tensor:
        """Inputs of the heads of some adapters: pooled states, shape (M, N, D), float32 on the CPU, for N >= 1 texts in
        order."""
        features_MND = torch.empty(len(members), len(ids), self._hidden_size)
        for positions, features in self._batches(ids, members):
            features_MND[:, positions] = torch.stack(features).float().cpu()
        return features_MND

    def _batches(
        self, ids: Sequence[Sequence[int]], members: Sequence[int]
    ) -> Iterator[tuple[list[int], list[Tensor]]]:
        """Per reading: the indices of its texts, and the input of each adapter's head, shape (B, D), on the device."""
        if self.packing is not None:
            for row in self.packing.rows(ids):
                self._trunk.forget()
                chosen = [self._members[index] for index in members]
                yield row.positions, [self.packing.features(each, row, pooling=pooling) for each, _, pooling in chosen]
            return
        plan = readings(
            ids,
            max_tokens=self._micro_batch_tokens,
            pad_id=self._pad_id,
            device=self._device.type,
            shares=self._shares_prefixes,
        )
        for reading in plan:
            self._trunk.forget()
            yield reading.positions, [self._features(index, reading) for index in members]

    def _features(self, member: int, reading: Reading) -> Tensor:
        encoder, _, pooling = self._members[member]
        self._trunk.turn_to(0)
        prefixes = None if reading.prefixes is None else Prefixes(encoder, reading.prefixes.to(self._device))
        owners_B = torch.tensor(reading.owners, device=self._device)
        features: list[Tensor] = []
        for number, batch in enumerate(reading.batches, start=1):
            self._trunk.turn_to(number)
            batch = batch.to(self._device)
            if prefixes is None:
                states_BTD = encoder(input_ids=batch.ids, attention_mask=batch.mask).last_hidden_state
                # A copy: a view would keep the states of all tokens until the last adapter has run.
                features.append(pooled(states_BTD, batch.mask, pooling=pooling).clone())
            else:
                own_B, owners_B = owners_B.tensor_split([len(batch.ids)])
                features.append(prefixes.features(batch, own_B, pooling=pooling))
        return torch.cat(features)


def head_of(adapter: StoredAdapter, *, hidden_size: int) -> EnergyHead:
    """The adapter's energy head, in eval mode.

    Raises:
        CheckpointError: the stored weights do not match the head.
    """
    head = EnergyHead(hidden_size)
    try:
        head.load_state_dict(dict(adapter.head))
    except RuntimeError as error:
        where = f"adapter {adapter.record.adapter.name!r}"
        raise CheckpointError(f"{where}: its energy head does not fit: {error}") from error
    return head.eval()


def backbone_for(
    record: EnsembleRecord,
    *,
    weights: Weights | None = None,
    device: str = "auto",
    dtype: str = "auto",
    loaded: Sequence[Backbone] = (),
) -> Backbone:
    """Load the backbone of an ensemble, or reuse a loaded one.

    Args:
        weights: result of ``backbone.frozen_weights``, mapped instead of reading the files.
        device: see ``load_backbone``.
        dtype: see ``load_backbone``.
        loaded: backbones in memory, reused if name, weights and dtype match.

    Raises:
        CheckpointError: the backbone cannot be read, or the weights do not fit it.
    """
    wanted = (record.backbone, record.backbone_fingerprint)
    for backbone in loaded:
        if (backbone.name, backbone.fingerprint) == wanted and dtype in ("auto", backbone.dtype):
            return backbone
    return load_backbone(record.backbone, weights=weights, device=device, dtype=dtype)


def cpu_dtype_for(
    record: EnsembleRecord,
    adapters: Sequence[StoredAdapter],
    weights: Weights,
    texts: Sequence[tuple[str, str]],
    *,
    micro_batch_tokens: int,
) -> tuple[str, float | None]:
    """The dtype for scoring on a CPU, and the rank correlation of bfloat16 with float32 if bfloat16 is faster.

    bfloat16 is chosen if this machine is faster with it (``precision.cpu_dtype``) and the ranks of its mean energies
    agree with those of float32, with a correlation of at least ``MIN_RANK_CORRELATION``.

    Args:
        weights: result of ``backbone.frozen_weights``.
        texts: a sample of the (problem, candidate) texts to score.
    """
    faster = backbone_for(record, weights=weights, device="cpu")
    if faster.dtype == "float32":
        return faster.dtype, None
    exact = backbone_for(record, weights=weights, device="cpu", dtype="float32")
    energies = [
        scores_or_errors(
            EnsembleScorer.of_parts(record, adapters, backbone=backbone, micro_batch_tokens=micro_batch_tokens), texts
        )
        for backbone in (exact, faster)
    ]
    correlation = rank_correlation(*energies)
    keeps_order = correlation is not None and correlation >= MIN_RANK_CORRELATION
    return (faster if keeps_order else exact).dtype, correlation


def text_encoder(record: EnsembleRecord, backbone: Backbone) -> TextEncoder:
    """Text encoder of an ensemble.

    Raises:
        CheckpointError: the ensemble was trained on a backbone with other weights.
    """
    if backbone.fingerprint != record.backbone_fingerprint:
        raise CheckpointError(
            f"the checkpoint was trained on backbone {record.backbone!r} with weights {record.backbone_fingerprint}, "
            f"but {backbone.name!r} has weights {backbone.fingerprint}; use the same backbone, or train again"
        )
    return TextEncoder(backbone.tokenizer, max_length=record.max_length, is_decoder=backbone.is_decoder)


class EnsembleScorer:
    """Scorer of texts. Thread-safe: calls run one at a time."""

    def __init__(self, *, record: EnsembleRecord, encoder: TextEncoder, engine: EnergyEngine) -> None:
        self.record = record
        self._encoder, self._engine = encoder, engine
        self._lock = threading.Lock()
        self._selected = tuple(range(len(record.adapters)))

    @classmethod
    def load(
        cls, folder: str | Path, *, device: str = "auto", dtype: str = "auto", micro_batch_tokens: int = 8192
    ) -> "EnsembleScorer":
        """Read a checkpoint folder and its backbone.

        On a CPU, torch uses the free CPUs (``cpus.free_cpus``), unless ``OMP_NUM_THREADS`` is set.

        Args:
            folder: folder with ensemble.json, or the name of a repository on the hub, ``user/repo`` or
                ``user/repo@revision``.
            device: Torch device. ``"auto"`` is the first visible GPU, else the CPU.
            dtype: dtype of the encoders; heads and energies are float32. ``"auto"`` is bfloat16 on a GPU, and on a CPU
                the result of a short probe (see ``model.precision``). An explicit dtype gives the same energies at
                every start.
            micro_batch_tokens: padded tokens of one forward pass.

        Raises:
            CheckpointError: parts are missing or corrupt, or were trained on another backbone.
        """
        record, adapters = read_ensemble(Path(folder))
        backbone = backbone_for(record, device=device, dtype=dtype)
        if backbone.device.type == "cpu" and "OMP_NUM_THREADS" not in os.environ:
            torch.set_num_threads(free_cpus())
        return cls.of_parts(record, adapters, backbone=backbone, micro_batch_tokens=micro_batch_tokens)

    @classmethod
    def of_parts(
        cls,
        record: EnsembleRecord,
        adapters: Sequence[StoredAdapter],
        *,
        backbone: Backbone,
        micro_batch_tokens: int = 8192,
    ) -> "EnsembleScorer":
        """Build a scorer from parts in memory.

        Raises:
            CheckpointError: the adapters were trained on another backbone.
        """
        encoder = text_encoder(record, backbone)
        engine = MergedEngine(backbone, adapters, micro_batch_tokens=micro_batch_tokens)
        return cls(record=record, encoder=encoder, engine=engine)

    @property
    def adapters(self) -> tuple[str, ...]:
        """Adapter names, in the order of ``TextEnergies.members``."""
        return self.record.adapters

    def with_adapters(self, members: Sequence[bool]) -> "EnsembleScorer":
        """The same scorer restricted to some of the adapters.

        Args:
            members: mask of the adapters, in order, with at least one selected.
        """
        other = copy.copy(self)
        other._selected = tuple(index for index, is_selected in enumerate(members) if is_selected)
        return other

    def score(self, texts: Sequence[tuple[str, str]]) -> list[TextEnergies]:
        """Energies of (problem, candidate) texts, in order.

        Raises:
            ScoringError: an energy is NaN or infinite. The message names the input and the adapter.
        """
        if not texts:
            return []
        with self._lock:
            encoded = self._encoder(texts)
            energies_MN = self._engine.energies([text.ids for text in encoded], self._selected)
        self._check(energies_MN, encoded, [self.adapters[position] for position in self._selected])
        return [
            TextEnergies(
                members=tuple(energies),
                num_tokens=len(text.ids),
                num_truncated=text.num_truncated,
                problem_read=text.problem_read,
                answer_read=text.answer_read,
            )
            for energies, text in zip(energies_MN.t().tolist(), encoded, strict=True)
        ]

    @staticmethod
    def _check(energies_MN: Tensor, encoded: Sequence[EncodedText], adapters: Sequence[str]) -> None:
        expected = (len(adapters), len(encoded))
        if tuple(energies_MN.shape) != expected:
            raise ScoringError(f"the engine gave energies of shape {tuple(energies_MN.shape)}, expected {expected}")
        bad = (~torch.isfinite(energies_MN)).nonzero()
        if len(bad):
            adapter, text = (int(position) for position in bad[0])
            raise ScoringError(
                f"input {text} of {len(encoded)} ({len(encoded[text].ids)} tokens): adapter "
                f"{adapters[adapter]!r} gave energy {float(energies_MN[adapter, text])}; "
                "score with dtype float32, and check the checkpoint's metrics"
            )
