"""Compares what generators write for live requests with what they wrote when the run was calibrated.

In:   the pools of decided requests, in their order.
Out:  ``DriftMonitor.reasons`` for people, and every bet that a decision moved.
Does not know: Ray, HTTP. Belongs to one thread; each process watches the requests that it answers.

A problem counts once, for its candidates would be the same again.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence

from raydebm.decision.guarantee.drift import DriftState, DriftWatch, GeneratorReference, figures_of
from raydebm.records import Problem, ScoredCandidate

log = logging.getLogger(__name__)

MAX_PROBLEMS_KNOWN = 100_000
"""Problems that have counted and do not count again; the oldest are forgotten."""


class DriftMonitor:
    """Watches the generators of one task's run."""

    def __init__(
        self,
        reference: GeneratorReference,
        *,
        task: str,
        delta: float,
        on_states: Callable[[str, Sequence[DriftState]], None] = lambda task, states: None,
    ) -> None:
        """
        Args:
            reference: of the calibration.
            task: name of the run's task, for words and figures.
            delta: probability of a false alarm, ever.
            on_states: told the task and the bets that a decision moved.
        """
        self.reference, self.delta = reference, delta
        self._task = task
        self._watch = DriftWatch(reference, delta=delta)
        self._on_states = on_states
        self._known: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._num_alarms = 0

    def observe(self, problem: Problem, pool: Sequence[ScoredCandidate]) -> None:
        """Take one more decision, sampled as the calibration problems were. Never raises, for watching must not cost
        an answer."""
        try:
            if self._is_new(problem):
                self._on_states(self._task, self._watch.observe(figures_of(pool)))
                self._tell()
        except Exception:
            log.exception("generators were not compared with their calibration")

    def reasons(self) -> list[str]:
        """One sentence per alarm, the strongest evidence first."""
        return [f"task {self._task!r}: {state.words}" for state in self._watch.alarms()]

    def states(self) -> list[DriftState]:
        """The bets that a decision has moved, those with the most evidence first."""
        return [state for state in self._watch.states() if state.num]

    def _is_new(self, problem: Problem) -> bool:
        key = (problem.problem_id, problem.prompt)
        if key in self._known:
            return False
        self._known[key] = None
        if len(self._known) > MAX_PROBLEMS_KNOWN:
            self._known.popitem(last=False)
        return True

    def _tell(self) -> None:
        """One log line when there are more alarms than before."""
        if self._watch.num_alarms > self._num_alarms:
            self._num_alarms = self._watch.num_alarms
            log.warning("generator changed", extra={"facts": {"reasons": self.reasons()}})
