"""The energy head: pools the states of a text's tokens to a vector (h_CLS), and maps it to an energy (paper, details).

Shapes: B texts, T tokens, D hidden size.
"""

import torch
from torch import Tensor, nn

from raydebm.config import Pooling
from raydebm.errors import ConfigError


class EnergyHead(nn.Module):
    """LayerNorm(D) -> Linear(D, D) -> GELU -> Dropout -> Linear(D, 1), in float32. Lower energy is better.

    The last layer starts at zero (the paper leaves this open): every energy is 0 and the loss ln 2 at the
    first step, so no random ranking has to be unlearned. The Linear(D, D) before it starts at random, from the
    adapter's own seed, which keeps the adapters different from each other.
    """

    def __init__(self, hidden_size: int, *, dropout: float = 0.2) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(hidden_size)
        self.hidden = nn.Linear(hidden_size, hidden_size)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(hidden_size, 1)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, features_BD: Tensor) -> Tensor:
        """Energies, shape (B,), float32 whatever the encoder's dtype: in bfloat16 two good candidates often tie."""
        with torch.autocast(features_BD.device.type, enabled=False):
            hidden_BD = nn.functional.gelu(self.hidden(self.norm(features_BD.float())))
            energies_B: Tensor = self.out(self.dropout(hidden_BD)).squeeze(-1)
        return energies_B


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
