"""What answers of a stored pool are compared by, where a judge of equality made one answer of several.

Candidates keep the key of the answer that theirs counts as (``evidence.equality``); the task alone gives each its own.
"""

from collections.abc import Sequence

from raydebm.decisions.record import DecisionRecord
from raydebm.records import Problem, ScoredCandidate
from raydebm.tasks.base import Task


def own_key(task: Task, problem: Problem, text: str | None) -> str | None:
    """The key that the task gives an answer; None for a text without one."""
    answer = None if text is None else task.parse(problem, text)
    return None if answer is None else task.vote_key(problem, answer)


def counted_key(task: Task, problem: Problem, pool: Sequence[ScoredCandidate], text: str) -> str | None:
    """The key that an answer has in a pool: that of the candidates that say it, or its own where none does."""
    key = own_key(task, problem, text)
    same = (scored for scored in pool if scored.report.vote_key is not None)
    return next((each.report.vote_key for each in same if own_key(task, problem, each.candidate.text) == key), key)


def merged_keys(task: Task, record: DecisionRecord) -> set[str]:
    """The keys of those answers of a decision that a judge made of several."""
    if not (record.request.get("equality") or {}).get("groups"):
        return set()
    own: dict[str, set[str | None]] = {}
    for scored in record.outcome.pool:
        if scored.report.vote_key is not None:
            own.setdefault(scored.report.vote_key, set()).add(own_key(task, record.problem, scored.candidate.text))
    return {key for key, keys in own.items() if len(keys) > 1}
