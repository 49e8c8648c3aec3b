"""A causal language model as a reader: likelihood and certainty of an answer's tokens, without training.

In:   pools, and a model.
Out:  a score per text, minus the mean entropy of the next-token distribution over the answer's tokens, with the parts
      ``logprob`` (mean log-probability) and ``worst`` (that of the least likely tenth). Higher is better.

The input is the problem, a newline and the answer. Long inputs are cut like the scorer's texts (``batching.fitted``),
so the tokens on both sides of a cut are read as if adjacent. The problem's tokens are context and are not
measured. Answers to one problem share its context: the model runs on it once if this saves a quarter of all
input tokens (``SHARED_FROM``).

Shapes: B texts of a micro-batch, A tokens of an answer, V vocabulary.
"""

import copy
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, DynamicCache

from raydebm.config import ModelBaseline
from raydebm.evaluation.baselines.protocol import PoolTexts, TextScore, flattened, regrouped
from raydebm.evaluation.baselines.reward_models import LoadedModel
from raydebm.generators.requests import LogProbs
from raydebm.scorer.model.batching import MicroBatch, fitted, pad, plan_micro_batches, token_ids, without_reference

BETWEEN = "\n"
MICRO_BATCH_TOKENS = 2048
"""Padded tokens of one forward pass. The logits of a large vocabulary take 0.6 MB per token."""
TOKENS_AT_ONCE = 128
"""Number of answer tokens per chunk in ``score_of``: 130 MB per copy of the logits for a vocabulary of 256,000."""
SHARED_FROM = 0.25
"""Minimum share of a problem's input tokens that one shared run of its context must save, because that run is an
additional forward pass with a single row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Input:
    ids: Sequence[int]
    start: int
    """Index of the answer's first token."""

    @property
    def context(self) -> tuple[int, ...]:
        return tuple(self.ids[: self.start])

    @property
    def length(self) -> int:
        return len(self.ids) - self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class _Context:
    """State of the model after reading the context that several answers share."""

    num_tokens: int
    cache: DynamicCache
    logits_V: Tensor  # noqa: N815

    def repeated(self, count: int) -> DynamicCache:
        """Cache of keys and values for ``count`` answers, which the model extends."""
        cache = copy.deepcopy(self.cache)
        cache.batch_repeat_interleave(count)
        return cache


