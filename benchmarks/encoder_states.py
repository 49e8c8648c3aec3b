"""An encoder of sentences that reads problem and answer: frozen features, without an adapter and without training.

In:   pairs of problem and answer.
Out:  their pooled hidden states: of a middle layer and of the last one, each the mean over all tokens, then over the
      last ones. The same four parts as ``raydebm.baselines.causal_reader.StatePooling`` gives of a decoder, there over
      the answer's tokens alone, which have seen the problem.
"""

from collections.abc import Sequence

import numpy as np
import torch

from raydebm.baselines.causal_reader import StatePooling
from raydebm.baselines.readings import Reading
from raydebm.scorer.model.backbone import load_backbone
from raydebm.scorer.model.batching import TextEncoder, micro_batches


class EncoderStates:
    """Reads with a frozen encoder, in float32, on a GPU where there is one."""

    def __init__(self, model: str, *, max_length: int, micro_batch_tokens: int, last_tokens: int) -> None:
        self._backbone = load_backbone(model, dtype="float32")
        middle = int(self._backbone.encoder.config.num_hidden_layers) // 2
        self._pooling = StatePooling(layers=(middle, -1), last_tokens=last_tokens)
        self._encoder = TextEncoder(self._backbone.tokenizer, max_length=min(max_length, self._backbone.context))
        self._micro_batch_tokens = micro_batch_tokens

    @torch.inference_mode()
    def read(self, texts: Sequence[tuple[str, str]]) -> list[Reading]:
        """One reading per text, in order: features, and no signals."""
        encoded = self._encoder(texts)
        pad_id = int(self._backbone.tokenizer.pad_token_id)
        readings = [Reading.failed("an encoder gives no log-probabilities")] * len(texts)
        for batch in micro_batches([text.ids for text in encoded], max_tokens=self._micro_batch_tokens, pad_id=pad_id):
            moved = batch.to(self._backbone.device)
            output = self._backbone.encoder(input_ids=moved.ids, attention_mask=moved.mask, output_hidden_states=True)
            for row, place in enumerate(batch.positions):
                tokens = len(encoded[place].ids)
                features = self._pooling(output.hidden_states, row, slice(0, tokens)).astype(np.float32)
                readings[place] = Reading(None, None, None, num_tokens=tokens, features=features)
        return readings
