"""How much was read of problems and answers, counted by hand."""

import pytest

from raydebm.evaluation.results.evaluation import TextsRead, joined_texts, texts_read
from raydebm.run.tables import EnergyRow


def row(name, problem_read, answer_read, members=(0.0,)):
    return EnergyRow(candidate_id=name, members=members, problem_read=problem_read, answer_read=answer_read)


def counted(*rows, splits=None):
    problem_of = {row.candidate_id: row.candidate_id[0] for row in rows}
    return texts_read(rows, problem_of=problem_of, splits=splits or {"validation": ["v"], "test": ["t", "u"]})


def of(split, *counts):
    names = ("num_candidates", "without_problem", "problem_cut", "answer_cut")
    return TextsRead(split=split, **dict(zip(names, counts, strict=True)))


def test_candidates_are_counted_by_split():
    read = counted(
        row("t1", 0.0, 0.5), row("t2", 0.25, 1.0), row("u1", 1.0, 0.9), row("u2", 1.0, 1.0), row("v1", 1.0, 1.0)
    )

    assert read == (of("validation", 1, 0, 0, 0), of("test", 4, 1, 1, 2))


def test_candidates_without_energies_and_of_other_problems_do_not_count():
    assert counted(row("t1", None, None, members=None), row("x1", 0.0, 1.0), row("t2", 1.0, 1.0)) == (
        of("test", 1, 0, 0, 0),
    )


def test_a_table_of_an_earlier_version_gives_no_counts():
    assert counted(row("t1", 0.0, 1.0), row("t2", None, None)) == (of("test", 2, None, None, None),)


@pytest.mark.parametrize(
    ("other", "sums"), [((5, 1, 2, 3), (8, 2, 2, 4)), ((5, None, None, None), (8, None, None, None))]
)
def test_several_trainings_are_added(other, sums):
    assert joined_texts([(of("test", 3, 1, 0, 1),), (of("test", *other), of("train", 1, 0, 0, 0))]) == (
        of("test", *sums),
        of("train", 1, 0, 0, 0),
    )
