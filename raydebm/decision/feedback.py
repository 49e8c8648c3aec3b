"""What the next pass is told about the best candidate so far.

The chat of a later pass is: the first pass's messages, an assistant turn with what was found so far, and a user turn
with the feedback. Broken rules are about the answer, so it is quoted alone. A request to check each step quotes the
whole text, because a model that is shown a bare answer replies with another one: of 40 right answers it changed 29, and
5 with the steps before it (docs/log/second_pass.md). Generators may be trained on these exact words, so they change
only together with such models.
"""

import math
from collections.abc import Sequence

from raydebm.records import Message, Problem, ScoredCandidate
from raydebm.tasks.base import RULES, Task

QUALITY_FEEDBACK = (
    "Your answer may be wrong. Check each step again, then give your final answer in the same output format."
)
UNPARSEABLE_FEEDBACK = "Your reply had no answer in the requested output format. Give your final answer in that format."

TAIL_CHARS = 600
"""How much of a reply without an answer is quoted: its end, where the answer should have been."""
STEPS_CHARS = 8000
"""How much of a text is quoted whose steps are to be checked: its end, some 2,000 tokens of it."""


def feedback_messages(
    task: Task,
    problem: Problem,
    best: ScoredCandidate | None,
    base_messages: Sequence[Message] | None = None,
) -> tuple[Message, ...]:
    """The chat of the next pass.

    Args:
        task: gives the first pass's chat where ``base_messages`` has none.
        problem: what is asked.
        best: the selected candidate; when nothing could be selected, a candidate without an answer (see ``exemplar``).
            None when nothing was written at all: then there is nothing to comment on, and the first chat is repeated.
        base_messages: the first pass's chat, when it was not ``task.messages(problem)``.
    """
    base = tuple(task.messages(problem) if base_messages is None else base_messages)
    if best is None or best.candidate.text is None:
        return base
    return (
        *base,
        {"role": "assistant", "content": _shown(best)},
        {"role": "user", "content": feedback_text(task, best)},
    )


def feedback_text(task: Task, best: ScoredCandidate) -> str:
    """The user turn: each violation in words, or a request to check again, or to answer in the right format."""
    report = best.report
    if not report.parsed:
        return UNPARSEABLE_FEEDBACK
    if report.penalty > 0:
        rules = "\n".join(f"- {violation.message}" for violation in report.violations)
        return task.defaults.feedback.replace(RULES, rules)
    return QUALITY_FEEDBACK


def exemplar(pool: Sequence[ScoredCandidate]) -> ScoredCandidate | None:
    """The candidate to comment on when none can be selected: parsed before unparsed, then low mu, then id."""
    written = [scored for scored in pool if scored.candidate.text is not None]
    return min(written, key=_exemplar_key, default=None)


def _exemplar_key(scored: ScoredCandidate) -> tuple[bool, float, float, int, str]:
    mu = math.inf if scored.energies is None else scored.energies.mu
    candidate = scored.candidate
    return (not scored.report.parsed, scored.report.penalty, mu, candidate.pass_index, candidate.candidate_id)


def _shown(best: ScoredCandidate) -> str:
    text = best.candidate.text or ""
    if best.report.answer is None:
        return text[-TAIL_CHARS:]
    return best.report.answer if best.report.penalty > 0 else text[-STEPS_CHARS:]
