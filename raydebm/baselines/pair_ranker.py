"""Pair rankers: an encoder that reads a problem and two candidates and says which is better (PairRM, LLM-Blender).

A candidate's score is the share of its comparisons that it wins. Each two candidates are compared in both orders and
the two differences are averaged, so that the order of a pair decides nothing.

Shapes: B pairs of a micro-batch, T tokens, D hidden size.
"""

import random
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PreTrainedConfig, PreTrainedModel

from raydebm.baselines.loading import LoadedModel, values
from raydebm.baselines.protocol import PoolTexts, TextScore
from raydebm.config import PairRankerBaseline
from raydebm.errors import CheckpointError
from raydebm.identity import seed_for
from raydebm.scorer.model.batching import MicroBatch, cut_middle, without_special_tokens

MARKS = {
    "source_prefix_id": "<|source|>",
    "cand1_prefix_id": "<|candidate1|>",
    "cand2_prefix_id": "<|candidate2|>",
}
"""The tokens before the problem and the two candidates, by the field of the model's config that may name their ids."""


class PairRankerModel(PreTrainedModel):  # type: ignore[no-untyped-call]
    """The encoder and head of PairRM, with its parameter names, so that its published weights load."""

    config_class = PreTrainedConfig
    base_model_prefix = "pretrained_model"

    def __init__(self, config: PreTrainedConfig) -> None:
        super().__init__(config)
        auto: Any = AutoModel
        size: int = config.hidden_size
        dropout = getattr(config, "drop_out", 0.05)
        self.pretrained_model = auto.from_config(config)
        self.head_layer = nn.Sequential(
            nn.Dropout(dropout), nn.Linear(2 * size, size), nn.Tanh(), nn.Dropout(dropout),
            nn.Linear(size, getattr(config, "n_tasks", 1)),
        )  # fmt: skip
        self.mark_ids: tuple[int, int, int] | None = None
        plain: Any = self
        plain.post_init()

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> SimpleNamespace:
        """``logits``, shape (B,): above 0 where the first candidate is better."""
        assert self.mark_ids is not None  # set by the ranker that loaded it
        hidden_BTD = self.pretrained_model(  # noqa: N806
            input_ids=input_ids, attention_mask=attention_mask
        ).last_hidden_state
        problem_BD, first_BD, second_BD = (_at(hidden_BTD, input_ids == mark) for mark in self.mark_ids)  # noqa: N806
        first = self.head_layer(torch.cat([problem_BD, first_BD], dim=-1))
        second = self.head_layer(torch.cat([problem_BD, second_BD], dim=-1))
        return SimpleNamespace(logits=(first - second).mean(dim=-1))


def _at(hidden_BTD: Tensor, mask_BT: Tensor) -> Tensor:  # noqa: N803
    """The hidden state at the one position per row that the mask marks, shape (B, D)."""
    return hidden_BTD[mask_BT]


class _Reader:
    """Reads the config first: PairRM's checkpoints name no Auto class."""

    @staticmethod
    def from_pretrained(name: str, **options: Any) -> Any:
        config = AutoConfig.from_pretrained(name)
        model: Any = PairRankerModel
        return model.from_pretrained(name, config=config, **options)


