"""The report's table of skill by author and kind."""

import math

from raydebm.decision.evidence.reference import Author, Kind, Reference
from raydebm.evaluation.certainty.confidence import KindSkills, skills_by_kind


def test_an_author_without_answers_of_a_kind_is_shown_with_its_skill_over_all_kinds():
    ada = Author(skill=0.0, center=0.0, scale=1.0, kinds={"sums": math.log(3)})
    bo = Author(skill=0.0, center=0.0, scale=1.0)
    kinds = {"sums": Kind(level=0.5, difficulty=0.0, num_problems=7)}
    reference = Reference(authors={"ada": ada, "bo": bo}, default=bo, lambda_=1.0, kinds=kinds)

    (row,) = skills_by_kind(reference)

    assert row == KindSkills(kind="sums", num_problems=7, right={"ada": 0.75, "bo": 0.5})
