"""Does it pay that the members of an ensemble differ? Kinds of ensembles on the pools of one finished run.

    python benchmarks/ensemble_kinds.py runs/gsm8k-recorded

Trains, as variants of the run: five seeds of its first adapter, and this adapter without the answers of one author, for
each author. Without a training: draws from a Laplace approximation of the first adapter's last layer, and its forward
passes with dropout. All of them score the test problems' candidates; selection is by the lowest mean energy, without
constraints.

First table: accuracy, and the paper's theory (Proposition 1): mean accuracy q of a member on pairs of a right and a
wrong answer, correlation rho of the members' errors, what both predict for the mean of the members, and what it
reaches. Second table: whether the members' disagreement says that the selection is wrong; between problems with the
same share of votes (thirds of the problems), because the votes say much of it already. Intervals: 95 %, percentile
bootstrap over problems, 2,000 times. The Laplace approximation (Daxberger et al., arXiv 2106.14806) is of the pairs'
logistic likelihood, its prior precision the one under which the validation pairs are most likely.
"""

import argparse
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from sigma_signals import margin_spread, strata, within
from torch import Tensor

from raydebm.config import AdapterConfig, Recipe, VariantConfig, parse_recipe
from raydebm.confounding.screen import screen, with_energies
from raydebm.distributed.session import ray_session
from raydebm.evaluation.certainty.signals import SIGMA, signals
from raydebm.evaluation.pools.pool import EvaluatedPool, Floats
from raydebm.evaluation.pools.stack import Stack
from raydebm.evaluation.report.table_cells import number, points, with_interval
from raydebm.evaluation.results.theory import ensemble_theory
from raydebm.evaluation.stats.intervals import Bootstrap
from raydebm.pipeline.context import TEST, TRAIN, VALIDATION
from raydebm.pipeline.pools import evaluated_pools
from raydebm.pipeline.runner import Pipeline
from raydebm.pipeline.studies.variants import make_variants
from raydebm.records import Candidate, Energies
from raydebm.run.directory import RunDir
from raydebm.scorer.checkpoint import StoredAdapter, read_ensemble
from raydebm.scorer.ensemble import EnsembleScorer, MergedEngine, head_of
from raydebm.scorer.member_groups import MemberGroup, group_members, load_backbones
from raydebm.scorer.model.batching import micro_batches
from raydebm.scorer.training.member import HEAD, LORA, EnsembleMember

NUM_MEMBERS = 5
PRECISIONS = tuple(10.0**power for power in range(-3, 5))
"""Prior precisions of the Laplace approximation that are tried."""
WITHOUT = "without-"
MICRO_BATCH_TOKENS = 4096

MemberEnergies = Mapping[str, tuple[float, ...]]
"""Energies of the members, by candidate id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """The run's candidates as the scorer reads them."""

    by_id: Mapping[str, tuple[str, str]]
    """(problem, answer)."""
    tested: tuple[str, ...]
    """Ids of the test problems' candidates."""

    def of(self, ids: Sequence[str]) -> list[tuple[str, str]]:
        return [self.by_id[candidate_id] for candidate_id in ids]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dir")
    parser.add_argument("--problems", type=int, help="so many of the test problems; all without it")
    given = parser.parse_args()
    recipe = parse_recipe({**RunDir(given.run_dir).read_json("recipe.json"), "run_dir": given.run_dir}, where="recipe")
    recipe = recipe.model_copy(update={"variants": tuple(variants_of(recipe))})
    with ray_session(recipe.ray):
        family = make_variants(Pipeline(recipe=recipe))
        for _, child in family.variants:
            child.make("scorer")
    pools = evaluated_pools(family.run, TEST)[: given.problems]
    kinds = dict(kinds_of(family.run, {variant.name: child for variant, child in family.variants}, pools))
    print("\n".join(tables(pools, kinds, seed=recipe.seed)))


def variants_of(recipe: Recipe) -> Iterator[VariantConfig]:
    """The ensembles that are trained."""
    one = recipe.scorer.adapters[0]
    yield VariantConfig(name="seeds", scorer=_adapters(*(_named(one, f"s{index}") for index in range(NUM_MEMBERS))))
    authors = [generator.name for generator in recipe.generators]
    for author in authors:
        others = tuple(name for name in authors if name != author)
        yield VariantConfig(name=WITHOUT + author, generators=others, scorer=_adapters(one))


def _adapters(*adapters: AdapterConfig) -> dict[str, object]:
    return {"adapters": [adapter.model_dump(mode="json") for adapter in adapters]}


def _named(adapter: AdapterConfig, name: str) -> AdapterConfig:
    return adapter.model_copy(update={"name": name})