class PairRanker:
    """Share of comparisons won (or mean difference of logits) of each candidate of a pool; 0.5 (or 0) when alone."""

    def __init__(self, config: PairRankerBaseline) -> None:
        """
        Raises:
            CheckpointError: the model cannot be read, or its tokenizer lacks the marks of the three parts.
        """
        self.name = config.name
        self._config = config
        self._loaded = LoadedModel(config, _Reader)
        tokenizer = self._loaded.tokenizer
        self._marks = {mark: self._mark_id(field, mark) for field, mark in MARKS.items()}
        self._loaded.model.mark_ids = tuple(self._marks.values())
        self._cls, self._sep = tokenizer.cls_token_id, tokenizer.sep_token_id
        if self._cls is None or self._sep is None:
            raise CheckpointError(f"baseline {config.name!r}: the tokenizer of {config.model!r} has no [CLS] and [SEP]")

    def _mark_id(self, field: str, mark: str) -> int:
        tokenizer = self._loaded.tokenizer
        token_id = getattr(self._loaded.model.config, field, None)
        if token_id is None:
            token_id = tokenizer.convert_tokens_to_ids(mark)
        if token_id is None or token_id == tokenizer.unk_token_id:
            raise CheckpointError(
                f"baseline {self.name!r}: the tokenizer of {self._config.model!r} has no token {mark!r}; give a pair "
                "ranker that was trained with it, such as llm-blender/PairRM-hf"
            )
        return int(token_id)

    def score(self, pools: Sequence[PoolTexts]) -> list[list[TextScore]]:
        return [self._pool(pool) for pool in pools]

    def _pool(self, pool: PoolTexts) -> list[TextScore]:
        pairs = rival_pairs(
            len(pool.texts),
            max_rivals=self._config.max_rivals,
            seed=seed_for("rivals", pool.problem.problem_id),
        )
        parts = [self._part("<|candidate1|>", text) for text in pool.texts]
        problem = self._part("<|source|>", pool.problem.prompt)
        ordered = [order for pair in pairs for order in (pair, pair[::-1])]
        ids = [problem + parts[first] + self._as_second(parts[second]) for first, second in ordered]
        logits = self._loaded.over(ids, read=lambda output, batch: _logits(output, batch))
        return pairwise_scores(len(pool.texts), pairs, logits, wins=self._config.aggregate == "wins")

    def _part(self, mark: str, text: str) -> tuple[int, ...]:
        """``[CLS] mark text [SEP]``, as PairRM encodes each of its three parts."""
        config = self._config
        tokenizer = self._loaded.tokenizer
        written = without_special_tokens(tokenizer, text)
        ids = tokenizer(written, add_special_tokens=False, verbose=False)["input_ids"]
        # A mark that is an ordinary word of the vocabulary would still stand for a part of its own.
        ids = [token for token in ids if token not in self._marks.values()]
        if mark == "<|source|>":
            ids = cut_middle(ids, config.max_problem_tokens - 3)
        else:
            ids = ids[max(0, len(ids) - (config.max_candidate_tokens - 3)) :]
        return (self._cls, self._marks[mark], *ids, self._sep)

    def _as_second(self, part: tuple[int, ...]) -> tuple[int, ...]:
        return (part[0], self._marks["<|candidate2|>"], *part[2:])


def _logits(output: Any, batch: MicroBatch) -> list[TextScore]:
    return values(output.logits)


def rival_pairs(num_texts: int, *, max_rivals: int | None, seed: int) -> list[tuple[int, int]]:
    """Which two candidates are compared: all, or for each one about ``max_rivals`` others on a shuffled circle.

    On a circle everyone meets the same number of rivals, so that shares of wins can be compared.
    """
    if max_rivals is None or max_rivals >= num_texts - 1:
        return [(first, second) for first in range(num_texts) for second in range(first + 1, num_texts)]
    circle = list(range(num_texts))
    random.Random(seed).shuffle(circle)
    # Each step of the circle gives a candidate one rival before and one behind it.
    steps = range(1, max(1, (max_rivals + 1) // 2) + 1)
    pairs = {
        (min(circle[place], circle[(place + step) % num_texts]), max(circle[place], circle[(place + step) % num_texts]))
        for step in steps
        for place in range(num_texts)
    }
    return sorted(pairs)


def pairwise_scores(
    num_texts: int, pairs: Sequence[tuple[int, int]], logits: Sequence[TextScore], *, wins: bool
) -> list[TextScore]:
    """Scores of all candidates from comparisons in both orders: ``logits[2 i]`` of pair i, ``logits[2 i + 1]`` turned.

    A comparison that failed in either order is left out; a candidate without any is not scored, unless it is alone.
    """
    comparisons: list[list[float]] = [[] for _ in range(num_texts)]
    errors: list[str | None] = [None] * num_texts
    for index, (first, second) in enumerate(pairs):
        forward, backward = logits[2 * index], logits[2 * index + 1]
        if forward.value is None or backward.value is None:
            errors[first] = errors[second] = forward.error or backward.error
            continue
        difference = (forward.value - backward.value) / 2
        for text, signed in ((first, difference), (second, -difference)):
            comparisons[text].append(0.5 + 0.5 * ((signed > 0) - (signed < 0)) if wins else signed)
    scores = []
    for results, error in zip(comparisons, errors, strict=True):
        if results:
            scores.append(TextScore.of(sum(results) / len(results)))
        elif error is not None:
            scores.append(TextScore.failed(f"no comparison worked: {error}"))
        else:
            scores.append(TextScore.of(0.5 if wins else 0.0))
    return scores
