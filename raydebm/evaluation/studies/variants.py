"""Comparison of scorers that differ in one setting: generators, backbone, adapters, repair.

All are evaluated on the same test problems, each on the candidates that it was made for. Among adapters, the monolithic
scorer (one adapter with as many parameters as the whole ensemble) is the control of the paper's Proposition 2: its
learnt constraints and learnt quality cannot be separated. One column has the share of sigma that depends on
E_constraint; a single adapter has no sigma.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from raydebm.decision.groups import Floats
from raydebm.decision.table import PoolTable, on_common_problems
from raydebm.evaluation.stats.intervals import NOTHING, Bootstrap, Estimate
from raydebm.evaluation.stats.significance import Comparison, compare, holm_adjusted
from raydebm.evaluation.studies.two_terms import variance_partition


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScoredVariant:
    """Test pools scored by one scorer."""

    name: str
    pools: PoolTable
    lambda_: float
    """Lambda of the scorer's own policy."""
    backbone: str
    num_adapters: int
    num_parameters: int
    """Number of trained parameters, of adapters and heads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantRow:
    name: str
    generators: tuple[str, ...]
    """Generators of the candidates that it selects from and was trained on."""
    most: int
    """Number of candidates in the largest pool."""
    backbone: str
    num_adapters: int
    num_parameters: int
    by_mu: Estimate
    """pass@1 of the selections by mu."""
    by_energy: Estimate
    """pass@1 of the selections by E."""
    mu_violation: Estimate
    """Mean violation of the selections by mu. No value if the task has none."""
    violation: Estimate
    """Mean violation of the selections by E."""
    sigma_auroc: Estimate
    """AUROC of -sigma for "the selection by mu is correct"."""
    variance: Estimate
    """Mean sigma squared over candidates of problems in which E_constraint varies."""
    constraint_share: Estimate
    """Share of it that depends on E_constraint (``studies.variance``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantStudy:
    title: str
    rows: tuple[VariantRow, ...]
    """Rows, the recipe's own scorer first."""
    comparisons: tuple[Comparison, ...]
    """Each variant against the recipe's own scorer on their common problems, by mu and by E; and a scorer on one
    generator against those on as many candidates of several."""

    def comparison(self, one: str, other: str, by: str) -> Comparison | None:
        """Comparison of two scorers.

        Args:
            by: Selection by "mu" or "E".

        Returns:
            None if the comparison was not made.
        """
        wanted = (_named(one, by), _named(other, by))
        return next(
            (comparison for comparison in self.comparisons if (comparison.one, comparison.other) == wanted), None
        )


def _named(scorer: str, by: str) -> str:
    """Name of a scorer's selections by "mu" or "E" in comparisons."""
    return f"{scorer} by {by}"


def variant_study(
    variants: Sequence[ScoredVariant], *, title: str, num_bootstrap: int = 2000, seed: int = 0
) -> VariantStudy:
    """Measure scorers, the recipe's own one first.

    Raises:
        PoolError: a scorer has no pools.
    """
    rows = [_row(variant, num_bootstrap=num_bootstrap, seed=seed) for variant in variants]
    comparisons = [
        comparison
        for one, other in _pairs(rows)
        for comparison in _compared(variants[one], variants[other], num_bootstrap=num_bootstrap, seed=seed)
    ]
    corrected = holm_adjusted([comparison.p_value for comparison in comparisons])
    return VariantStudy(
        title=title,
        rows=tuple(rows),
        comparisons=tuple(
            replace(comparison, p_holm=holm) for comparison, holm in zip(comparisons, corrected, strict=True)
        ),
    )


def _pairs(rows: Sequence[VariantRow]) -> list[tuple[int, int]]:
    """Indices of the scorers to compare: each with the first, then those on one generator with those of equal size on
    several."""
    places = range(1, len(rows))
    several = [place for place in places if len(rows[place].generators) > 1]
    single = [place for place in places if len(rows[place].generators) == 1]
    of_one_size = [(one, other) for one in single for other in several if rows[one].most == rows[other].most]
    return [*((place, 0) for place in places), *of_one_size]


def _row(variant: ScoredVariant, *, num_bootstrap: int, seed: int) -> VariantRow:
    pools = variant.pools
    bootstrap = Bootstrap.of(pools.num_pools, num_bootstrap=num_bootstrap, seed=seed)
    by_mu, by_energy = pools.select(0.0), pools.select(variant.lambda_)
    partition = variance_partition(pools, lambda_=variant.lambda_, bootstrap=bootstrap)
    has_sigma = pools.num_members > 1
    return VariantRow(
        name=variant.name,
        generators=pools.authors,
        most=int(pools.sizes.max()),
        backbone=variant.backbone,
        num_adapters=variant.num_adapters,
        num_parameters=variant.num_parameters,
        by_mu=bootstrap.proportion(pools.correct_at(by_mu)),
        by_energy=bootstrap.proportion(pools.correct_at(by_energy)),
        mu_violation=bootstrap.mean(pools.violation_at(by_mu)),
        violation=bootstrap.mean(pools.violation_at(by_energy)),
        sigma_auroc=bootstrap.auroc(-pools.at(pools.sigma, by_mu), pools.correct_at(by_mu)) if has_sigma else NOTHING,
        variance=NOTHING if partition is None else partition.variance,
        constraint_share=NOTHING if partition is None else partition.constraint,
    )


def _compared(variant: ScoredVariant, base: ScoredVariant, *, num_bootstrap: int, seed: int) -> list[Comparison]:
    common = on_common_problems([base.pools, variant.pools])
    if not common[0].num_pools:
        return []
    values: dict[str, Floats] = {}
    for scorer, pools in zip((base, variant), common, strict=True):
        for by, lambda_ in (("mu", 0.0), ("E", scorer.lambda_)):
            values[_named(scorer.name, by)] = pools.correct_at(pools.select(lambda_))
    return compare(
        values,
        [(_named(variant.name, by), _named(base.name, by)) for by in ("mu", "E")],
        bootstrap=Bootstrap.of(common[0].num_pools, num_bootstrap=num_bootstrap, seed=seed),
        seed=seed,
    )
