"""All results about a scorer's confounding, as data, as tables and as a document."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from raydebm.decision.table import PoolTable
from raydebm.evaluation.confounding.cases import CaseStudies, case_studies, case_tables
from raydebm.evaluation.confounding.experiments import AblationRow, style_ablation, variants
from raydebm.evaluation.confounding.screen import MAX_IDENTITY_SHARE, Screen, screen
from raydebm.evaluation.confounding.swap import SwapResult
from raydebm.evaluation.report.document import (
    Chapter,
    ReportDocument,
    Table,
    decimal,
    number,
    percent,
    points,
    table_of,
    with_interval,
)
from raydebm.evaluation.selectors import PAPER_RULE, best_generator_of
from raydebm.evaluation.stats.intervals import Bootstrap
from raydebm.identity import seed_for
from raydebm.scorer.texts import TextScorer


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfoundingSettings:
    lambda_: float
    task: str = ""
    seed: int = 0
    max_texts: int = 4000
    """Maximum number of candidates for the ablation, from whole problems that are sampled with the seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfoundingReport:
    task: str
    scorer: str
    lambda_: float
    best_generator: str | None
    """Generator chosen on validation pools, or None if it was chosen in hindsight."""
    screen: Screen
    ablation: tuple[AblationRow, ...]
    num_ablation_problems: int
    swaps: tuple[SwapResult, ...]
    cases: CaseStudies

    def to_json(self) -> dict[str, Any]:
        """The report as JSON values, with the warnings in words."""
        warnings, untested = self.screen.warnings(), self.screen.untested()
        return dataclasses.asdict(self) | {"warnings": list(warnings), "untested": list(untested)}

    def summary(self) -> str:
        says = "The screen warns" if self.screen.warnings() else "The screen"
        return (
            f"Scorer {self.scorer}, {self.screen.num_problems} problems, lambda {self.lambda_:g}. "
            f"{says}: {self.screen.verdict()}."
        )

    def tables(self) -> list[Table]:
        return [
            generator_table(self.screen),
            spread_table({"value": self.screen}),
            *([_ablation_table(self)] if self.ablation else []),
            *map(_swap_table, self.swaps),
            *case_tables(self.cases),
        ]

    def document(self, provenance: Mapping[str, str] | None = None) -> ReportDocument:
        title = f"Confounding: {self.task}" if self.task else "Confounding"
        return document(title, self.summary(), self.tables(), provenance)


def document(title: str, summary: str, tables: Sequence[Table], provenance: Mapping[str, str] | None) -> ReportDocument:
    return ReportDocument(
        title=title,
        summary=(summary,),
        chapters=(Chapter(title="Tables", tables=tuple(tables)),),
        provenance=provenance or {},
    )


def confounding_steps(
    pools: PoolTable,
    *,
    settings: ConfoundingSettings,
    validation: PoolTable | None = None,
    name: str = "the scorer",
    scorer: TextScorer | None = None,
    swaps: tuple[SwapResult, ...] = (),
) -> Iterator[str | ConfoundingReport]:
    """Run the screen and the case studies for one scorer and set of pools, and the experiments whose inputs are given.

    Yields a line before each slow step, and finally the report.

    Args:
        pools: Test pools with the energies of this scorer.
        validation: Pools on which the best generator is chosen. Default: the pools themselves, in hindsight.
        name: Name of the checkpoint, for headings.
        scorer: Scorer for the style ablation, and for code-only and explanation-only scoring.
    """
    best = None if validation is None else best_generator_of(validation, by_violation=False)
    ablation: tuple[AblationRow, ...] = ()
    num_ablation_problems = 0
    if scorer is not None:
        sampled = _sampled(pools, settings)
        num_ablation_problems = sampled.num_pools
        yield f"style ablation: scoring the answers to {sampled.num_pools} problems in up to {len(variants())} forms"
        ablation = style_ablation(
            sampled, scorer, lambda_=settings.lambda_, best_generator=best, bootstrap=_bootstrap(sampled, settings)
        )
    yield ConfoundingReport(
        task=settings.task,
        scorer=name,
        lambda_=settings.lambda_,
        best_generator=best,
        screen=screen(pools, lambda_=settings.lambda_, best_generator=best, bootstrap=_bootstrap(pools, settings)),
        ablation=ablation,
        num_ablation_problems=num_ablation_problems,
        swaps=swaps,
        cases=case_studies(pools, lambda_=settings.lambda_),
    )


def _bootstrap(pools: PoolTable, settings: ConfoundingSettings) -> Bootstrap:
    return Bootstrap.of(pools.num_pools, seed=settings.seed)


def _sampled(pools: PoolTable, settings: ConfoundingSettings) -> PoolTable:
    """Whole problems, chosen by the seed, with at most ``max_texts`` texts unless the first has more."""
    shuffled = list(range(pools.num_pools))
    Random(seed_for(settings.seed, "probe")).shuffle(shuffled)
    num_kept = max(int((np.cumsum(pools.sizes[shuffled]) <= settings.max_texts).sum()), 1)
    return pools.of_pools(sorted(shuffled[:num_kept]))


# ---- tables ----------------------------------------------------------------------------------------------------------