class Reader:
    def __init__(self, config: ModelBaseline) -> None:
        """Load the model.

        Raises:
            CheckpointError: the model cannot be read.
        """
        self.name = config.name
        self._loaded = LoadedModel(config, AutoModelForCausalLM)

    def score(self, pools: Sequence[PoolTexts]) -> list[list[TextScore]]:
        return regrouped(pools, self.read(flattened(pools)))

    def read(self, texts: Sequence[tuple[str, str]]) -> list[TextScore]:
        """One score per (problem, answer), in order. An answer without tokens has an error."""
        inputs = self._inputs(texts)
        readings = [TextScore.failed("the tokenizer found nothing to read in the text")] * len(inputs)
        groups: dict[tuple[int, ...], list[int]] = {}
        for place, given in enumerate(inputs):
            if given.length:
                groups.setdefault(given.context, []).append(place)
        alone = []
        for places in groups.values():
            rows = [inputs[place] for place in places]
            saved = (len(rows) - 1) * rows[0].start
            shares = saved >= SHARED_FROM * sum(len(row.ids) for row in rows)
            context = self._context(rows[0].context) if shares else None
            if context is None:
                alone += places
                continue
            for place, reading in zip(places, self._in_batches(rows, context), strict=True):
                readings[place] = reading
        for place, reading in zip(alone, self._in_batches([inputs[place] for place in alone]), strict=True):
            readings[place] = reading
        return readings

    def _in_batches(self, rows: Sequence[_Input], context: _Context | None = None) -> list[TextScore]:
        """Readings of inputs, or of answers after one context, in order."""
        ids = [row.ids if context is None else row.ids[row.start :] for row in rows]
        readings = dict[int, TextScore]()
        for group in plan_micro_batches([len(tokens) for tokens in ids], max_tokens=MICRO_BATCH_TOKENS):
            # Attention is causal: no token reads the padding that follows it.
            batch = pad(ids, positions=group, pad_id=0)
            chosen = [rows[place] for place in group]
            read = self._read(batch, chosen) if context is None else self._read_after(context, batch, chosen)
            readings |= zip(group, read, strict=True)
        return [readings[place] for place in range(len(rows))]

    def _inputs(self, texts: Sequence[tuple[str, str]]) -> list[_Input]:
        tokenizer = self._loaded.tokenizer
        requests = {problem: without_reference(problem) for problem, _ in texts}
        ids = token_ids(tokenizer, (*requests, *requests.values(), BETWEEN, *(answer for _, answer in texts)))
        first = tokenizer(BETWEEN)["input_ids"][:1]
        opening = first if first == [tokenizer.bos_token_id] else []
        room = self._loaded.max_length - len(opening) - len(ids[BETWEEN])
        inputs = []
        for problem, answer in texts:
            kept, written = fitted(ids[problem], ids[answer], room, request=ids[requests[problem]])
            whole = array("i", (*opening, *kept, *ids[BETWEEN], *written))
            # The first token of the input has no predicted distribution.
            inputs.append(_Input(ids=whole, start=max(len(whole) - len(written), 1)))
        return inputs

    @torch.inference_mode()
    def _read(self, batch: MicroBatch, rows: Sequence[_Input]) -> list[TextScore]:
        moved = batch.to(self._loaded.device)
        first = min(row.start for row in rows) - 1
        num_logits = int(moved.ids.shape[1]) - first
        output: Any = self._loaded.model(input_ids=moved.ids, attention_mask=moved.mask, logits_to_keep=num_logits)
        offset = int(moved.ids.shape[1]) - output.logits.shape[1]
        return [
            score_of(logits[row.start - 1 - offset :][: row.length], ids[row.start : len(row.ids)])
            for logits, ids, row in zip(output.logits, moved.ids, rows, strict=True)
        ]

    @torch.inference_mode()
    def _context(self, ids: Sequence[int]) -> _Context | None:
        """Run the model on a context. None if the model's cache does not store the keys and values of every token."""
        output: Any = self._loaded.model(
            input_ids=torch.tensor([ids], device=self._loaded.device), use_cache=True, logits_to_keep=1
        )
        cache = output.past_key_values
        if type(cache) is not DynamicCache:
            return None
        return _Context(num_tokens=len(ids), cache=cache, logits_V=output.logits[0, -1])

    @torch.inference_mode()
    def _read_after(self, context: _Context, batch: MicroBatch, rows: Sequence[_Input]) -> list[TextScore]:
        """Readings of a batch of answers after a shared context."""
        moved = batch.to(self._loaded.device)
        before = moved.mask.new_ones(len(rows), context.num_tokens)
        output: Any = self._loaded.model(
            input_ids=moved.ids,
            attention_mask=torch.cat([before, moved.mask], dim=1),
            past_key_values=context.repeated(len(rows)),
        )
        return [
            score_of(torch.cat([context.logits_V[None], logits[: row.length - 1]]), ids[: row.length])
            for logits, ids, row in zip(output.logits, moved.ids, rows, strict=True)
        ]


def score_of(logits_AV: Tensor, tokens_A: Tensor) -> TextScore:  # noqa: N803
    """Minus the mean entropy of one answer, with its mean and worst log-probabilities as parts.

    Args:
        logits_AV: Logits that predict each of the answer's tokens.
        tokens_A: Tokens of the answer.
    """
    log_probs: list[float] = []
    entropies: list[float] = []
    # In chunks, because four copies of the logits are in memory, and those of a long answer may take a gigabyte.
    for start in range(0, len(tokens_A), TOKENS_AT_ONCE):
        slice_ = slice(start, start + TOKENS_AT_ONCE)
        own, entropy = _measured(logits_AV[slice_], tokens_A[slice_])
        log_probs += own.cpu().tolist()
        entropies += entropy.cpu().tolist()
    summary = LogProbs.of(log_probs)
    return TextScore.of(-sum(entropies) / len(entropies), {"logprob": summary.mean, "worst": summary.worst})


def _measured(logits_AV: Tensor, tokens_A: Tensor) -> tuple[Tensor, Tensor]:  # noqa: N803
    """Log-probability of each token, and entropy of its predicted distribution."""
    log_probs_AV = logits_AV.float().log_softmax(-1)  # noqa: N806
    own_A = log_probs_AV.gather(-1, tokens_A[:, None]).squeeze(-1)  # noqa: N806
    # A token with p = 0 has log p = -inf and adds nothing to the entropy.
    return own_A, -(log_probs_AV.exp() * log_probs_AV.clamp(min=-1e4)).sum(-1)
