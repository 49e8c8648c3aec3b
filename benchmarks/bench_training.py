"""One optimiser step of one adapter: raydebm against plain PEFT training on pairs, in interleaved rounds.

python benchmarks/bench_training.py --backbone package:minilm --texts 16 --pairs 16 --rounds 5
"""

import argparse
import math
import random
from collections.abc import Callable

import torch
from bench_common import backbone_of, interleave, peft_model, pool_ids, versions_line

from raydebm.config import PAPER_ADAPTERS, AdapterConfig
from raydebm.scorer.model.backbone import Backbone
from raydebm.scorer.model.batching import MicroBatch, micro_batches, pad
from raydebm.scorer.model.head import EnergyHead
from raydebm.scorer.training.gradient import backward
from raydebm.scorer.training.loss import bradley_terry_loss, step_pairs
from raydebm.scorer.training.member import EnsembleMember

Ids = list[tuple[int, ...]]
Pairs = list[tuple[int, int]]


def plain_peft(backbone: Backbone, adapter: AdapterConfig, ids: Ids, pairs: Pairs) -> Callable[[], float]:
    """The simplest implementation: both texts of every pair in one padded batch, the whole model in training mode."""
    model = peft_model(backbone, [adapter]).train()
    head = EnergyHead(backbone.hidden_size)
    parameters = [parameter for parameter in (*model.parameters(), *head.parameters()) if parameter.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, weight_decay=0.01)
    positions = [chosen for chosen, _ in pairs] + [rejected for _, rejected in pairs]
    batch = pad(ids, positions=positions, pad_id=backbone.tokenizer.pad_token_id)
    rows = step_pairs([("p", 2 * len(pairs), [(i, len(pairs) + i) for i in range(len(pairs))])], device=model.device)

    def step() -> float:
        output = model(input_ids=batch.ids, attention_mask=batch.mask)
        loss = bradley_terry_loss(head(output.last_hidden_state[:, 0]), rows)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return float(loss.detach())

    return step


def ours(
    backbone: Backbone,
    adapter: AdapterConfig,
    ids: Ids,
    pairs: Pairs,
    *,
    autocast: torch.dtype | None = None,
    max_tokens: int = 8192,
    in_two_phases: bool = False,
) -> Callable[[], float]:
    """raydebm's step: each distinct text once, in micro-batches of similar length."""
    member = EnsembleMember(backbone, adapter, head_dropout=0.2, autocast=autocast).train()
    parameters = [parameter for _, parameter in member.trainable()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, weight_decay=0.01)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    rows = step_pairs([("p", len(ids), pairs)], device=member.device)

    def limit(batches: list[MicroBatch]) -> float:
        """Memory limit: none, or ``in_two_phases`` only the size of the largest micro-batch."""
        return max(member.graph_bytes([batch]) for batch in batches) if in_two_phases else math.inf

    def step() -> float:
        batches = micro_batches(ids, max_tokens=max_tokens, pad_id=backbone.tokenizer.pad_token_id)
        loss = backward(member, batches, rows, scaler=scaler, max_graph_bytes=limit(batches))
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", default="package:minilm", help="a backbone's name, or modernbert-base (random)")
    parser.add_argument("--texts", type=int, default=16, help="distinct candidates of the problem")
    parser.add_argument("--pairs", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)

    backbone = backbone_of(arguments.backbone)
    ids = pool_ids(backbone, num_texts=arguments.texts, seed=arguments.seed)
    rng = random.Random(arguments.seed)
    half = arguments.texts // 2
    pairs = [(rng.randrange(half), rng.randrange(half, arguments.texts)) for _ in range(arguments.pairs)]
    adapter = PAPER_ADAPTERS[0]
    variants: dict[str, Callable[[], object]] = {
        "plain PEFT, two padded texts per pair": plain_peft(backbone, adapter, ids, pairs),
        "raydebm, float32": ours(backbone, adapter, ids, pairs),
        "raydebm, float32, in two phases": ours(backbone, adapter, ids, pairs, max_tokens=1024, in_two_phases=True),
        "raydebm, bfloat16": ours(backbone, adapter, ids, pairs, autocast=torch.bfloat16),
    }
    num_tokens = sum(map(len, ids))
    print(
        f"{arguments.backbone}: {len(ids)} distinct texts, {num_tokens} tokens, {len(pairs)} pairs, "
        f"adapter {adapter.name}, 1 thread, CPU time"
    )
    print(f"median of {arguments.rounds} interleaved rounds; {versions_line()}")
    for timing in interleave(variants, rounds=arguments.rounds):
        rate = len(pairs) / timing.seconds
        print(f"{timing.name:40s} {timing.seconds:7.2f} s/step  {rate:7.1f} pairs/s  x{timing.speedup:5.2f}")


if __name__ == "__main__":
    main()
