"""Load third-party models, their limits, and run batches of token ids through them."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from raydebm.config import ModelBaseline
from raydebm.evaluation.baselines.protocol import TextScore
from raydebm.pretrained import ModelSource
from raydebm.scorer.model.backbone import resolve_backbone, resolve_device, resolve_dtype
from raydebm.scorer.model.batching import MicroBatch, micro_batches

MICRO_BATCH_TOKENS = 8192
"""Padded tokens of one forward pass."""
UNBOUNDED = 1_000_000
"""Limit above which a tokenizer has no limit. Such tokenizers state about 1e30."""


class LoadedModel:
    """Model in eval mode with its tokenizer and maximum input."""

    def __init__(self, config: ModelBaseline, reader: Any) -> None:
        """Load model and tokenizer.

        Args:
            reader: An Auto class, or another class with ``from_pretrained``.

        Raises:
            CheckpointError: the model or its tokenizer cannot be read, is incomplete, of another kind, or they do not
                match.
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
        """Scores of token ids, in order. Empty and too long texts are not run.

        Args:
            ids: Token ids of whole inputs.
            read: Function of the model's output and the batch that returns one score per row.
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


def chat_ids(tokenizer: Any, problem: str, text: str) -> tuple[int, ...]:
    """Token ids of a conversation: the problem by the user, the candidate by the assistant."""
    messages = [{"role": "user", "content": problem}, {"role": "assistant", "content": text}]
    return tuple(tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False))


def values(column: Tensor) -> list[TextScore]:
    """Scores of a column of shape (B,)."""
    return [TextScore.of(value) for value in column.float().cpu().tolist()]
