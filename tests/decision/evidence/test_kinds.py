"""Skill by kind of question, shrunk by 50 pseudo-candidates of an author and 2 pseudo-problems of a kind."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from decision_pools import labelled, scored, synthetic_problems, table_of

from raydebm.config import DecisionConfig
from raydebm.decision.calibration.policy_fit import fit_policy
from raydebm.decision.evidence.fitting import difficulties_of, fit_posterior, reference_of, skills_of
from raydebm.decision.evidence.posterior import Posterior
from raydebm.decision.evidence.profiles import ranked
from raydebm.decision.policy import Policy


def logit(share):
    return math.log(share / (1 - share))


def sigmoid(log_odds):
    return 1 / (1 + math.exp(-log_odds))


def of_kind(kind, pool):
    return replace(pool, candidates=[replace(one, kind=kind) for one in pool.candidates])


def problem(name, kind, right):
    """Answers A of ada and B of bo."""
    pool = [scored(f"{name}a", "A", author="ada"), scored(f"{name}b", "B", author="bo")]
    return of_kind(kind, labelled(name, pool, right))


FOUR = [problem("p1", "sums", {"A"}), problem("p2", "sums", {"A"}), problem("p3", "maps", {"B"}), problem("p4", "", ())]
"""Ada is right on 2 of 4 problems and on both sums, bo on 1 of 4 and on the map: the pooled share is (3 + 0.5) / 9."""
ALL = np.full(4, True)


def reference(pools=FOUR):
    return reference_of(table_of(pools), np.full(len(pools), True), lambda_=1.0)


def test_a_skill_in_a_kind_is_shrunk_towards_the_authors_skill_over_all_kinds():
    pooled, ada = 3.5 / 9, (2 + 10 * 3.5 / 9) / 14
    level = logit((2 + 50 * pooled) / 54) - logit(pooled)

    known = reference()

    assert known.kinds["sums"].level == pytest.approx(level)
    expected = logit((2 + 50 * sigmoid(logit(ada) + level)) / 52)
    assert known.authors["ada"].kinds["sums"] == pytest.approx(expected)
    assert known.skill("ada", "sums") == pytest.approx(expected - level)
    assert known.authors["ada"].skill == pytest.approx(logit(ada))


def test_a_kind_is_as_difficult_as_the_share_of_its_problems_without_a_right_candidate():
    """One of 4 problems has none: (1 + 0.5) / 5. Of the 2 sums none."""
    known = reference()

    assert known.difficulty("sums") == pytest.approx(logit((0 + 2 * 0.3) / 4) - logit(0.3))
    assert known.kinds["sums"].num_problems == 2


@pytest.mark.parametrize(
    ("author", "kind"), [("ada", "riddles"), ("ada", ""), ("cy", "sums")], ids=["kind never seen", "no kind", "author"]
)
def test_what_was_never_seen_has_the_skill_over_all_kinds(author, kind):
    known = reference()

    assert known.skill(author, kind) == known.author(author).skill


def test_an_unknown_kind_is_neither_easy_nor_difficult():
    assert reference().difficulty("riddles") == 0


def test_an_author_without_candidates_of_a_kind_has_its_skill_over_all_kinds():
    only_bo = of_kind("riddles", labelled("p5", [scored("x", "B", author="bo")], {"B"}))

    known = reference([*FOUR, only_bo])

    assert "riddles" not in known.authors["ada"].kinds
    assert known.skill("ada", "riddles") == known.authors["ada"].skill


def test_a_problems_own_candidates_count_in_neither_of_its_skills():
    """Without p1 ada is right on 1 of 3 problems and on 1 of 1 sum; all authors of sums on 1 of 2."""
    pooled, ada = 3.5 / 9, (1 + 10 * 3.5 / 9) / 13
    level = logit((1 + 50 * pooled) / 52) - logit(pooled)

    skills = skills_of(table_of(FOUR), ALL)

    assert skills[0] == pytest.approx(logit((1 + 50 * sigmoid(logit(ada) + level)) / 51) - level)
    assert skills[6] == pytest.approx(logit((2 + 10 * 3.5 / 9) / 13))  # p4, of no kind: ada on the other three


def test_a_problems_own_labels_do_not_say_how_difficult_its_kind_is():
    """Without p3 no map is left, and p4 alone of 3 problems has no right candidate."""
    difficulties = difficulties_of(table_of(FOUR), ALL)

    assert difficulties[0] == pytest.approx(logit((0 + 2 * 1.5 / 4) / 3) - logit(1.5 / 4))
    assert difficulties[2] == pytest.approx(0)


def test_one_kind_changes_no_number():
    plain = synthetic_problems(60, seed=5)
    one = [of_kind("sums", pool) for pool in plain]

    fits = [fit_policy(table_of(pools), base=Policy(), config=DecisionConfig()) for pools in (plain, one)]

    assert json.dumps(fits[0].policy.to_json()) == json.dumps(fits[1].policy.to_json())
    assert fits[0].confidence.tolist() == fits[1].confidence.tolist()


def two_kinds(count=40):
    """Ada is right on sums, bo on maps."""
    return [problem(f"p{i}", *(("sums", {"A"}) if i % 2 else ("maps", {"B"}))) for i in range(count)]


@pytest.mark.parametrize("profile", ["posterior", "best_author"])
def test_the_author_of_the_kind_is_believed(profile):
    pools = two_kinds()
    posterior = fit_posterior(table_of(pools), lambda_=1.0)

    chosen = [ranked(profile, pool.candidates, posterior)[0].cluster.key for pool in pools[:2]]

    assert chosen == ["B", "A"]


def test_a_policy_file_keeps_the_kinds():
    posterior = fit_posterior(table_of(two_kinds()), lambda_=1.0)

    read = Posterior.from_json(json.loads(json.dumps(posterior.to_json())))

    assert read == posterior
    assert read.context_weights["kind"] == posterior.context_weights["kind"]


def test_candidates_that_failed_leave_the_others_their_kind():
    pools = two_kinds()
    posterior = fit_posterior(table_of(pools), lambda_=1.0)
    alone = [scored("f", None, text=None), pools[1].candidates[0]]

    (belief,) = posterior.beliefs(alone)

    assert belief.probability == posterior.beliefs(pools[1].candidates[:1])[0].probability
