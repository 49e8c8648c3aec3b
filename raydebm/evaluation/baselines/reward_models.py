"""Reward models such as Skywork-Reward, and process reward models such as Math-Shepherd.

A reward model gives a logit for the quality of an answer. A process reward model gives a probability for each step of a
solution, and its minimum is the score: a step token follows each step, and the next-token logits of a good and a bad
mark at this token give the probability that the step is good (card of ``peiyi9979/math-shepherd-mistral-7b-prm``).

Shapes: B texts of a micro-batch, T tokens.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

from raydebm.config import ModelBaseline
from raydebm.errors import CheckpointError
from raydebm.evaluation.baselines.protocol import PoolTexts, TextScore, flattened, regrouped
from raydebm.pretrained import ModelSource
from raydebm.scorer.model.backbone import resolve_backbone, resolve_device, resolve_dtype
from raydebm.scorer.model.batching import MicroBatch, micro_batches, without_special_tokens

MICRO_BATCH_TOKENS = 8192
UNBOUNDED = 1_000_000
"""Maximum input if neither the model nor its tokenizer has a limit. Such tokenizers report about 1e30."""


class LoadedModel:
    """Model in eval mode with its tokenizer and maximum input."""

    def __init__(self, config: ModelBaseline, reader: Any) -> None:
        """Load model and tokenizer.

        Args:
            reader: An Auto class, or another class with ``from_pretrained``.

        Raises:
            CheckpointError: the model or its tokenizer cannot be read, is incomplete or of another kind, or the two do
                not match.
        """
        self.name = config.name
        self.device = resolve_device("auto")
        dtype = resolve_dtype("auto", self.device)
        source = ModelSource(
            called=f"baseline {config.name!r}: model {config.model!r}",
            place=resolve_backbone(config.model) if config.model.startswith("embedded:") else config.model,
        )
        self.tokenizer: Any = source.tokenizer()
        model = source.model(reader, dtype=dtype)
        source.check_ids(self.tokenizer, model)
        self.model: Any = model.to(self.device).eval()
        self.max_length = config.max_length or self._context()

    def _context(self) -> int:
        own = getattr(self.model.config.get_text_config(), "max_position_embeddings", None) or UNBOUNDED
        return min(int(own), int(self.tokenizer.model_max_length), UNBOUNDED)

    def pad_id(self) -> int | None:
        """Id of the padding token. None for a tokenizer without one, whose texts are scored one at a time."""
        token_id: int | None = self.tokenizer.pad_token_id
        return token_id

    @torch.inference_mode()
    def over(
        self, ids: Sequence[tuple[int, ...]], *, read: Callable[[Any, MicroBatch], list[TextScore]]
    ) -> list[TextScore]:
        """Score inputs, in order. Empty and too long ones get an error, and the model is not run on them.

        Args:
            ids: Token ids of whole inputs.
            read: Function from the model's output and the batch to one score per row.
        """
        scores = [self._refusal(tokens) for tokens in ids]
        wanted = [position for position, score in enumerate(scores) if score is None]
        for batch in self._batches([ids[position] for position in wanted]):
            moved = batch.to(self.device)
            output = self.model(input_ids=moved.ids, attention_mask=moved.mask)
            for row, score in zip(batch.positions, read(output, moved), strict=True):
                scores[wanted[row]] = score
        return [score for score in scores if score is not None]

    def _refusal(self, tokens: tuple[int, ...]) -> TextScore | None:
        if not tokens:
            return TextScore.failed("the tokenizer found nothing to read in the text")
        if len(tokens) > self.max_length:
            return TextScore.failed(f"{len(tokens)} tokens, more than the {self.max_length} that {self.name!r} takes")
        return None

    def _batches(self, ids: Sequence[tuple[int, ...]]) -> list[MicroBatch]:
        pad_id = self.pad_id()
        if pad_id is not None:
            return micro_batches(ids, max_tokens=MICRO_BATCH_TOKENS, pad_id=pad_id)
        return [
            MicroBatch(
                positions=(position,), ids=torch.tensor([tokens]), mask=torch.ones((1, len(tokens)), dtype=torch.long)
            )
            for position, tokens in enumerate(ids)
        ]


class RewardModel:
    """Scorer that uses the model's first logit, of the last token (decoders) or of the pooled first token
    (encoders)."""

    def __init__(self, config: ModelBaseline) -> None:
        """Load the model.

        Raises:
            CheckpointError: the model cannot be read.
        """
        self.name = config.name
        self._loaded = LoadedModel(config, AutoModelForSequenceClassification)
        # Decoders locate a row's last token by this id; without one, texts are run one at a time.
        self._loaded.model.config.pad_token_id = self._loaded.pad_id()

    def score(self, pools: Sequence[PoolTexts]) -> list[list[TextScore]]:
        ids = [self._ids(problem, text) for problem, text in flattened(pools)]
        return regrouped(pools, self._loaded.over(ids, read=self._read))

    def _ids(self, problem: str, text: str) -> tuple[int, ...]:
        tokenizer = self._loaded.tokenizer
        problem, text = (without_special_tokens(tokenizer, part) for part in (problem, text))
        if tokenizer.chat_template is not None:
            messages = [{"role": "user", "content": problem}, {"role": "assistant", "content": text}]
            return tuple(tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False))
        return tuple(tokenizer(problem, text, verbose=False)["input_ids"])

    def _read(self, output: Any, batch: MicroBatch) -> list[TextScore]:
        return [TextScore.of(value) for value in output.logits[:, 0].float().cpu().tolist()]


STEP, GOOD, BAD = "ки", "+", "-"
"""Marks used in the model's training: end of a step, good step, and bad step."""
_SEPARATOR = re.compile(r"\n+")


def split_steps(text: str) -> list[str]:
    """Steps of a solution (its non-empty lines), numbered.

    Step tokens inside the text are removed, because their positions determine the result.
    """
    steps = [step.strip() for step in _SEPARATOR.split(text.replace(STEP, " "))]
    numbered = enumerate((step for step in steps if step), start=1)
    return [step if step.startswith(f"Step {number}:") else f"Step {number}: {step}" for number, step in numbered]


class ProcessRewardModel:
    """Scorer that uses the minimum of a solution's step probabilities, in [0, 1]."""

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
