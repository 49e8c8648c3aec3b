"""Has a generator changed? Bets by generator and figure against "it writes as it did on the calibration problems".

In:   the first passes of the calibration problems, then those of live decisions, in their order.
Out:  a ``GeneratorReference`` to keep, and ``DriftWatch.alarms``.
Does not know: Ray, torch, files, clocks, gold answers.

One decision gives one value per generator and figure, from its candidates of pass 1:

``energy``     mean of mu
``sigma``      mean of sigma
``length``     mean of log(1 + characters)
``missing``    share of its texts in which no answer was found
``agreement``  share of its texts with the answer that most candidates of the others give; where it is alone, with the
               answer that most of its own give
``lowest``     1 where the candidate with the lowest mu is its, else 0

Energy, sigma and length are taken relative to the mean of the other generators' values about the same problem, so that
harder or longer problems alone change nothing, as long as they do so for all. Nothing depends on the policy that
decides: a reference outlives a promotion. Each value is ranked among the calibration problems' and all earlier ones by
a conformal test martingale (``watch.ConfidenceWatch``); with G generators each of the 6 G bets has the level
delta / (6 G), so that a false alarm about any of them, ever, has the probability delta at most (Ville's inequality and
the union bound), provided that live problems are exchangeable with the calibration problems.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal, get_args

from raydebm.decision.guarantee.watch import ConfidenceWatch
from raydebm.errors import ConfigError
from raydebm.identity import seed_for
from raydebm.records import ScoredCandidate

Figure = Literal["energy", "sigma", "length", "missing", "agreement", "lowest"]
FIGURES: tuple[Figure, ...] = get_args(Figure)
WORDS: Mapping[Figure, str] = {
    "energy": "its energies",
    "sigma": "the disagreement of the adapters about it",
    "length": "the length of its texts",
    "missing": "the share of its texts without an answer",
    "agreement": "how often it gives the answer of the others",
    "lowest": "how often it has the lowest energy",
}
REFERENCE_FILE = "generators.json"
"""In the folder ``calibration`` of a run."""
MAX_PROBLEMS = 2_000
"""Calibration problems that a reference keeps."""
MIN_PROBLEMS = 20
"""Below so many values nothing is bet on: no rank among them is low enough to say much."""
DIGITS = 6

Values = dict[str, dict[Figure, float]]
"""Generator -> figure -> value of one decision; what was not measured is absent."""


def figures_of(pool: Iterable[ScoredCandidate]) -> Values:
    """The figures of each generator that wrote something in pass 1."""
    by_name: dict[str, list[ScoredCandidate]] = {}
    for scored in pool:
        if scored.candidate.text is not None and scored.candidate.pass_index == 1:
            by_name.setdefault(scored.candidate.generator, []).append(scored)
    own = {name: _own(written) for name, written in by_name.items()}
    lowest = _lowest(by_name)
    figures: Values = {}
    for name, written in by_name.items():
        others = [other for other in by_name if other != name]
        values = {figure: _relative(figure, name, others, own) for figure in own[name]}
        values["missing"] = fmean(scored.report.vote_key is None for scored in written)
        rivals = [scored for other in others for scored in by_name[other]] or written
        values["agreement"] = _agreement(written, rivals)
        if lowest is not None:
            values["lowest"] = float(lowest == name)
        figures[name] = values
    return figures


def _own(written: Sequence[ScoredCandidate]) -> dict[Figure, float]:
    """The figures that other generators are compared by."""
    energies = [scored.energies for scored in written if scored.energies is not None]
    values: dict[Figure, float] = {"length": fmean(math.log1p(len(each.candidate.text or "")) for each in written)}
    if energies:
        values["energy"] = fmean(each.mu for each in energies)
        values["sigma"] = fmean(each.sigma for each in energies)
    return values


def _relative(figure: Figure, name: str, others: Sequence[str], own: Mapping[str, Mapping[Figure, float]]) -> float:
    rivals = [own[other][figure] for other in others if figure in own[other]]
    return own[name][figure] - (fmean(rivals) if rivals else 0.0)


def _agreement(written: Sequence[ScoredCandidate], rivals: Sequence[ScoredCandidate]) -> float:
    votes = Counter(key for scored in rivals if (key := scored.report.vote_key) is not None)
    if not votes:
        return 0.0
    top = min(votes, key=lambda key: (-votes[key], key))
    return fmean(scored.report.vote_key == top for scored in written)


def _lowest(by_name: Mapping[str, Sequence[ScoredCandidate]]) -> str | None:
    """Who wrote the candidate with the lowest mu; None where nothing was scored."""
    energies = [
        (scored.energies.mu, name) for name, written in by_name.items() for scored in written if scored.energies
    ]
    return min(energies)[1] if energies else None


@dataclass(frozen=True, slots=True)
class GeneratorReference:
    """What generators did on the calibration problems: generator -> figure -> one value per problem."""

    values: Mapping[str, Mapping[Figure, tuple[float, ...]]]

    @classmethod
    def of(cls, pools: Iterable[Sequence[ScoredCandidate]]) -> "GeneratorReference":
        """
        Args:
            pools: the candidates of each calibration problem; the first ``MAX_PROBLEMS`` count.
        """
        by_generator: dict[str, dict[Figure, list[float]]] = {}
        for _, pool in zip(range(MAX_PROBLEMS), pools, strict=False):
            for name, values in figures_of(pool).items():
                for figure, value in values.items():
                    by_generator.setdefault(name, {}).setdefault(figure, []).append(round(value, DIGITS))
        return cls({name: {each: tuple(sorted(seen[each])) for each in seen} for name, seen in by_generator.items()})

    def to_json(self) -> dict[str, Any]:
        """As it stands in ``calibration/generators.json``."""
        return {name: {each: list(seen[each]) for each in seen} for name, seen in sorted(self.values.items())}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "GeneratorReference":
        """Inverse of ``to_json``.

        Raises:
            ConfigError: a figure that is not known, or a value that is no number.
        """
        for name, figures in value.items():
            for figure, seen in figures.items():
                if figure not in FIGURES or not all(isinstance(each, int | float) for each in seen):
                    raise ConfigError(
                        f"the reference of generator {name!r} has a wrong entry {figure!r}; calibrate the run again"
                    )
        return cls({name: {each: tuple(seen[each]) for each in seen} for name, seen in value.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftState:
    """One bet, as it stands."""

    generator: str
    figure: Figure
    num: int
    """Live decisions so far."""
    reference_mean: float
    """Mean over the calibration problems."""
    mean: float
    """Mean over the live decisions; 0 before the first."""
    evidence: float
    """Decimal logarithm of the martingale: its alarm is at log10 of 6 G / delta."""
    alarmed_at: int | None
    """After how many decisions the alarm was raised; it stays."""

    @property
    def words(self) -> str:
        """The alarm as a sentence."""
        return (
            f"generator {self.generator!r} no longer writes as it did when the run was calibrated: "
            f"{WORDS[self.figure]} changed (mean {self.mean:.3g}, on calibration problems {self.reference_mean:.3g}); "
            f"alarm after {self.alarmed_at} decisions"
        )


class DriftWatch:
    """Bets on live decisions. Belongs to one thread; begins again with each process."""

    def __init__(self, reference: GeneratorReference, *, delta: float = 0.05) -> None:
        """
        Args:
            reference: of the calibration.
            delta: probability of a false alarm about any generator, ever.

        Raises:
            ConfigError: a delta outside (0, 1).
        """
        pairs = [
            (name, figure)
            for name, figures in reference.values.items()
            for figure in figures
            if len(figures[figure]) >= MIN_PROBLEMS
        ]
        share = delta / max(1, len(reference.values) * len(FIGURES))
        self._means = {(name, figure): fmean(reference.values[name][figure]) for name, figure in pairs}
        self._sums: dict[tuple[str, Figure], float] = dict.fromkeys(pairs, 0.0)
        self._watches = {
            (name, figure): ConfidenceWatch(
                reference.values[name][figure], delta=share, seed=seed_for("drift", name, figure)
            )
            for name, figure in pairs
        }

    def observe(self, values: Mapping[str, Mapping[Figure, float]]) -> list[DriftState]:
        """Take the figures of one more decision; returns the bets about them as they now stand."""
        seen = [(name, figure) for name, figures in values.items() for figure in figures]
        known = [pair for pair in seen if pair in self._watches]
        for name, figure in known:
            value = round(values[name][figure], DIGITS)  # as the reference is, or equal values would not tie
            self._watches[name, figure].observe(value)
            self._sums[name, figure] += value
        return [self._state(*pair) for pair in known]

    def states(self) -> list[DriftState]:
        """Every bet, those with the most evidence first."""
        return sorted((self._state(*pair) for pair in self._watches), key=lambda state: -state.evidence)

    @property
    def num_alarms(self) -> int:
        """How many bets raised an alarm."""
        return sum(watch.alarmed for watch in self._watches.values())

    def alarms(self) -> list[DriftState]:
        """The bets that raised an alarm, the strongest evidence first. Where one generator of several has changed, the
        others' relative figures change too: it is mostly the first one."""
        return [state for state in self.states() if state.alarmed_at is not None]

    def _state(self, generator: str, figure: Figure) -> DriftState:
        watch = self._watches[generator, figure]
        return DriftState(
            generator=generator,
            figure=figure,
            num=watch.num,
            reference_mean=self._means[generator, figure],
            mean=self._sums[generator, figure] / max(1, watch.num),
            evidence=watch.log_capital / math.log(10),
            alarmed_at=watch.alarmed_at,
        )