def generator_table(screening: Screen, *, title: str = "Generators") -> Table:
    """Selections by generator, and the energies of each generator's answers."""
    return table_of(
        title,
        "Share of the picks and of the correct answers by generator, which would be equal for a scorer that sees "
        "only correctness, with 95 % intervals of their difference. Offset: mu of a generator's correct answers "
        "relative to all correct answers of the same problems (above 0: disliked). Picks and shares: on the problems "
        "that the generator answered. AUROC within: how well the energy separates one generator's right and wrong "
        "answers (0.5 is chance).",
        screening.generators,
        {
            "generator": lambda row: row.generator,
            "n": lambda row: row.num_candidates,
            "correct %": lambda row: percent(row.accuracy),
            "share of correct %": lambda row: percent(row.correct_share),
            "picked %": lambda row: percent(row.pick_share),
            "difference": lambda row: points(row.excess),
            "mu correct": lambda row: decimal(row.energy_correct.value),
            "mu incorrect": lambda row: decimal(row.energy_incorrect.value),
            "offset": lambda row: decimal(row.offset.value),
            "AUROC within": lambda row: number(row.within_auroc),
        },
    )


def spread_table(screens: Mapping[str, Screen]) -> Table:
    """One column per scorer, such as before and after a repair."""
    columns = [_figures(screening) for screening in screens.values()]
    return Table(
        title="Screen",
        caption="95 % intervals by bootstrap over problems; n where a figure is about some of them only. The "
        "difference from the best generator is paired, on the problems that it answered. The paper calls a spread "
        "below 0.25 unconfounded, in the energy units of its own scorers; only the share of variance and the spread "
        "in units of the gap can be compared between scorers. Last column: signs of a shortcut.",
        headers=("figure", *screens, "a shortcut when"),
        rows=tuple((name, *(column[name][1] for column in columns), hint) for name, (hint, _) in columns[0].items()),
    )


def _figures(screening: Screen) -> dict[str, tuple[str, str]]:
    """(sign of a shortcut, figure) by name."""
    relative = screening.relative_spread
    return {
        "spread of correct energies (std over generators)": ("large", number(screening.spread)),
        "the same, largest minus smallest": ("large", number(screening.spread_range)),
        "the same, within problems": ("large", number(screening.spread_in_problem)),
        "variance of correct energies due to the generator": (
            f"above {MAX_IDENTITY_SHARE:g}",
            number(screening.identity_share),
        ),
        "gap between wrong and right, same generator": ("near or below 0", number(screening.gap_within)),
        "spread within problems, in units of that gap": (
            "above 1, or no gap",
            "no gap" if relative.value is None else number(relative),
        ),
        "AUROC within a generator, mean": ("its interval contains 0.5", number(screening.within_auroc)),
        **{
            f"{name}: correct %": ("", _accuracy(screening, name))
            for name in (PAPER_RULE, "best generator", "random", "oracle")
        },
        f"{PAPER_RULE} minus best generator": ("its interval contains 0", points(screening.paper_minus_best_generator)),
        "warnings": ("", str(len(screening.warnings()))),
    }


def _accuracy(screening: Screen, name: str) -> str:
    estimate = screening.accuracy.get(name)
    if estimate is None:
        return "-"
    notes = [f"n={estimate.n}"] if estimate.n != screening.num_problems else []
    if name == "best generator":
        notes.append(f"{screening.best_generator}{', chosen in hindsight' if screening.is_in_hindsight else ''}")
    return with_interval(estimate) + (f" ({'; '.join(notes)})" if notes else "")


def _ablation_table(report: ConfoundingReport) -> Table:
    return table_of(
        "Style ablation",
        f"{report.num_ablation_problems} problems rescored without features of style. If the spread falls and the "
        "gap between right and wrong does not, the spread was due to style; if both fall, the same tokens carry both. "
        "A row is about the candidates that have such a text, and about the problems that have such candidates; the "
        "last column chooses among the same candidates by their original texts.",
        report.ablation,
        {
            "texts": lambda row: row.name,
            "candidates": lambda row: row.num_candidates,
            "changed": lambda row: row.num_changed,
            "spread": lambda row: number(row.screen.spread),
            "due to generator": lambda row: number(row.screen.identity_share),
            "gap within a generator": lambda row: number(row.screen.gap_within),
            "AUROC within": lambda row: number(row.screen.within_auroc),
            "problems": lambda row: row.screen.num_problems,
            f"{PAPER_RULE}: correct %": lambda row: row.screen.accuracy.get(PAPER_RULE),
            "the same by the original texts": lambda row: row.paper_by_original,
        },
    )


def _swap_table(result: SwapResult) -> Table:
    return table_of(
        f"Style swap of correct answers by {result.source}",
        "Change in mu after rewriting in another style, over rewritings that the checker still finds correct. "
        "Above 0: the same content is liked less in that style. The source's own style, where given, is the "
        "control: what rewriting as such does.",
        result.rows,
        {
            "style": lambda row: f"{row.style} (control)" if row.is_control else row.style,
            "asked": lambda row: row.num_asked,
            "failed": lambda row: row.num_failed,
            "no longer correct": lambda row: row.num_incorrect,
            "unlabeled": lambda row: row.num_unlabeled,
            "n problems": lambda row: row.change.n,
            "change in mu": lambda row: number(row.change),
        },
    )
