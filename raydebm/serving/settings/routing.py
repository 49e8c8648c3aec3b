"""Which task a question belongs to, where a client leaves that to the service (``raydebm/auto``).

The rule, in this order:

1. A task that cannot read the text is out, with its own reason.
2. A task whose reader is *telling*, for it reads none of the other tasks' known problems, takes what it can read,
   where it is the only such task.
3. Among the tasks that are left, the one to which most of the ``NUM_NEAREST`` most similar known problems belong takes
   it; ties go to the closest one, then to the order in which the tasks are served.
4. Where the general task is served, it takes what no other can read, and what is farther from the chosen task's
   problems than all but ``NOVEL_FRAC`` of these are from each other.

How sure that is, is a share with one more on each side (Laplace): of known problems that the reader told apart rightly,
or of the nearest problems that belong to the task. Does not know: HTTP, Ray.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from raydebm.serving.settings.known_problems import NOVEL_FRAC, KnownProblems, Likeness
from raydebm.tasks import GENERAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """Which task took a question that named none, and why."""

    task: str
    certainty: float
    """0 to 1: how sure it is that the question belongs to the task; of the general one, that it belongs to no other."""
    reasons: tuple[str, ...]
    """Sentences, the one that decided first."""
    scorer: str | None = None
    """The task whose ensemble gives the energies, where it is another one: it has learned no such question."""


def nearest_scorer(known: KnownProblems, text: str) -> str:
    """The task with the known problem that is most similar to a text; the first one where none is."""
    closest = known.likeness(text, known.tasks).closest
    return max(known.tasks, key=lambda name: closest[name])


def choose(
    known: KnownProblems, text: str, readers: Sequence[str], refusals: Sequence[str], *, has_general: bool
) -> Routing:
    """The task of a question, by the rule above.

    Args:
        known: what the question is compared with.
        text: the question.
        readers: the tasks that can read it, in the order in which they are served, the general one left out; empty
            only where that one is served.
        refusals: why the others cannot, a sentence each.
        has_general: whether the general task is served.
    """
    if not readers:
        return _general(known, text, 1.0, "no other task can read it", refusals)
    if (told := _told(known, readers)) is not None:
        return Routing(task=told, certainty=_laplace(known.refused[told]), reasons=(_telling(told, known), *refusals))
    likeness = known.likeness(text, readers)
    name, certainty, reason = _most_similar(readers, likeness)
    closest, least = likeness.closest[name], known.least(name)
    if has_general and closest < least:
        words = (
            f"it is less similar to the known problems of {name} (cosine {closest:.2f}) than all but {NOVEL_FRAC:.0%} "
            f"of these are to each other ({least:.2f})"
        )
        return _general(known, text, 1 - NOVEL_FRAC, words, refusals)
    return Routing(task=name, certainty=certainty, reasons=(reason, *refusals))


def _general(known: KnownProblems, text: str, certainty: float, reason: str, refusals: Sequence[str]) -> Routing:
    return Routing(task=GENERAL, certainty=certainty, reasons=(reason, *refusals), scorer=nearest_scorer(known, text))


def _told(known: KnownProblems, readers: Sequence[str]) -> str | None:
    """The only reader that refuses the other tasks' known problems; None where there is none, or several."""
    telling = [name for name in readers if known.refused.get(name)]
    return telling[0] if len(telling) == 1 else None


def _telling(name: str, known: KnownProblems) -> str:
    return f"{name} can read it, and reads none of {known.refused[name]} known problems of other tasks"


def _laplace(count: int) -> float:
    return (count + 1) / (count + 2)


def _most_similar(readers: Sequence[str], likeness: Likeness) -> tuple[str, float, str]:
    """The task, how sure that is, and why."""
    best = max(readers, key=lambda name: (likeness.nearest.get(name, 0), likeness.closest[name]))
    count, total = likeness.nearest.get(best, 0), sum(likeness.nearest.values())
    if len(readers) == 1:
        return best, 1.0, f"{best} is the only task that can read it"
    certainty = (count + 1) / (total + len(readers))
    if not total:
        return best, certainty, f"{best} is the first task that can read it, and no known problem is similar to it"
    words = f"{count} of the {total} most similar known problems belong to {best}"
    return best, certainty, f"{words} (cosine with the closest {likeness.closest[best]:.2f})"
