"""Choosing one of a recorded pool's candidates by energy: raydebm against the plain PEFT loop, in the same run.

python benchmarks/bench_choice.py --run runs/knights-knaves-recorded --pools 3

Two things are told of reading most candidates by the first adapters only (``EnsembleScorer.lowest``): what it saves, on
some pools that are timed, and how often the choice stays the same, on all pools of the run, from the energies that the
run holds. Float32.
"""

import argparse
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import fmean

import torch
from bench_common import interleave, versions_line
from peft import PeftModel
from torch import Tensor

from raydebm.run.directory import RunDir
from raydebm.scorer.checkpoint import StoredAdapter, read_ensemble
from raydebm.scorer.checkpoint_records import EnsembleRecord
from raydebm.scorer.ensemble import EnsembleScorer, backbone_for, leaders
from raydebm.scorer.model.backbone import Backbone
from raydebm.scorer.model.batching import TextEncoder, pad
from raydebm.scorer.model.blocks import structure_copy
from raydebm.scorer.model.head import EnergyHead
from raydebm.scorer.model.pooling import pooled

Pool = list[tuple[str, str]]
FIRST = (1, 2, 3)
SHARES = (0.125, 0.25, 0.5)


class PeftLoop:
    """What one writes first: the pool in one padded batch, for each adapter ``set_adapter`` and a forward pass."""

    def __init__(
        self, folder: Path, record: EnsembleRecord, stored: Sequence[StoredAdapter], backbone: Backbone
    ) -> None:
        encoder = structure_copy(backbone.encoder)
        first, *others = record.adapters
        self._model = PeftModel.from_pretrained(encoder, folder / first, adapter_name=first).eval()
        for name in others:
            self._model.load_adapter(str(folder / name), adapter_name=name)
        self._heads = {}
        for adapter in stored:
            head = EnergyHead(backbone.hidden_size)
            head.load_state_dict(dict(adapter.head))
            self._heads[adapter.record.adapter.name] = head.eval()
        self._record, self._pad_id = record, int(backbone.tokenizer.pad_token_id)
        self._encoder = TextEncoder(backbone.tokenizer, max_length=record.max_length, is_decoder=backbone.is_decoder)

    @torch.inference_mode()
    def energies(self, pool: Pool) -> Tensor:
        """Shape (adapters, candidates)."""
        ids = [text.ids for text in self._encoder(pool)]
        batch = pad(ids, positions=range(len(ids)), pad_id=self._pad_id)
        rows = []
        for name, head in self._heads.items():
            self._model.set_adapter(name)
            states = self._model(input_ids=batch.ids, attention_mask=batch.mask).last_hidden_state
            rows.append(head(pooled(states, batch.mask, pooling=self._record.pooling)))
        return torch.stack(rows)


def pools_of(run: RunDir) -> dict[str, tuple[Pool, list[tuple[float, ...]]]]:
    """problem id -> candidates that have all energies, as texts, and their energies; two at least."""
    prompts = {one.problem.problem_id: one.problem.prompt for one in run.problems()}
    reasoning = run.recipe().scorer.reasoning
    candidates = {one.candidate_id: one.as_scored(reasoning) for one in run.candidates()}
    pools: dict[str, tuple[Pool, list[tuple[float, ...]]]] = defaultdict(lambda: ([], []))
    for row in run.energies():
        if row.members and None not in row.members:
            candidate = candidates[row.candidate_id]
            texts, energies = pools[candidate.problem_id]
            texts.append((prompts[candidate.problem_id], candidate.text or ""))
            energies.append(tuple(float(energy or 0.0) for energy in row.members))
    return {name: pool for name, pool in pools.items() if len(pool[0]) > 1}


def choice(energies: Sequence[Sequence[float]], *, first: int, share: float) -> tuple[int, int]:
    """What ``EnsembleScorer.lowest`` chooses by these energies, and how many forward passes it takes."""
    finalists = leaders([math.fsum(members[:first]) for members in energies], share=share)
    chosen = min(finalists, key=lambda position: (math.fsum(energies[position]), position))
    return chosen, first * len(energies) + (len(energies[0]) - first) * len(finalists)


def table_of_choices(pools: Sequence[Sequence[Sequence[float]]]) -> Iterator[str]:
    sizes = [len(pool) for pool in pools]
    yield f"{len(pools)} pools of {min(sizes)} to {max(sizes)} candidates (mean {fmean(sizes):.1f}), recorded energies"
    full = [choice(pool, first=len(pool[0]), share=1.0) for pool in pools]
    for first in FIRST:
        for share in SHARES:
            early = [choice(pool, first=first, share=share) for pool in pools]
            same = sum(one == other for (one, _), (other, _) in zip(early, full, strict=True))
            fewer = sum(len(pool) * len(pool[0]) for pool in pools) / sum(passes for _, passes in early)
            yield f"first {first}, share {share:5.3f}: same choice {same}/{len(pools)}, {fewer:.2f} times fewer passes"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", required=True, help="a run directory with a scorer and energies")
    parser.add_argument("--pools", type=int, default=3, help="how many are timed")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--first", type=int, default=2, help="as EnsembleScorer.lowest has it; so is --share")
    parser.add_argument("--share", type=float, default=0.25)
    arguments = parser.parse_args()
    torch.set_num_threads(1)

    run = RunDir(arguments.run)
    folder = Path(run.uri("scorer"))
    record, stored = read_ensemble(folder)
    pools = pools_of(run)
    for line in table_of_choices([energies for _, energies in pools.values()]):
        print(line)

    backbone = backbone_for(record, device="cpu", dtype="float32")
    loop = PeftLoop(folder, record, stored, backbone)
    scorer = EnsembleScorer.of_parts(record, stored, backbone=backbone)
    timed = [texts for texts, _ in list(pools.values())[: arguments.pools]]
    choose: dict[str, Callable[[Pool], int]] = {
        "PEFT set_adapter loop": lambda pool: int(loop.energies(pool).mean(0).argmin()),
        "raydebm, all adapters": lambda pool: scorer.lowest(pool, first=len(stored)),
        f"raydebm, first {arguments.first}, share {arguments.share}": lambda pool: scorer.lowest(
            pool, first=arguments.first, share=arguments.share
        ),
    }
    chosen: dict[str, list[int]] = {}

    def variant(name: str) -> Callable[[], None]:
        return lambda: chosen.update({name: [choose[name](pool) for pool in timed]})

    for timing in interleave({name: variant(name) for name in choose}, rounds=arguments.rounds):
        same = sum(map(int.__eq__, chosen[timing.name], chosen["PEFT set_adapter loop"]))
        print(f"{timing.name:35s} {timing.seconds:7.2f} s  x{timing.speedup:5.2f}  same choice {same}/{len(timed)}")
    num_texts = sum(map(len, timed))
    print(f"{len(timed)} pools, {num_texts} texts, K={len(stored)}, 1 thread, CPU time; {versions_line()}")


if __name__ == "__main__":
    main()
