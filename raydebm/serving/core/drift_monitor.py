"""Compares what generators write for live requests with what they wrote when the run was calibrated.

In:   decided requests, in their order.
Out:  ``DriftMonitor.reasons`` for people, and every bet to the meter.
Does not know: Ray, HTTP. Belongs to one event loop; each ingress replica watches the requests that it answers.

Only requests that are sampled as the calibration problems were count: the run's own task, generators, sampling, waves
and budget, no earlier turns, every candidate sampled for this request. A problem counts once, for its candidates would
be the same again.
"""

import logging
from collections import OrderedDict

from raydebm.decision.guarantee.drift import DriftWatch, GeneratorReference, figures_of
from raydebm.serving.core.meter import Meter
from raydebm.serving.core.request import RequestContext
from raydebm.serving.core.result import TriageResult
from raydebm.serving.settings.bundle import Bundle
from raydebm.serving.settings.overrides import SamplingOverrides

log = logging.getLogger(__name__)

MAX_PROBLEMS_KNOWN = 100_000
"""Problems that have counted and do not count again; the oldest are forgotten."""


class DriftMonitor:
    """Watches the generators of one service."""

    def __init__(self, reference: GeneratorReference, *, delta: float, meter: Meter) -> None:
        """
        Args:
            reference: of the calibration.
            delta: probability of a false alarm, ever.
            meter: told about every bet.
        """
        self._watch = DriftWatch(reference, delta=delta)
        self._meter = meter
        self._known: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._num_alarms = 0

    def observe(self, result: TriageResult) -> None:
        """Take one more decision. Never raises, for watching must not cost an answer."""
        try:
            if _is_comparable(result) and self._is_new(result.context):
                self._meter.compared(self._watch.observe(figures_of(result.outcome.pool)))
                self._tell()
        except Exception:
            log.exception("generators were not compared with their calibration")

    def reasons(self) -> list[str]:
        """One sentence per alarm, the strongest evidence first."""
        return [state.words for state in self._watch.alarms()]

    def _is_new(self, context: RequestContext) -> bool:
        key = (context.problem.problem_id, context.problem.prompt)
        if key in self._known:
            return False
        self._known[key] = None
        if len(self._known) > MAX_PROBLEMS_KNOWN:
            self._known.popitem(last=False)
        return True

    def _tell(self) -> None:
        """One log line when there are more alarms than before."""
        alarms = self._watch.alarms() if self._num_alarms < self._watch.num_alarms else []
        if alarms:
            self._num_alarms = len(alarms)
            log.warning("generator changed", extra={"facts": {"reasons": [state.words for state in alarms]}})


def _is_comparable(result: TriageResult) -> bool:
    """Whether the first pass was sampled as those of the calibration problems were."""
    context, activity = result.context, result.activity
    served = context.bundle.policies.get(context.problem.task)
    if served is None or context.passthrough or context.earlier_turns or context.response_format is not None:
        return False
    is_own_sampling = context.sampling == SamplingOverrides() and context.num_samples is None
    is_whole = not (activity.reused or activity.over_budget) and context.generators == context.bundle.generators
    is_own_policy = (context.policy.waves, context.policy.budget) == (served.waves, served.budget)
    return is_own_sampling and is_whole and is_own_policy


def drift_monitor(bundle: Bundle, meter: Meter) -> DriftMonitor | None:
    """None where nothing is known of the calibration, or nothing is to be watched."""
    delta = bundle.watch.drift_delta
    if bundle.reference is None or delta is None:
        return None
    return DriftMonitor(bundle.reference, delta=delta, meter=meter)
