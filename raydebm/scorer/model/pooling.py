"""One vector per text from the states of its tokens: the input of an energy head.

Shapes: B texts of a micro-batch, T tokens, D hidden size.
"""

import torch
from torch import Tensor

from raydebm.config import Pooling
from raydebm.errors import ConfigError


def check_pooling(pooling: Pooling, *, is_decoder: bool, name: str) -> None:
    """Refuse ``cls`` on a decoder.

    Raises:
        ConfigError: the backbone is a decoder, whose first token does not see the rest of the text.
    """
    if pooling == "cls" and is_decoder:
        raise ConfigError(
            f"pooling is cls, but the first token of the decoder {name!r} does not see the text; set "
            "scorer.pooling, or the adapter's own pooling, to last or mean"
        )


def pooled(states_BTD: Tensor, mask_BT: Tensor, *, pooling: Pooling) -> Tensor:
    """Pooled states, shape (B, D).

    The state of the first token for ``cls`` (the paper's h_CLS), that of the last token for ``last``, the mean over
    tokens for ``mean``. Padding is excluded.

    Args:
        states_BTD: last hidden states.
        mask_BT: 1 at tokens, 0 at padding, which is on the right.
    """
    if pooling == "cls":
        return states_BTD[:, 0]
    if pooling == "last":
        last_B = mask_BT.sum(dim=1) - 1
        return states_BTD[torch.arange(len(last_B), device=last_B.device), last_B]
    weights_BT1 = mask_BT.to(states_BTD.dtype).unsqueeze(-1)
    mean_BD: Tensor = (states_BTD * weights_BT1).sum(dim=1) / weights_BT1.sum(dim=1)
    return mean_BD
