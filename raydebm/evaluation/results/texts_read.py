"""Truncation of the scorer's inputs, counted over the candidates with energies.

In:   energies, the problem of each candidate, the split of each problem.
Out:  counts by split.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from raydebm.run.tables import EnergyRow


@dataclass(frozen=True, slots=True, kw_only=True)
class TextsRead:
    """Counts for the candidates of one split. None if truncation was not recorded."""

    split: str
    num_candidates: int
    without_problem: int | None
    """Candidates scored without any part of the problem."""
    problem_cut: int | None
    """Candidates scored with a part of the problem."""
    answer_cut: int | None
    """Candidates scored with a part of their own text."""


def texts_read(
    rows: Iterable[EnergyRow], *, problem_of: Mapping[str, str], splits: Mapping[str, Sequence[str]]
) -> tuple[TextsRead, ...]:
    """Count by split. Splits without energies are omitted.

    Args:
        rows: Energies of the first pass.
        problem_of: Problem ids by candidate id.
        splits: Problem ids by split.
    """
    split_of = {problem_id: split for split, problem_ids in splits.items() for problem_id in problem_ids}
    scored: dict[str, list[EnergyRow]] = {split: [] for split in splits}
    for row in rows:
        if row.members is not None and (split := split_of.get(problem_of.get(row.candidate_id, ""))) is not None:
            scored[split].append(row)
    return tuple(_counted(split, of_split) for split, of_split in scored.items() if of_split)


def _counted(split: str, rows: Sequence[EnergyRow]) -> TextsRead:
    problems = [row.problem_read for row in rows if row.problem_read is not None]
    answers = [row.answer_read for row in rows if row.answer_read is not None]
    is_known = len(problems) == len(answers) == len(rows)
    return TextsRead(
        split=split,
        num_candidates=len(rows),
        without_problem=sum(share == 0 for share in problems) if is_known else None,
        problem_cut=sum(0 < share < 1 for share in problems) if is_known else None,
        answer_cut=sum(share < 1 for share in answers) if is_known else None,
    )


def joined_texts(trainings: Iterable[Sequence[TextsRead]]) -> tuple[TextsRead, ...]:
    """Sums over several trainings, by split."""
    by_split: dict[str, list[TextsRead]] = {}
    for row in chain.from_iterable(trainings):
        by_split.setdefault(row.split, []).append(row)
    return tuple(
        TextsRead(
            split=split,
            num_candidates=sum(row.num_candidates for row in rows),
            without_problem=_sum(row.without_problem for row in rows),
            problem_cut=_sum(row.problem_cut for row in rows),
            answer_cut=_sum(row.answer_cut for row in rows),
        )
        for split, rows in by_split.items()
    )


def _sum(counts: Iterable[int | None]) -> int | None:
    known = list(counts)
    return None if None in known else sum(count for count in known if count is not None)