def kinds_of(
    run: Pipeline, variants: Mapping[str, Pipeline], pools: Sequence[EvaluatedPool]
) -> Iterator[tuple[str, MemberEnergies]]:
    """Each kind's name and energies; the first is one adapter alone, which the others are compared with."""
    texts = _texts(run, pools)
    known = [scored.energies for pool in pools for scored in pool.candidates if scored.energies is not None]
    paper = {energies.candidate_id: energies.members for energies in known}
    yield "one adapter", {candidate_id: members[:1] for candidate_id, members in paper.items()}
    yield "five different adapters", paper
    yield "five seeds of one adapter", _scored(variants["seeds"], texts)
    parts = [_scored(child, texts) for name, child in variants.items() if name.startswith(WITHOUT)]
    without = {each: tuple(energy for part in parts for energy in part[each]) for each in texts.tested}
    yield f"one adapter, {len(parts)} times without one author", without
    yield "one adapter, last layer by Laplace", laplace(run, texts)
    yield "one adapter, with dropout", with_dropout(run, texts)


def _texts(run: Pipeline, pools: Sequence[EvaluatedPool]) -> Texts:
    prompts, tested = run.problems(), {scored.candidate.candidate_id for pool in pools for scored in pool.candidates}
    scored = [candidate.as_scored(run.recipe.scorer.reasoning) for candidate in run.run.candidates()]
    with_text: list[Candidate] = [candidate for candidate in scored if candidate.text is not None]
    return Texts(
        by_id={each.candidate_id: (prompts[each.problem_id].prompt, each.text or "") for each in with_text},
        tested=tuple(each.candidate_id for each in with_text if each.candidate_id in tested),
    )


def _scored(run: Pipeline, texts: Texts) -> MemberEnergies:
    scorer = EnsembleScorer.load(run.run.uri("scorer"), micro_batch_tokens=MICRO_BATCH_TOKENS)
    scores = scorer.score(texts.of(texts.tested))
    return {candidate_id: score.members for candidate_id, score in zip(texts.tested, scores, strict=True)}


@torch.no_grad()
def laplace(run: Pipeline, texts: Texts) -> MemberEnergies:
    """Energies of heads drawn from N(w, H^-1), H = sum of p (1 - p) d d^T over training pairs + precision I.

    d is the difference of the last layer's inputs of a pair, p the probability that the pair is in order.
    """
    adapter, group = _first_member(run)
    head = head_of(adapter, hidden_size=group.backbone.hidden_size)
    pairs = {split: [(pair.chosen, pair.rejected) for pair in run.run.pairs(split)] for split in (TRAIN, VALIDATION)}
    in_pairs = [candidate_id for split in pairs.values() for pair in split for candidate_id in pair]
    needed = list(dict.fromkeys([*texts.tested, *in_pairs]))
    ids = [text.ids for text in group.encoder(texts.of(needed))]
    states = MergedEngine(group.backbone, [adapter], micro_batch_tokens=MICRO_BATCH_TOKENS).features(ids, [0])[0]
    inputs = torch.nn.functional.gelu(head.hidden(head.norm(states))).double()
    row = {candidate_id: place for place, candidate_id in enumerate(needed)}

    def differences(split: str) -> Tensor:
        better, worse = (torch.tensor([row[pair[side]] for pair in pairs[split]]) for side in (0, 1))
        return inputs[worse] - inputs[better]

    weights, train, held_out = head.out.weight[0].double(), differences(TRAIN), differences(VALIDATION)
    covariances = {precision: _covariance(train, weights, precision) for precision in PRECISIONS}
    best = max(PRECISIONS, key=lambda precision: _likelihood(held_out, weights, covariances[precision]))
    generator = torch.Generator().manual_seed(run.recipe.seed)
    noise = torch.randn(len(weights), NUM_MEMBERS, generator=generator, dtype=torch.float64)
    drawn = weights[:, None] + torch.linalg.cholesky(covariances[best]) @ noise
    return _by_id(texts.tested, inputs[: len(texts.tested)] @ drawn)


def _covariance(differences: Tensor, weights: Tensor, precision: float) -> Tensor:
    right = torch.sigmoid(differences @ weights)
    hessian = (differences * (right * (1 - right))[:, None]).T @ differences
    covariance: Tensor = torch.linalg.inv(hessian + precision * torch.eye(len(weights), dtype=torch.float64))
    return covariance


def _likelihood(differences: Tensor, weights: Tensor, covariance: Tensor) -> float:
    """Mean log-likelihood of pairs under the distribution of heads, by MacKay's approximation."""
    variance = ((differences @ covariance) * differences).sum(dim=1)
    margins = (differences @ weights) / torch.sqrt(1 + math.pi / 8 * variance)
    return float(torch.nn.functional.logsigmoid(margins).mean())


