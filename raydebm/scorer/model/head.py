"""The energy head: one vector of a text (h_CLS) to one number (paper, implementation details).

Shapes: B texts, D hidden size.
"""

import torch
from torch import Tensor, nn


class EnergyHead(nn.Module):
    """LayerNorm(D) -> Linear(D, D) -> GELU -> Dropout -> Linear(D, 1), in float32. Lower energy is better.

    The last layer starts at zero (the paper does not specify the start): every energy is 0 and the loss ln 2 at the
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
