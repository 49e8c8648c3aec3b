"""Process reward models: a probability for each step of a solution, and their minimum.

As on the card of ``peiyi9979/math-shepherd-mistral-7b-prm``: a step token follows each step, and the next-token logits
of a good and a bad mark at this token give the step's probability of being good.

Shapes: B texts of a micro-batch, T tokens.
"""

import re
from collections.abc import Sequence
from typing import Any

from transformers import AutoModelForCausalLM

from raydebm.config import ModelBaseline
from raydebm.errors import CheckpointError
from raydebm.evaluation.baselines.loading import LoadedModel
from raydebm.evaluation.baselines.protocol import PoolTexts, TextScore, flattened, regrouped
from raydebm.scorer.model.batching import MicroBatch, without_special_tokens

STEP, GOOD, BAD = "ки", "+", "-"
"""Marks used in the model's training: after each step, for a good one, and for a bad one."""
_SEPARATOR = re.compile(r"\n+")


def split_steps(text: str) -> list[str]:
    """Steps of a solution (its non-empty lines), numbered.

    Step tokens inside the text are removed, because their positions determine the result.
    """
    steps = [step.strip() for step in _SEPARATOR.split(text.replace(STEP, " "))]
    numbered = enumerate((step for step in steps if step), start=1)
    return [step if step.startswith(f"Step {number}:") else f"Step {number}: {step}" for number, step in numbered]


class ProcessRewardModel:
    """Scorer with the minimum of a solution's step probabilities, in [0, 1]."""

    def __init__(self, config: ModelBaseline) -> None:
        """Load the model.

        Raises:
            CheckpointError: the model cannot be read, or its tokenizer has no single token for a mark.
        """
        self.name = config.name
        self._model = config.model
        self._loaded = LoadedModel(config, AutoModelForCausalLM)
        self._step_id, *self._classes = (self._last_id(mark) for mark in (STEP, GOOD, BAD))

    def _last_id(self, mark: str) -> int:
        """Id of a mark. Some tokenizers put a word-start token before it."""
        ids = self._loaded.tokenizer.encode(mark, add_special_tokens=False)
        if not ids or ids[-1] == self._loaded.tokenizer.unk_token_id:
            raise CheckpointError(
                f"baseline {self.name!r}: the tokenizer of {self._model!r} does not know {mark!r}; name a model that "
                "judges steps as Math-Shepherd does"
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
        """Token ids of the marked solution, or the reason why it cannot be marked."""
        tokenizer = self._loaded.tokenizer
        question, answer = (without_special_tokens(tokenizer, part.replace(STEP, " ")) for part in (problem, text))
        steps = split_steps(answer)
        if not steps:
            return (), "the text has no steps"
        solution = "\n".join(f"{step} {STEP}" for step in steps)
        ids = tuple(tokenizer.encode(f"{question} {solution}", verbose=False))
        marked = ids.count(self._step_id)
        if marked != len(steps):
            return (), f"{len(steps)} steps but {marked} step tokens in the tokenized text"
        return ids, None

    def _read(self, output: Any, batch: MicroBatch) -> list[TextScore]:
        good_BT = output.logits.float()[..., self._classes].softmax(-1)[..., 0]  # noqa: N806
        is_step_BT = (batch.ids == self._step_id) & (batch.mask == 1)  # noqa: N806
        return [
            TextScore.of(min(good_T[is_step_T].cpu().tolist()))
            for good_T, is_step_T in zip(good_BT, is_step_BT, strict=True)
        ]
