"""The features that a repair trains heads on, and the energies by the repaired heads, on answers of a finished run.

python benchmarks/bench_repair.py --run runs/gsm8k-recorded --texts 64 --rounds 3

Two ways to features alone, a PEFT loop that encodes text by text and the feature extractor; and two ways to features
and energies, where each step reads the texts and where the energies are made of the features. Float32.
"""

import argparse
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from bench_common import interleave, versions_line
from peft import PeftModel
from torch import Tensor

from raydebm.confounding.features import FeatureExtractor
from raydebm.run.directory import RunDir
from raydebm.scorer.checkpoint import read_ensemble
from raydebm.scorer.ensemble import EnsembleScorer
from raydebm.scorer.member_groups import load_backbones
from raydebm.scorer.model.backbone import Backbone
from raydebm.scorer.model.batching import TextEncoder
from raydebm.scorer.model.blocks import structure_copy
from raydebm.scorer.model.pooling import pooled

Texts = Sequence[tuple[str, str]]


def texts_of(run: RunDir, *, count: int, seed: int) -> list[tuple[str, str]]:
    """Candidates of all problems, drawn at random."""
    prompts = {row.problem.problem_id: row.problem.prompt for row in run.problems()}
    reasoning = run.recipe().scorer.reasoning
    read = (candidate.as_scored(reasoning) for candidate in run.candidates() if candidate.text)
    texts = [(prompts[candidate.problem_id], candidate.text or "") for candidate in read]
    return random.Random(seed).sample(texts, min(count, len(texts)))


class PeftLoop:
    """What one writes first: for each adapter ``set_adapter``, for each text a forward pass."""

    def __init__(self, folder: Path, backbone: Backbone) -> None:
        record, _ = read_ensemble(folder)
        first, *others = record.adapters
        self._model = PeftModel.from_pretrained(structure_copy(backbone.encoder), folder / first, adapter_name=first)
        for name in others:
            self._model.load_adapter(str(folder / name), adapter_name=name)
        self._model.eval()
        self._members = record.members
        self._encoder = TextEncoder(
            backbone.tokenizer, max_length=record.members[0].max_length, is_decoder=backbone.is_decoder
        )

    @torch.no_grad()
    def states(self, texts: Texts) -> list[Tensor]:
        """Shape (N, D), for each adapter."""
        ids = [torch.tensor([text.ids]) for text in self._encoder(texts)]
        states = []
        for member in self._members:
            self._model.set_adapter(member.name)
            rows = [self._model(input_ids=row).last_hidden_state for row in ids]
            masks = [torch.ones_like(row) for row in ids]
            read = [pooled(row, mask, pooling=member.pooling) for row, mask in zip(rows, masks, strict=True)]
            states.append(torch.cat(read))
        return states


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", required=True, help="a finished run on one backbone, with local folders")
    parser.add_argument("--texts", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)

    folder = Path(options.run) / "scorer"
    texts = texts_of(RunDir(options.run), count=options.texts, seed=options.seed)
    record, adapters = read_ensemble(folder)
    backbones = load_backbones(record, device="cpu", dtype="float32")
    peft = PeftLoop(folder, backbones[0])

    def extractor() -> FeatureExtractor:
        return FeatureExtractor(record, adapters, folder=folder, backbones=backbones)

    def read_twice() -> None:
        extractor().states(texts)
        EnsembleScorer.of_parts(record, adapters, backbones=backbones).score(texts)

    def read_once() -> None:
        features = extractor()
        features.states(texts)
        features.scorer(folder).score(texts)

    variants: dict[str, Callable[[], object]] = {
        "features: PEFT, text by text": lambda: peft.states(texts),
        "features: extractor": lambda: extractor().states(texts),
        "features and energies: texts read twice": read_twice,
        "features and energies: texts read once": read_once,
    }
    difference = max(
        float((first - second).abs().max())
        for first, second in zip(peft.states(texts), extractor().states(texts), strict=True)
    )
    print(f"{len(texts)} texts, K={len(adapters)}, 1 thread, CPU time, float32; {versions_line()}")
    print(f"median of {options.rounds} interleaved rounds; largest difference of a feature {difference:.1e}")
    for timing in interleave(variants, rounds=options.rounds):
        print(f"{timing.name:42s} {timing.seconds:7.2f} s  x{timing.speedup:5.2f}")


if __name__ == "__main__":
    main()
