"""A student beside its ensemble, on three problems by hand."""

import pytest

from raydebm.evaluation.report.distillation_tables import distillation_summary, distillation_tables
from raydebm.evaluation.studies.distillation import ScoringTime, distillation_study
from raydebm.evaluation.studies.variants import ScoredVariant

RIGHT, WRONG = 1, 0
ENSEMBLE = {"p": [(0, 2), (1, 5), (4, 6)], "q": [(0, 2), (1, 5), (4, 6)], "r": [(3, 3), (3, 3), (3, 3)]}
"""mu is 1, 3, 5 and sigma 1, 2, 1 in the first two problems; nothing is told apart in the third."""
STUDENT = {"p": [(0, 2), (1, 5), (4, 6)], "q": [(4, 6), (1, 5), (0, 2)], "r": [(1, 1), (2, 2), (3, 3)]}
"""The same in the first, mu the other way round in the second."""


@pytest.fixture(scope="module")
def study(make_pool):
    def variant(name, energies, num_adapters):
        pools = [
            make_pool(
                *(
                    (verdict, {"members": members, "key": key})
                    for verdict, members, key in zip((RIGHT, WRONG, WRONG), rows, "abc", strict=True)
                ),
                problem_id=problem_id,
            )
            for problem_id, rows in energies.items()
        ]
        return ScoredVariant(
            name=name, pools=pools, lambda_=1.0, backbone="b", num_adapters=num_adapters, num_parameters=10
        )

    return distillation_study(
        variant("ensemble", ENSEMBLE, 5),
        variant("student", STUDENT, 1),
        time=ScoringTime(num_texts=500, ensemble_s=10.0, student_s=2.5),
        num_bootstrap=100,
    )


def test_ranks_agree_within_problems(study):
    """1 and -1; the ensemble's are equal in the third, which does not count."""
    assert (study.mu_rank.value, study.mu_rank.n) == (0.0, 2)


def test_sigma_has_a_rank_correlation_of_its_own(study):
    assert (study.sigma_rank.value, study.sigma_rank.n) == (1.0, 2)


def test_choices_are_compared_by_answer(study):
    """Both choose a in the first problem; a and c in the second; a twice in the third, by id and by mu."""
    assert study.same_choice.value == pytest.approx(2 / 3)


def test_right_before_wrong(study):
    """The ensemble orders both pairs rightly in two problems and knows nothing in one; the student all, none, all."""
    assert study.ensemble_auroc.value == pytest.approx((1 + 1 + 0.5) / 3)
    assert study.student_auroc.value == pytest.approx((1 + 0 + 1) / 3)


def test_the_summary_follows_from_the_numbers(study):
    text = distillation_summary(study)
    assert text.startswith("One forward pass in place of 5: 4.0 times as fast on 500 texts.")
    assert "of 3 test problems" in text


def test_times_are_shown_per_thousand_texts(study):
    rows = {row[0]: row[1:] for row in distillation_tables(study)[0].rows}
    assert rows["seconds per 1,000 texts, ensemble"] == ("20.0", "500 texts")
    assert rows["the same, student"] == ("5.0", "500 texts")
