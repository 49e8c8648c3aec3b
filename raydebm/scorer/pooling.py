"""One vector per text from the states of its tokens: what an energy head reads.

Shapes: B texts of a micro-batch, T tokens, D hidden size.
"""

from torch import Tensor

from raydebm.config import Pooling


def pooled(states_BTD: Tensor, mask_BT: Tensor, *, pooling: Pooling) -> Tensor:
    """Shape (B, D). ``cls``: the state of [CLS] (the paper's h_CLS). ``mean``: of all tokens that are no padding.

    Args:
        mask_BT: 1 at tokens, 0 at padding.
    """
    if pooling == "cls":
        return states_BTD[:, 0]
    weights_BT1 = mask_BT.to(states_BTD.dtype).unsqueeze(-1)
    mean_BD: Tensor = (states_BTD * weights_BT1).sum(dim=1) / weights_BT1.sum(dim=1)
    return mean_BD
