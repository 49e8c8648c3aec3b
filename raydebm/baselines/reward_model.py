"""Reward models: sequence classifiers with a logit for the quality of an answer, such as Skywork-Reward.

Shapes: B texts of a micro-batch.
"""

from collections.abc import Sequence
from typing import Any

from transformers import AutoModelForSequenceClassification

from raydebm.baselines.loading import LoadedModel, chat_ids, values
from raydebm.baselines.protocol import PoolTexts, TextScore, flattened, regrouped
from raydebm.config import RewardModelBaseline
from raydebm.errors import CheckpointError
from raydebm.scorer.model.batching import MicroBatch, without_special_tokens


class RewardModel:
    """Scorer with the chosen logit of the last token (decoders) or of the pooled first one (encoders), as defined by
    the model."""

    def __init__(self, config: RewardModelBaseline) -> None:
        """Load the model.

        Raises:
            CheckpointError: the model cannot be read, has no such logit, or its tokenizer lacks the configured chat
                template.
        """
        self.name = config.name
        self._label = config.label
        self._loaded = LoadedModel(config, AutoModelForSequenceClassification)
        if config.label >= self._loaded.model.config.num_labels:
            raise CheckpointError(
                f"baseline {config.name!r}: {config.model!r} has {self._loaded.model.config.num_labels} logits; "
                f"label {config.label} is not among them (they count from 0)"
            )
        has_template = self._loaded.tokenizer.chat_template is not None
        if config.input_format == "chat" and not has_template:
            raise CheckpointError(
                f"baseline {config.name!r}: the tokenizer of {config.model!r} has no chat template; use input_format: "
                "pair, or add a chat_template.jinja to the model's folder"
            )
        self._as_chat = has_template if config.input_format == "auto" else config.input_format == "chat"
        # Decoders locate a row's last token by this id; without one, texts are run one at a time.
        self._loaded.model.config.pad_token_id = self._loaded.pad_id()

    def score(self, pools: Sequence[PoolTexts]) -> list[list[TextScore]]:
        ids = [self._ids(problem, text) for problem, text in flattened(pools)]
        return regrouped(pools, self._loaded.over(ids, read=self._read))

    def _ids(self, problem: str, text: str) -> tuple[int, ...]:
        tokenizer = self._loaded.tokenizer
        problem, text = (without_special_tokens(tokenizer, part) for part in (problem, text))
        if self._as_chat:
            return chat_ids(tokenizer, problem, text)
        return tuple(tokenizer(problem, text, verbose=False)["input_ids"])

    def _read(self, output: Any, batch: MicroBatch) -> list[TextScore]:
        return values(output.logits[:, self._label])