@torch.no_grad()
def with_dropout(run: Pipeline, texts: Texts) -> MemberEnergies:
    """Energies of the first adapter in forward passes with the dropout of its training."""
    stored, group = _first_member(run)
    config, rate = run.recipe.scorer.adapters[0], run.recipe.scorer.head_dropout
    pooling = stored.record.pooling
    member = EnsembleMember(group.backbone, config, head_dropout=rate, autocast=None, pooling=pooling)
    state = {LORA + key: tensor for key, tensor in stored.lora.items()}
    member.load_trainable_state(state | {HEAD + key: tensor for key, tensor in stored.head.items()})
    member.train()
    torch.manual_seed(run.recipe.seed)
    ids = [text.ids for text in group.encoder(texts.of(texts.tested))]
    energies = torch.empty(len(ids), NUM_MEMBERS)
    for index in range(NUM_MEMBERS):
        pad_id = int(group.backbone.tokenizer.pad_token_id)
        for batch in micro_batches(ids, max_tokens=MICRO_BATCH_TOKENS, pad_id=pad_id):
            energies[list(batch.positions), index] = member(batch)
    return _by_id(texts.tested, energies)


def _first_member(run: Pipeline) -> tuple[StoredAdapter, MemberGroup]:
    """The run's first adapter, and its backbone with the tokenizer."""
    record, adapters = read_ensemble(Path(run.run.uri("scorer")))
    (group, *_) = group_members(record, adapters, load_backbones(record, dtype="float32"))
    return adapters[0], group


def _by_id(ids: Sequence[str], energies: Tensor) -> MemberEnergies:
    return {candidate_id: tuple(row) for candidate_id, row in zip(ids, energies.tolist(), strict=True)}


def tables(pools: Sequence[EvaluatedPool], kinds: Mapping[str, MemberEnergies], *, seed: int) -> list[str]:
    """Both tables, in Markdown."""
    bootstrap = Bootstrap.of(len(pools), num_bootstrap=2000, seed=seed)
    stacks, aurocs = dict[str, Stack](), dict[str, str]()
    for name, energies in kinds.items():
        records = {each: Energies(candidate_id=each, members=members) for each, members in energies.items()}
        changed = with_energies(pools, records)
        stacks[name] = Stack.of(changed)
        aurocs[name] = number(screen(changed, lambda_=0.0, bootstrap=bootstrap).within_auroc)
    base = right_by_energy(next(iter(stacks.values())))
    lines = [
        "| ensemble | correct % | minus one adapter, points | AUROC within author | q | rho | predicted | measured |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, stack in stacks.items():
        right = right_by_energy(stack)
        cells = [with_interval(bootstrap.proportion(right)), points(bootstrap.mean(right - base)), aurocs[name]]
        lines.append(f"| {name} | " + " | ".join([*cells, *_theory_cells(stack, bootstrap)]) + " |")
    lines += ["", "| ensemble | signal | AUROC | between equal vote shares |", "|---|---|---:|---:|"]
    for name, stack in list(stacks.items())[1:]:
        lines += [f"| {name} | {line}" for line in _signal_lines(stack, bootstrap)]
    return lines


def right_by_energy(stack: Stack) -> Floats:
    """(P,): whether the candidate of lowest mean energy is right; NaN without a label."""
    mu = stack.mu()
    return stack.at(stack.correct, stack.lowest(stack.energy(mu, 0.0), mu))


def _theory_cells(stack: Stack, bootstrap: Bootstrap) -> list[str]:
    theory = ensemble_theory(stack, bootstrap)
    if theory is None:
        return ["-"] * 4
    predicted = "-" if theory.predicted is None else f"{theory.predicted:.3f}"
    return [number(theory.q), number(theory.rho), predicted, number(theory.measured)]


def _signal_lines(stack: Stack, bootstrap: Bootstrap) -> Iterator[str]:
    mu = stack.mu()
    picked = stack.lowest(stack.energy(mu, 0.0), mu)
    correct = stack.at(stack.correct, picked)
    by_name = {signal.name: signal.values for signal in signals(stack, 0.0, constant=True)}
    shares = strata(by_name["vote share"])
    columns = {
        "sigma of the pick": by_name[SIGMA],
        "spread of the margin": -margin_spread(stack, picked),
        "agreement of the members": by_name["adapter agreement"],
    }
    for name, values in columns.items():
        within_strata = within(values, correct, shares, bootstrap)
        yield f"{name} | {number(bootstrap.auroc(values, correct))} | {number(within_strata)} |"


if __name__ == "__main__":
    main()
