"""When to stop sampling answers to one problem.

Answers come in waves (4, 4, 8, 16 by default). After each, a rule looks at the votes so far and says whether another
wave is worth its tokens. ``SettledRule`` is this project's rule; ``published`` has those of others behind the same
interface, ``improvement`` the one for answers that cannot be compared.

    plan = SamplingPlan(rule=SettledRule(tau_accept=0.8), max_samples=32)
    state = plan.start()
    while not (decision := plan.decide(state, posterior)).stop:
        state = state.after(sample(plan.next_wave(state)))

Nothing here samples, waits or cancels: the caller does, and puts the decision into its answer and its record.
"""

from raydebm.decision.stopping.settled import SettledRule
from raydebm.decision.stopping.state import (
    AnswerPosterior,
    SamplingPlan,
    SamplingState,
    StopDecision,
    StoppingRule,
    StopReason,
    wave_ends,
)

__all__ = [
    "AnswerPosterior",
    "SamplingPlan",
    "SamplingState",
    "SettledRule",
    "StopDecision",
    "StopReason",
    "StoppingRule",
    "wave_ends",
]
