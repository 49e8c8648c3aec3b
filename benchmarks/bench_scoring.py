"""Scoring of one pool: raydebm's engine against a plain PEFT loop over adapters, in interleaved rounds.

python benchmarks/bench_scoring.py --backbone package:minilm --texts 32 --rounds 5
python benchmarks/bench_scoring.py --layers "upper half"      # the lower blocks run once for all adapters

With ``--config``, a decoder scores a recipe's recorded pool: each problem read once, against whole texts.

python benchmarks/bench_scoring.py --backbone FOLDER --config configs/gsm8k_44_models.yaml --rounds 1
"""

import argparse
import copy
import random
from collections.abc import Callable, Sequence
from typing import Any

import torch
from bench_common import backbone_of, interleave, peft_model, pool_ids, versions_line
from peft import PeftModel, get_peft_model_state_dict
from scipy.stats import spearmanr
from torch import Tensor

from raydebm.config import PAPER_ADAPTERS, AdapterConfig, load_recipe
from raydebm.config.scorer import NAMED_LAYERS
from raydebm.generators.recorded import import_pool
from raydebm.pipeline.stages.problems import load_problems
from raydebm.scorer.checkpoint import StoredAdapter
from raydebm.scorer.checkpoint_records import AdapterRecord
from raydebm.scorer.ensemble import MergedEngine
from raydebm.scorer.model.backbone import Backbone, converted
from raydebm.scorer.model.batching import TextEncoder, micro_batches, pad
from raydebm.scorer.model.head import EnergyHead
from raydebm.scorer.model.precision import gain_of_bfloat16


def heads_of(backbone: Backbone) -> list[EnergyHead]:
    generator = torch.Generator().manual_seed(3)
    heads = []
    for _ in PAPER_ADAPTERS:
        head = EnergyHead(backbone.hidden_size)
        with torch.no_grad():
            head.out.weight.copy_(torch.randn(head.out.weight.shape, generator=generator) * 0.05)
        heads.append(head.eval())
    return heads


class PeftLoop:
    """The simplest implementation: ``set_adapter`` and a forward pass for each adapter."""

    def __init__(
        self, model: PeftModel, heads: Sequence[EnergyHead], ids: Sequence[tuple[int, ...]], *, batches: str
    ) -> None:
        self._model, self._heads, self._num_texts = model, heads, len(ids)
        if batches == "padded":
            self._batches = [pad(ids, positions=range(len(ids)), pad_id=0)]
        else:
            self._batches = micro_batches(ids, max_tokens=8192, pad_id=0)

    @torch.inference_mode()
    def __call__(self) -> Tensor:
        energies = torch.empty(len(self._heads), self._num_texts)
        device = self._model.device
        for row, (adapter, head) in enumerate(zip(PAPER_ADAPTERS, self._heads, strict=True)):
            self._model.set_adapter(adapter.name)
            for batch in self._batches:
                moved = batch.to(device)
                output = self._model(input_ids=moved.ids, attention_mask=moved.mask)
                energies[row, list(batch.positions)] = head(output.last_hidden_state[:, 0]).cpu()
        return energies


def stored_adapters(
    model: PeftModel, heads: Sequence[EnergyHead], adapters: Sequence[AdapterConfig], *, pooling: str = "cls"
) -> list[StoredAdapter]:
    # Engines read only the adapter and the pooling of a record.
    records = [
        AdapterRecord.model_construct(**dict[str, Any](adapter=adapter, pooling=pooling)) for adapter in adapters
    ]
    return [
        StoredAdapter(
            record=record,
            peft_config={"r": record.adapter.rank, "lora_alpha": record.adapter.alpha},
            lora=get_peft_model_state_dict(model, adapter_name=record.adapter.name, save_embedding_layers=False),
            head=head.state_dict(),
        )
        for record, head in zip(records, heads, strict=True)
    ]


def in_bfloat16(backbone: Backbone) -> Backbone:
    encoder = converted(copy.deepcopy(backbone.encoder), torch.bfloat16)
    return Backbone(
        name=backbone.name, family=backbone.family, encoder=encoder, tokenizer=backbone.tokenizer, fingerprint=""
    )


