"""Process reward models: a probability for each step of a solution, and one number from them (Math-Shepherd is one).

A step token is put after each step; at that token the model says whether the step is good.

Shapes: B texts of a micro-batch, T tokens, S steps of a text.
"""

import math
import re
from collections.abc import Sequence
from typing import Any, Literal

from transformers import AutoModelForCausalLM, AutoModelForTokenClassification

from raydebm.baselines.loading import LoadedModel
from raydebm.baselines.protocol import PoolTexts, TextScore, flattened, regrouped
from raydebm.config import ProcessRewardBaseline
from raydebm.errors import CheckpointError, ConfigError
from raydebm.scorer.model.batching import MicroBatch, without_special_tokens

Aggregate = Literal["min", "mean", "product", "last"]


def aggregate_steps(probabilities: Sequence[float], how: Aggregate) -> float:
    """One number of the steps' probabilities, at least one; higher is better."""
    match how:
        case "min":
            return min(probabilities)
        case "mean":
            return sum(probabilities) / len(probabilities)
        case "product":
            return math.prod(probabilities)
        case "last":
            return probabilities[-1]


def split_steps(text: str, *, separator: re.Pattern[str], prefix: str, step_token: str) -> list[str]:
    """The steps of a solution, each with its prefix; empty ones are left out.

    The step token inside the text is removed: where it stands decides what is read.
    """
    steps = [step.strip() for step in separator.split(text.replace(step_token, " "))]
    prefixed = []
    for number, step in enumerate((step for step in steps if step), start=1):
        opening = prefix.format(n=number)
        prefixed.append(step if opening and step.startswith(opening.strip()) else opening + step)
    return prefixed


class ProcessRewardModel:
    """Aggregated step probabilities, in [0, 1]."""

    def __init__(self, config: ProcessRewardBaseline) -> None:
        """
        Raises:
            ConfigError: ``step_separator`` is not a regular expression.
            CheckpointError: the model cannot be read, or its tokenizer has no single token for a mark.
        """
        self.name = config.name
        self._config = config
        try:
            self._separator = re.compile(config.step_separator)
        except re.error as error:
            raise ConfigError(f"baseline {config.name!r}: step_separator {config.step_separator!r}: {error}") from error
        next_token = config.head == "next_token"
        self._loaded = LoadedModel(config, AutoModelForCausalLM if next_token else AutoModelForTokenClassification)
        self._step_id = self._last_id(config.step_token)
        self._classes = [self._last_id(mark) for mark in (config.good_token, config.bad_token)] if next_token else []
        if not next_token and config.label >= self._loaded.model.config.num_labels:
            raise CheckpointError(
                f"baseline {config.name!r}: {config.model!r} has {self._loaded.model.config.num_labels} classes; "
                f"label {config.label} is not among them (they count from 0)"
            )

    def _last_id(self, mark: str) -> int:
        """The id of a mark; some tokenizers put a word-start token of its own before it."""
        ids = self._loaded.tokenizer.encode(mark, add_special_tokens=False)
        if not ids or ids[-1] == self._loaded.tokenizer.unk_token_id:
            raise CheckpointError(
                f"baseline {self.name!r}: the tokenizer of {self._config.model!r} does not know {mark!r}; set "
                "step_token, good_token and bad_token to the marks that the model was trained with"
            )
        return int(ids[-1])

    def score(self, pools: Sequence[PoolTexts]) -> list[list[TextScore]]:
        scores: list[TextScore | None] = []
        ids: list[tuple[int, ...]] = []
        for problem, text in flattened(pools):
            tokens, error = self._ids(problem, text)
            scores.append(None if error is None else TextScore.failed(error))
            if error is None:
                ids.append(tokens)
        read_scores = iter(self._loaded.over(ids, read=self._read))
        return regrouped(pools, [next(read_scores) if score is None else score for score in scores])

    def _ids(self, problem: str, text: str) -> tuple[tuple[int, ...], str | None]:
        """Token ids of the marked solution, or why it cannot be marked."""
        config = self._config
        tokenizer = self._loaded.tokenizer
        question, answer = (
            without_special_tokens(tokenizer, part.replace(config.step_token, " ")) for part in (problem, text)
        )
        steps = split_steps(answer, separator=self._separator, prefix=config.step_prefix, step_token=config.step_token)
        if not steps:
            return (), "the text has no steps"
        solution = "\n".join(f"{step} {config.step_token}" for step in steps)
        ids = tuple(tokenizer.encode(f"{question} {solution}", verbose=False))
        marked = ids.count(self._step_id)
        if marked != len(steps):
            return (), f"{len(steps)} steps but {marked} step tokens in the tokenized text"
        return ids, None

    def _read(self, output: Any, batch: MicroBatch) -> list[TextScore]:
        logits_BTC = output.logits.float()  # noqa: N806
        if self._classes:
            good_BT = logits_BTC[..., self._classes].softmax(-1)[..., 0]  # noqa: N806
        else:
            good_BT = logits_BTC.softmax(-1)[..., self._config.label]  # noqa: N806
        is_step_BT = (batch.ids == self._step_id) & (batch.mask == 1)  # noqa: N806
        return [
            TextScore.of(aggregate_steps(good_T[is_step_T].cpu().tolist(), self._config.aggregate))
            for good_T, is_step_T in zip(good_BT, is_step_BT, strict=True)
        ]
