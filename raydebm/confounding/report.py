"""All that is known about a scorer's confounding, as data and as tables. ``pages`` makes documents of them.

In:   evaluated pools; what is at hand of: the scorer, its features, results of style swaps.
Out:  ``ConfoundingReport``.
Does not know: how texts are scored or rewritten, Ray.
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raydebm.confounding.ablation import AblationRow, style_ablation, variants
from raydebm.confounding.author_probe import ProbeData, ProbeRow, probes
from raydebm.confounding.cases import CaseStudies, case_studies, case_tables
from raydebm.confounding.screen import MAX_IDENTITY_SHARE, Screen, screen
from raydebm.confounding.style import STYLES
from raydebm.confounding.swap import SwapResult
from raydebm.evaluation.pools.pool import EvaluatedPool
from raydebm.evaluation.pools.stack import Stack
from raydebm.evaluation.report.table_cells import Table, number, percent, points, with_interval
from raydebm.evaluation.selectors.standard import best_generator_of
from raydebm.evaluation.stats.intervals import Bootstrap, Estimate
from raydebm.identity import seed_for
from raydebm.scorer.bisection import TextScorer

Features = Callable[[Sequence[tuple[str, str]]], NDArray[np.float32]]
"""(problem, candidate) texts to features, shape (R, F): ``FeatureExtractor.joined``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfoundingSettings:
    """What is measured, and how."""

    lambda_: float
    """Weight of E_constraint in the choice."""
    task: str = ""
    """For headings."""
    num_bootstrap: int = 2000
    seed: int = 0
    max_ablation_problems: int | None = 100
    """Problems whose candidates are rescored in every variant, drawn by the seed; None: all."""
    max_probe_texts: int | None = 4000
    """Candidates of whole problems that the probes see; None: all, 0: there are no probes."""
    styles: tuple[str, ...] = tuple(STYLES)
    """Features of style to take out, in this order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What a report can be made from beyond the energies. Whatever is missing leaves its section out."""

    scorer: TextScorer | None = None
    """For the style ablation, code-only and explanation-only scoring."""
    features: Features | None = None
    """For the linear probes."""
    swaps: tuple[SwapResult, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfoundingReport:
    task: str
    scorer: str
    """Which checkpoint."""
    lambda_: float
    best_generator: str | None
    """Chosen on validation pools; None: in hindsight."""
    screen: Screen
    ablation: tuple[AblationRow, ...]
    num_ablation_problems: int
    probes: tuple[ProbeRow, ...]
    swaps: tuple[SwapResult, ...]
    cases: CaseStudies

    def to_json(self) -> dict[str, Any]:
        """JSON values, with the warnings in words."""
        warnings, untested = self.screen.warnings(), self.screen.untested()
        return dataclasses.asdict(self) | {"warnings": list(warnings), "untested": list(untested)}

    def tables(self) -> list[Table]:
        tables = [generator_table(self.screen), spread_table([("", self.screen)])]
        if self.ablation:
            tables.append(_ablation_table(self))
        if self.probes:
            tables.append(_probe_table(self.probes))
        return [*tables, *(_swap_table(result) for result in self.swaps), *case_tables(self.cases)]

    @property
    def title(self) -> str:
        return f"Confounding: {self.task}" if self.task else "Confounding"

    def summary(self) -> str:
        """What was found, in sentences that follow from the numbers alone."""
        screening = self.screen
        says = "The screen warns" if screening.warnings() else "The screen"
        return (
            f"Scorer {self.scorer}, {screening.num_problems} problems, lambda {self.lambda_:g}. "
            f"{says}: {screening.verdict()}."
        )

    def screens(self) -> dict[str, Screen]:
        """Scorer -> its screen, for the figure of picks."""
        return {"picked": self.screen}


def confounding_report(
    pools: Sequence[EvaluatedPool],
    *,
    sources: Sources,
    settings: ConfoundingSettings,
    validation: Sequence[EvaluatedPool] = (),
    scorer: str = "the scorer",
) -> ConfoundingReport:
    """Screen, probes, ablation and case studies of one scorer on one set of pools.

    Args:
        pools: test pools, with the energies of this scorer.
        sources: what is at hand beyond the energies.
        settings: what is measured, and how.
        validation: chooses the "best generator"; without any it is chosen in hindsight.
        scorer: the checkpoint's name, for headings.
    """
    best = best_generator_of(Stack.of(validation), by_violation=False) if validation else None
    sampled = _sampled_pools(pools, settings.max_ablation_problems, settings.seed)
    ablation: tuple[AblationRow, ...] = ()
    if sources.scorer is not None:
        ablation = style_ablation(
            sampled,
            sources.scorer,
            lambda_=settings.lambda_,
            bootstrap=_bootstrap(sampled, settings),
            best_generator=best,
            chosen=variants(styles=settings.styles),
        )
    features = None if settings.max_probe_texts == 0 else sources.features
    return ConfoundingReport(
        task=settings.task,
        scorer=scorer,
        lambda_=settings.lambda_,
        best_generator=best,
        screen=screen(pools, lambda_=settings.lambda_, bootstrap=_bootstrap(pools, settings), best_generator=best),
        ablation=ablation,
        num_ablation_problems=len(sampled) if ablation else 0,
        probes=() if features is None else _probes(pools, features, settings),
        swaps=sources.swaps,
        cases=case_studies(pools, lambda_=settings.lambda_),
    )


def _bootstrap(pools: Sequence[EvaluatedPool], settings: ConfoundingSettings) -> Bootstrap:
    return Bootstrap.of(len(pools), num_bootstrap=settings.num_bootstrap, seed=settings.seed)


def _sampled_pools(pools: Sequence[EvaluatedPool], limit: int | None, seed: int) -> list[EvaluatedPool]:
    if limit is None or len(pools) <= limit:
        return list(pools)
    places = Random(seed_for(seed, "ablation")).sample(range(len(pools)), limit)
    return [pools[index] for index in sorted(places)]


def _probes(pools: Sequence[EvaluatedPool], features: Features, settings: ConfoundingSettings) -> tuple[ProbeRow, ...]:
    shuffled = list(pools)
    Random(seed_for(settings.seed, "probe")).shuffle(shuffled)
    texts: list[tuple[str, str]] = []
    ids, writers, correct = list[str](), list[str](), list[float]()
    for pool in shuffled:
        written = [row for row, each in enumerate(pool.candidates) if each.candidate.text is not None]
        if settings.max_probe_texts is not None and texts and len(texts) + len(written) > settings.max_probe_texts:
            break
        for row in written:
            candidate = pool.candidates[row].candidate
            texts.append((pool.problem.prompt, candidate.text or ""))
            ids.append(pool.problem.problem_id)
            writers.append(candidate.generator)
            correct.append(float(pool.correct[row]))
    data = ProbeData(
        features=features(texts),
        problem_ids=ids,
        generators=writers,
        correct=np.array(correct),
        num_chars=np.array([float(len(text)) for _, text in texts]),
    )
    return probes(data, num_bootstrap=settings.num_bootstrap, seed=settings.seed)


def generator_table(screening: Screen) -> Table:
    """Who is picked, and how the energy treats each generator's answers."""
    return Table(
        title="Generators",
        caption=(
            "Picks and the share of correct answers, which a scorer that knows only correctness would pick, with "
            "95 % intervals of the difference. Offset: mu of a generator's correct answers relative to all correct "
            "answers of the same problems (above 0: disliked). Picks and shares: on the problems that it answered. "
            "AUROC within: does the energy tell its own right answers from its own wrong ones (0.5: no)?"
        ),
        headers=(
            "generator", "n", "correct %", "share of correct %", "picked %", "difference", "mu correct", "mu incorrect",
            "offset", "AUROC within",
        ),
        rows=tuple(
            (
                row.generator, str(row.num_candidates), percent(row.accuracy), percent(row.correct_share),
                percent(row.pick_share), points(row.excess), _number(row.energy_correct),
                _number(row.energy_incorrect), _number(row.offset), number(row.within_auroc),
            )
            for row in screening.generators
        ),
    )  # fmt: skip


def spread_table(screens: Sequence[tuple[str, Screen]]) -> Table:
    """One column per scorer: before and after a repair stand side by side."""
    share = f"above {MAX_IDENTITY_SHARE:g}"
    lines: list[tuple[str, str, Callable[[Screen], str]]] = [
        ("spread of correct energies (std over generators)", "large", lambda each: number(each.spread)),
        ("the same, largest minus smallest", "large", lambda each: number(each.spread_range)),
        ("the same, within problems", "large", lambda each: number(each.spread_in_problem)),
        ("variance of correct energies due to the generator", share, lambda each: number(each.identity_share)),
        ("gap between wrong and right, same generator", "near or below 0", lambda each: number(each.gap_within)),
        ("spread within problems, in units of that gap", "above 1, or no gap", lambda each: _spread(each)),
        ("AUROC within a generator, mean", "its interval holds 0.5", lambda each: number(each.within_auroc)),
        ("pair accuracy, same generator", "near 0.5", lambda each: _pairs(each.pairs_within)),
        (
            "pair accuracy, different generators",
            "far above the same generator's",
            lambda each: _pairs(each.pairs_between),
        ),
        ("largest share of picks", "far above its share of correct", lambda each: _largest_pick(each)),
        *(
            (f"{name}: correct %", "", lambda each, name=name: _accuracy(each, name))
            for name in ("ours", "best generator", "random", "oracle")
        ),
        ("ours minus best generator", "its interval holds 0", lambda each: points(each.ours_minus_best_generator)),
        ("warnings", "", lambda each: str(len(each.warnings()))),
    ]
    return Table(
        title="Screen",
        caption=(
            "95 % intervals by bootstrap over problems; n where a figure is about some of them only. The difference to "
            "the best generator is paired, on the problems that it answered. "
            "The paper calls a spread below 0.25 unconfounded, in the "
            "energy units of its own scorers; the share of variance and the spread in units of the gap need none, so "
            "they alone can be compared between scorers. Last column: what points to a shortcut."
        ),
        headers=("figure", *(name or "value" for name, _ in screens), "a shortcut when"),
        rows=tuple((title, *(read(screening) for _, screening in screens), sign) for title, sign, read in lines),
    )


def _spread(screening: Screen) -> str:
    return number(screening.relative_spread) if screening.relative_spread.value is not None else "no gap"


def _pairs(estimate: Estimate) -> str:
    return "no such pairs" if estimate.n == 0 else f"{number(estimate)}, n={estimate.n}"


def _accuracy(screening: Screen, name: str) -> str:
    estimate = screening.accuracy.get(name)
    if estimate is None:
        return "-"
    notes = [f"n={estimate.n}"] if estimate.n != screening.num_problems else []
    if name == "best generator":
        notes.append(f"{screening.best_generator}{', chosen in hindsight' if screening.is_in_hindsight else ''}")
    return with_interval(estimate) + (f" ({'; '.join(notes)})" if notes else "")


def _largest_pick(screening: Screen) -> str:
    shares = [(row.pick_share.value or 0.0, row.generator) for row in screening.generators]
    if not shares:
        return "-"
    share, name = max(shares)
    return f"{100 * share:.0f} % ({name})"


def _ablation_table(report: ConfoundingReport) -> Table:
    return Table(
        title="Style ablation",
        caption=(
            f"{report.num_ablation_problems} problems rescored without features of style. A spread that falls while "
            "the gap between right and wrong stays was style; where both fall, the same tokens carry both. A row is "
            "about the candidates that have such a text, and about the problems that have such candidates; the last "
            "column chooses among the same candidates by their original texts."
        ),
        headers=("texts", "candidates", "changed", "spread", "due to generator", "gap within a generator",
                 "AUROC within", "problems", "ours: correct %", "the same by the original texts"),
        rows=tuple(
            (
                row.name, str(row.num_candidates), str(row.num_changed), number(row.screen.spread),
                number(row.screen.identity_share), number(row.screen.gap_within),
                number(row.screen.within_auroc), str(row.screen.num_problems),
                "-" if (ours := row.screen.accuracy.get("ours")) is None else with_interval(ours),
                with_interval(row.ours_by_original),
            )
            for row in report.ablation
        ),
    )  # fmt: skip


def _probe_table(rows: Sequence[ProbeRow]) -> Table:
    return Table(
        title="Linear probes of the features",
        caption=(
            "Logistic regression on the features that the energy heads read, cross-validated by problem. Guessing: "
            "the commonest class; of generators, the commonest of those that answered the same problem. What a probe "
            "reads is there to be used; whether the energy uses it, the other tables say."
        ),
        headers=("target", "classes", "n", "accuracy %", "guessing %", "difference"),
        rows=tuple(
            (
                row.target, str(row.num_classes), str(row.num_candidates),
                with_interval(row.accuracy), f"{100 * row.majority:.1f}",
                points(row.lift),
            )
            for row in rows
        ),
    )  # fmt: skip


def _swap_table(result: SwapResult) -> Table:
    return Table(
        title=f"Style swap of correct answers by {result.source}",
        caption=(
            "Change in mu after rewriting in another style, over rewritings that the checker still finds correct. "
            "Above 0: the same content is liked less in that style. The source's own style, where given, is the "
            "control: what rewriting as such does."
        ),
        headers=("style", "asked", "failed", "no longer correct", "unlabeled", "n problems", "change in mu"),
        rows=tuple(
            (
                f"{row.style} (control)" if row.is_control else row.style, str(row.num_asked), str(row.num_failed),
                str(row.num_incorrect), str(row.num_unlabeled), str(row.change.n), number(row.change),
            )
            for row in result.rows
        ),
    )  # fmt: skip


def _number(estimate: Estimate) -> str:
    return "-" if estimate.value is None else f"{estimate.value:.3f}"
