"""The scoring dtype on a CPU, chosen by a timed probe.

A CPU's flags do not show whether bfloat16 is faster: with AMX or AVX512-BF16 a forward pass takes a fraction of the
time, without them more than twice as long, and operations other than matrix products gain nothing. So the lowest blocks
of the encoder are timed in both dtypes on random states. The scoring stage then checks on a sample of
its texts that bfloat16 ranks them as float32 does (``ensemble.cpu_dtype_for``).
"""

import copy
import json
import time
from typing import Any

import torch
from torch import nn

from raydebm.scorer.model.blocks import block_list, num_positions, structure_copy, with_blocks

MIN_WIDTH = 256
"""Hidden size below which float32 is used without a probe: such an encoder is fast in either dtype, and its gain is so
close to the threshold that the choice could differ at the next start."""
MIN_GAIN = 1.2
"""Minimum speed-up for bfloat16, which changes energies in their third digit."""
MIN_RANK_CORRELATION = 0.995
"""Minimum rank correlation with the mean energies of float32."""
NUM_BLOCKS = 2
TEXTS, TOKENS = 4, 128
ROUNDS = 3

_chosen: dict[str, torch.dtype] = {}
"""Results of probes in this process, by the encoder's config and the number of threads."""


def cpu_dtype(encoder: nn.Module) -> torch.dtype:
    """bfloat16 if this machine runs the encoder's blocks at least ``MIN_GAIN`` times as fast with it, else float32.

    Probed once per process and config, in less than a second.
    """
    config: Any = encoder.config
    if config.hidden_size < MIN_WIDTH:
        return torch.float32
    key = json.dumps([config.to_dict(), torch.get_num_threads()], sort_keys=True, default=str)
    if key not in _chosen:
        _chosen[key] = torch.bfloat16 if gain_of_bfloat16(encoder) >= MIN_GAIN else torch.float32
    return _chosen[key]


@torch.inference_mode()
def gain_of_bfloat16(encoder: nn.Module) -> float:
    """CPU time of the lowest blocks in float32 divided by that in bfloat16. Each is the minimum over interleaved
    rounds, so that other processes on the machine do not matter."""
    dtypes = (torch.float32, torch.bfloat16)
    models = [_lowest_blocks(encoder, dtype) for dtype in dtypes]
    config: Any = encoder.config
    length = min(TOKENS, num_positions(encoder) or TOKENS)
    states_BTD = torch.randn(TEXTS, length, config.hidden_size, generator=torch.Generator().manual_seed(0))
    mask_BT = torch.ones(TEXTS, length, dtype=torch.long)
    seconds = [float("inf"), float("inf")]
    for round_index in range(ROUNDS + 1):
        for index, (model, dtype) in enumerate(zip(models, dtypes, strict=True)):
            started = time.process_time()
            model(inputs_embeds=states_BTD.to(dtype), attention_mask=mask_BT)
            if round_index > 0:  # the first round warms up
                seconds[index] = min(seconds[index], time.process_time() - started)
    return seconds[0] / max(seconds[1], 1e-9)


def _lowest_blocks(encoder: nn.Module, dtype: torch.dtype) -> nn.Module:
    """The encoder with only its lowest blocks, in a dtype. The word embeddings are shared with the encoder: the probe
    does not use them, and they are most of a small model's weights."""
    shell: Any = structure_copy(encoder)
    with_blocks(shell, block_list(shell)[1][:NUM_BLOCKS])
    memo: dict[int, Any] = {id(tensor): tensor for tensor in shell.buffers()}
    memo |= {id(weight): nn.Parameter(weight.to(dtype), requires_grad=False) for weight in shell.parameters()}
    memo |= {id(weight): weight for weight in shell.get_input_embeddings().parameters()}
    model: nn.Module = copy.deepcopy(shell, memo)
    return model
