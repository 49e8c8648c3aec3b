"""Choose lambda, theta_sigma and theta_abstain on a validation split (paper, "Inference").

The grid maximises pass@1 of the loop, the share correct among *answered* problems. This also maximises the lift over
single-pass selection with the base policy's lambda, because that baseline is the same for the whole grid. Where labels
have a violation score, its mean over the answered problems is minimised instead: fully correct answers are too rare.

Settings that abstain on more than ``MAX_ABSTAIN_FRAC`` of the problems are excluded. Ties go to the lower abstention
share, then to fewer regenerations, then to the lambda and thresholds nearest those of the base policy. If no setting is
within the limit, the one with the lowest abstention share is chosen and ``within_limit`` is False.

Thresholds only determine where a problem stops, so the loop samples all passes of each problem once per lambda,
and the grid is evaluated on arrays. A test compares this with the loop under every setting.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raydebm.config import DecisionConfig
from raydebm.decision.calibration.walks import TraceStep, steps_of, to_length
from raydebm.decision.policy import Policy
from raydebm.errors import PoolError
from raydebm.records import Label, Outcome

Floats = NDArray[np.float64]

PAPER_THETA_SIGMA = 0.8
PAPER_THETA_ABSTAIN = 1.5
NUM_THRESHOLDS = 12
"""Grid points per threshold, at quantiles of the observed sigma."""
MAX_ABSTAIN_FRAC = 0.10
"""Largest share of the validation problems on which the thresholds may abstain."""
SIGNIFICANT_DIGITS = 4
"""Thresholds are rounded up before they are tried, so that printed and tried values agree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GridRow:
    """One setting and its results on the validation split."""

    lambda_: float
    theta_sigma: float
    theta_abstain: float
    pass_at_1: float | None
    """Share correct among answered, labelled problems. None if there are no such problems."""
    lift: float | None
    """pass_at_1 minus pass@1 of a single pass, as a fraction."""
    num_answered: int
    """Answered problems with a label."""
    num_unlabeled: int
    """Answered problems without a label, excluded from pass@1."""
    abstain_frac: float
    regenerate_frac: float
    mean_violation: float | None = None
    """Mean violation of the answered problems, lower is better. None if labels have no violation score."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationResult:
    policy: Policy
    """The base policy with the chosen lambda and thresholds."""
    chosen: GridRow
    within_limit: bool
    """False if every setting abstains on more problems than allowed."""
    rows: tuple[GridRow, ...]
    best_by_lambda: tuple[GridRow, ...]
    single_pass: dict[float, float]
    """pass@1 without regeneration and abstention, by lambda. NaN without labels."""
    num_problems: int
    num_incomplete: int
    """Problems with a later pass that could not be sampled. They are decided from the passes before it."""

    def facts(self) -> dict[str, Any]:
        """Main numbers, for display and for a manifest."""
        return {
            "lambda": self.policy.lambda_,
            "theta_sigma": self.policy.theta_sigma,
            "theta_abstain": self.policy.theta_abstain,
            "pass_at_1": self.chosen.pass_at_1,
            "mean_violation": self.chosen.mean_violation,
            "lift": self.chosen.lift,
            "abstain_frac": self.chosen.abstain_frac,
            "regenerate_frac": self.chosen.regenerate_frac,
            "within_limit": self.within_limit,
            "num_problems": self.num_problems,
            "num_incomplete": self.num_incomplete,
        }

    def to_json(self) -> dict[str, Any]:
        """Contents of ``calibration/grid.json``."""
        return {
            "policy": self.policy.to_json(),
            "chosen": asdict(self.chosen),
            "within_limit": self.within_limit,
            "best_by_lambda": [asdict(row) for row in self.best_by_lambda],
            "single_pass": {
                f"{lambda_:g}": None if math.isnan(value) else value for lambda_, value in self.single_pass.items()
            },
            "num_problems": self.num_problems,
            "num_incomplete": self.num_incomplete,
            "max_abstain_frac": MAX_ABSTAIN_FRAC,
            "rows": [asdict(row) for row in self.rows],
        }


def without_gate(base: Policy, config: DecisionConfig) -> dict[float, Policy]:
    """Policies by lambda that sample all passes, because the grid may need a later pass of any problem."""
    lambdas = sorted({*config.lambdas, base.lambda_})
    return {lambda_: base.replaced(lambda_=lambda_, theta_sigma=0.0, theta_abstain=1e9) for lambda_ in lambdas}


def calibrate(
    outcomes: Mapping[float, Sequence[Outcome]],
    labels: Mapping[str, Label],
    *,
    base: Policy,
    config: DecisionConfig,
) -> CalibrationResult:
    """Search the grid.

    Args:
        outcomes: by lambda, the loop's outcomes for the validation problems under ``without_gate``. A problem with a
            failed later pass counts as incomplete.
        labels: labels by candidate id. Candidates without one are unlabelled.
        base: policy that supplies the signal and the number of passes, and breaks ties.
        config: lambdas to try.

    Raises:
        PoolError: no problems, or no labels.
    """
    num_problems = len(outcomes[base.lambda_])
    if not num_problems:
        raise PoolError("calibration needs problems with labelled candidates, got none; check pairs.validation_frac")
    walks = {lambda_: [steps_of(outcome, labels) for outcome in each] for lambda_, each in outcomes.items()}
    tables = {lambda_: _Table.of(of_lambda, num_steps=base.max_passes) for lambda_, of_lambda in walks.items()}
    single_pass = {lambda_: table.single_pass() for lambda_, table in tables.items()}
    if all(math.isnan(value) for value in single_pass.values()):
        raise PoolError(
            f"calibration found no labelled selection among {num_problems} problems; run the label stage first, "
            "or check why its rows are unlabeled"
        )
    grid = _threshold_grid(list(tables.values()))
    rows = {
        lambda_: _rows(tables[lambda_], base.replaced(lambda_=lambda_), grid=grid, baseline=single_pass[base.lambda_])
        for lambda_ in sorted(set(config.lambdas))
    }
    best_by_lambda = [choose(of_lambda, base=base) for of_lambda in rows.values()]
    chosen = choose(best_by_lambda, base=base)
    thresholds = {name: getattr(chosen, name) for name in ("lambda_", "theta_sigma", "theta_abstain")}
    return CalibrationResult(
        policy=base.replaced(**thresholds),
        chosen=chosen,
        within_limit=chosen.abstain_frac <= MAX_ABSTAIN_FRAC,
        rows=tuple(row for of_lambda in rows.values() for row in of_lambda),
        best_by_lambda=tuple(best_by_lambda),
        single_pass=single_pass,
        num_problems=num_problems,
        num_incomplete=sum(
            any(len(steps) < base.max_passes for steps in each) for each in zip(*walks.values(), strict=True)
        ),
    )


def choose(rows: Sequence[GridRow], *, base: Policy) -> GridRow:
    """Best row, by the rules in the module docstring."""
    within = [row for row in rows if row.abstain_frac <= MAX_ABSTAIN_FRAC]
    if not within:
        lowest = min(row.abstain_frac for row in rows)
        within = [row for row in rows if row.abstain_frac == lowest]

    def rank(row: GridRow) -> tuple[float, ...]:
        return (
            _loss(row),
            row.abstain_frac,
            row.regenerate_frac,
            abs(row.lambda_ - base.lambda_),
            abs(row.theta_sigma - base.theta_sigma),
            abs(row.theta_abstain - base.theta_abstain),
            row.lambda_,
        )

    return min(within, key=rank)


def _loss(row: GridRow) -> float:
    if row.mean_violation is not None:
        return row.mean_violation
    return math.inf if row.pass_at_1 is None else -row.pass_at_1


@dataclass(frozen=True, slots=True)
class _Table:
    """Steps as arrays of shape (problems, passes), NaN where nothing could be selected."""

    signal: Floats
    sigma: Floats
    penalty: Floats
    correct: Floats
    """1, 0, or NaN for unlabeled."""
    violation: Floats
    """NaN without a violation score."""

    @classmethod
    def of(cls, walks: Sequence[Sequence[TraceStep]], *, num_steps: int) -> "_Table":
        rows = [to_length(walk, num_steps) for walk in walks]

        def column(of: Callable[[TraceStep], float | None]) -> Floats:
            return np.array([[of(step) for step in row] for row in rows], dtype=np.float64)  # None becomes NaN

        return cls(
            signal=column(lambda step: step.signal),
            sigma=column(lambda step: step.sigma),
            penalty=column(lambda step: step.penalty),
            correct=column(lambda step: step.correct),
            violation=column(lambda step: step.violation),
        )

    def single_pass(self) -> float:
        first = self.correct[:, 0]
        labelled = first[~np.isnan(first)]
        return float(labelled.mean()) if len(labelled) else math.nan

    def stop_index(self, theta_sigma: float, stop_above: float = math.inf) -> NDArray[np.intp]:
        """Index of the pass at which each problem stops: the first that passes the gate, else the last.

        If every constraint holds, sigma above ``stop_above`` also stops (Eq. 3).
        """
        # A NaN signal (nothing selected) compares False, so the problem continues, as in ``rules.decide``.
        passed = ((self.signal <= theta_sigma) | (self.sigma > stop_above)) & (self.penalty == 0)
        passed[:, -1] = True
        stops: NDArray[np.intp] = passed.argmax(axis=1)
        return stops


def _threshold_grid(tables: Sequence[_Table]) -> list[tuple[float, float]]:
    """(theta_sigma, theta_abstain) pairs with first < second: quantiles of the observed sigmas, and the paper's
    values."""
    gate = _quantiles([table.signal[:, 0] for table in tables]) | {PAPER_THETA_SIGMA}
    stop = _quantiles([table.sigma for table in tables]) | {PAPER_THETA_ABSTAIN}
    return [(low, high) for low in sorted(gate) for high in sorted(stop) if low < high]


def _quantiles(columns: Sequence[Floats]) -> set[float]:
    values = np.concatenate([column.ravel() for column in columns])
    values = values[~np.isnan(values)]
    if not len(values):
        return set()
    return {_round_up(float(value)) for value in np.quantile(values, np.linspace(0, 1, NUM_THRESHOLDS))}


def _round_up(value: float) -> float:
    """Smallest number with ``SIGNIFICANT_DIGITS`` digits that is at least ``value``."""
    if value <= 0:
        return 0.0
    digits = SIGNIFICANT_DIGITS - 1 - math.floor(math.log10(value))
    rounded = round(value, digits)
    return rounded if rounded >= value else round(rounded + 10.0**-digits, digits)


def _rows(table: _Table, policy: Policy, *, grid: Sequence[tuple[float, float]], baseline: float) -> list[GridRow]:
    index = np.arange(len(table.signal))
    rows = []
    for theta_sigma, theta_abstain in grid:
        stop = table.stop_index(theta_sigma, theta_abstain if policy.signal == "equation" else math.inf)
        # Written so that NaN (nothing selected) abstains.
        abstained = ~(table.sigma[index, stop] <= theta_abstain)
        correct = table.correct[index, stop][~abstained]
        labelled = correct[~np.isnan(correct)]
        violation = table.violation[index, stop][~abstained]
        violation = violation[~np.isnan(violation)]
        pass_at_1 = float(labelled.mean()) if len(labelled) else None
        rows.append(
            GridRow(
                lambda_=policy.lambda_,
                theta_sigma=theta_sigma,
                theta_abstain=theta_abstain,
                pass_at_1=pass_at_1,
                lift=None if pass_at_1 is None or math.isnan(baseline) else pass_at_1 - baseline,
                num_answered=len(labelled),
                num_unlabeled=len(correct) - len(labelled),
                abstain_frac=float(abstained.mean()),
                regenerate_frac=float((stop > 0).mean()),
                mean_violation=float(violation.mean()) if len(violation) else None,
            )
        )
    return rows
