"""Feedback to the next pass about the best candidate so far.

The chat of a later pass consists of the first pass's messages, an assistant turn with the best candidate, and a user
turn with the feedback. Broken rules concern the answer, so only the answer is quoted. A request to check each step
quotes the whole text, because a model that is shown a bare answer tends to replace it: of 40 right answers it changed
29, but only 5 if the steps were quoted too (docs/log/second_pass.md). Generators may be trained on these exact words,
so a change of wording needs new generators.
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
"""Number of characters quoted from the end of a reply without an answer, where the answer should be."""
STEPS_CHARS = 8000
"""Number of characters quoted from the end of a text whose steps are to be checked, about 2,000 tokens."""


def feedback_messages(task: Task, problem: Problem, best: ScoredCandidate | None) -> tuple[Message, ...]:
    """Chat of the next pass.

    Args:
        task: task that supplies the first pass's chat.
        problem: problem that the chat is about.
        best: selected candidate, or a candidate without an answer if nothing could be selected (see ``exemplar``). None
            if no candidate has text; the first pass's chat is then repeated.
    """
    base = tuple(task.messages(problem))
    if best is None or best.candidate.text is None:
        return base
    return (
        *base,
        {"role": "assistant", "content": _shown(best)},
        {"role": "user", "content": feedback_text(task, best)},
    )


def feedback_text(task: Task, best: ScoredCandidate) -> str:
    """User turn with the feedback: each violation in words, or a request to check again or to fix the format."""
    report = best.report
    if not report.parsed:
        return UNPARSEABLE_FEEDBACK
    if report.penalty > 0:
        rules = "\n".join(f"- {violation.message}" for violation in report.violations)
        return task.defaults.feedback.replace(RULES, rules)
    return QUALITY_FEEDBACK


def exemplar(pool: Sequence[ScoredCandidate]) -> ScoredCandidate | None:
    """Candidate to comment on if none can be selected.

    Parsed candidates come first. Within each group the order is lowest penalty, mu, pass and id.
    """

    def rank(scored: ScoredCandidate) -> tuple[bool, float, float, int, str]:
        mu, candidate = math.inf if scored.energies is None else scored.energies.mu, scored.candidate
        return not scored.report.parsed, scored.report.penalty, mu, candidate.pass_index, candidate.candidate_id

    return min((scored for scored in pool if scored.candidate.text is not None), key=rank, default=None)


def _shown(best: ScoredCandidate) -> str:
    text = best.candidate.text or ""
    if best.report.answer is None:
        return text[-TAIL_CHARS:]
    return best.report.answer if best.report.penalty > 0 else text[-STEPS_CHARS:]