def rank_correlation(first: Tensor, second: Tensor) -> float:
    """Spearman's rho of the ensemble means."""
    return float(spearmanr(first.mean(0), second.mean(0)).statistic)


def recorded_ids(backbone: Backbone, given: argparse.Namespace) -> list[tuple[int, ...]]:
    """Token ids of answers to a recipe's test problems: distinct answers of its first pool, sampled with the seed."""
    recipe = load_recipe(given.config)
    problems = {problem.problem_id: problem for split, problem, _ in load_problems(recipe) if split == "test"}
    pool: Any = recipe.generators[0]
    answers: dict[str, dict[str | None, None]] = {}
    for one in import_pool(pool.pool, task="", problems=problems.values(), text_fields=pool.text_fields):
        answers.setdefault(one.problem_id, {})[one.text] = None
    rng = random.Random(given.seed)
    chosen = rng.sample([name for name, texts in answers.items() if len(texts) > given.texts], given.problems)
    drawn = [(name, rng.sample([*filter(None, answers[name])], given.texts)) for name in chosen]
    texts = [(problems[name].prompt, text) for name, own in drawn for text in own]
    encoder = TextEncoder(backbone.tokenizer, max_length=given.max_length, is_decoder=backbone.is_decoder)
    return [tuple(text.ids) for text in encoder(texts)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", default="package:minilm", help="a backbone's name, or modernbert-base (random)")
    parser.add_argument("--texts", type=int, default=32, help="candidates per problem")
    parser.add_argument("--config", help="recipe whose recorded pool a decoder reads")
    parser.add_argument("--problems", type=int, default=4, help="number of the recipe's problems")
    parser.add_argument("--max-length", type=int, default=1024, help="maximum tokens of a text of the recipe")
    parser.add_argument("--members", type=int, default=len(PAPER_ADAPTERS), help="number of adapters that score")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--layers", choices=NAMED_LAYERS, default="all", help="blocks that the adapters adapt")
    arguments = parser.parse_args()
    torch.set_num_threads(1)

    backbone = backbone_of(arguments.backbone)
    ids = pool_ids(backbone, num_texts=arguments.texts, seed=arguments.seed)
    if arguments.config:
        ids = recorded_ids(backbone, arguments)
    heads = heads_of(backbone)
    adapters = [adapter.model_copy(update={"layers": arguments.layers}) for adapter in PAPER_ADAPTERS]
    model = peft_model(backbone, adapters)
    stored = stored_adapters(model, heads, adapters, pooling="last" if backbone.is_decoder else "cls")
    single = MergedEngine(backbone, stored, micro_batch_tokens=8192)
    half = MergedEngine(in_bfloat16(backbone), stored, micro_batch_tokens=8192)
    members = range(arguments.members)
    variants: dict[str, Callable[[], Tensor]] = {
        "PEFT set_adapter loop, one padded batch": PeftLoop(model, heads, ids, batches="padded"),
        "PEFT set_adapter loop, sorted micro-batches": PeftLoop(model, heads, ids, batches="sorted"),
    }
    if arguments.config:
        whole, whole_half = copy.copy(single), copy.copy(half)
        whole._shares_prefixes = whole_half._shares_prefixes = False
        variants = {
            "whole texts, float32": lambda: whole.energies(ids, members),
            "whole texts, bfloat16": lambda: whole_half.energies(ids, members),
        }
    variants["raydebm, float32"] = lambda: single.energies(ids, members)
    variants["raydebm, bfloat16"] = lambda: half.energies(ids, members)
    num_tokens = sum(map(len, ids))
    print(f"{arguments.backbone}: {len(ids)} texts, {num_tokens} tokens, K={arguments.members}, 1 thread, CPU time")
    print(f"median of {arguments.rounds} interleaved rounds; {versions_line()}")
    print(f"probe of the scoring dtype: bfloat16 is {gain_of_bfloat16(backbone.encoder):.2f} times as fast")
    timings = interleave(variants, rounds=arguments.rounds)
    for timing in timings:
        difference = float((timing.result - timings[0].result).abs().max())
        print(
            f"{timing.name:45s} {timing.seconds:7.2f} s  x{timing.speedup:5.2f}  "
            f"max difference {difference:.1e}  rho {rank_correlation(timings[0].result, timing.result):.3f}"
        )


if __name__ == "__main__":
    main()
