"""Reward models: sequence classifiers with a logit for the quality of an answer, such as Skywork-Reward.

Shapes: B texts of a micro-batch.
"""

from collections.abc import Sequence
from typing import Any

from transformers import AutoModelForSequenceClassification

from raydebm.config import ModelBaseline
from raydebm.evaluation.baselines.loading import LoadedModel, chat_ids, values
from raydebm.evaluation.baselines.protocol import PoolTexts, TextScore, flattened, regrouped
from raydebm.scorer.model.batching import MicroBatch, without_special_tokens


class RewardModel:
    """Scorer with the first logit of the last token (decoders) or of the pooled first one (encoders), as defined by
    the model."""

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
            return chat_ids(tokenizer, problem, text)
        return tuple(tokenizer(problem, text, verbose=False)["input_ids"])

    def _read(self, output: Any, batch: MicroBatch) -> list[TextScore]:
        return values(output.logits[:, 0])
