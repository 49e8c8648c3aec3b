"""Probability of each field: the marginal, the terms, missing fields, the fit and its guarantee."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from decision_pools import Labelled, table_of

from raydebm.config import DecisionConfig
from raydebm.decision.calibration.field_fit import FieldFit
from raydebm.decision.calibration.policy_fit import fit_policy
from raydebm.decision.evidence.posterior import Belief
from raydebm.decision.evidence.terms import PLAIN
from raydebm.decision.fields import FieldModel, field_beliefs, field_evidence, to_review
from raydebm.decision.policy import Policy
from raydebm.decision.table import Cluster
from raydebm.errors import ConfigError
from raydebm.records import Candidate, ConstraintReport, Energies, ScoredCandidate, Violation

CERTIFIED = {"max_error": 0.02, "confidence": 0.9, "certified": True, "problems": 50, "thresholds": [0.8, 0.9]}


def scored(name, fields, *, author="ann", mu=None, violations=(), proof=None, tolerance=0.0):
    answer = json.dumps(fields)
    return ScoredCandidate(
        candidate=Candidate(candidate_id=name, task="t", problem_id="p", generator=author, text=answer),
        report=ConstraintReport(
            candidate_id=name, answer=answer, vote_key=answer, penalty=0.0, violations=violations, proof=proof,
            fields={path: json.dumps(value) for path, value in fields.items()}, field_tolerance=tolerance,
        ),
        energies=None if mu is None else Energies(candidate_id=name, members=(mu,)),
    )  # fmt: skip


def belief(each, probability):
    cluster = Cluster(key=each.report.vote_key, rows=(0,), proof=None)
    return Belief(cluster=cluster, best=each, candidates=(each,), probability=probability, contributions={})


def beliefs_about(pool, *probabilities, model=None):
    beliefs = [belief(each, p) for each, p in zip(pool, probabilities, strict=False)]
    given = {} if model is None else {"model": model}
    return {each.path: each for each in field_beliefs(pool, pool[0], beliefs=beliefs, reference=PLAIN, **given)}


A = scored("1", {"total": 3, "date": "x"})
B = scored("2", {"total": 3, "date": "y"}, author="bob")


def test_without_a_model_a_value_has_its_answers_and_its_share_of_the_candidates_where_none_is_right():
    """None has 0.1: 2.5 of 3 votes say 3, and 1.5 of 3 say x."""
    fields = beliefs_about([A, B], 0.6, 0.3)

    assert fields["total"].confidence == pytest.approx(0.9 + 0.1 * 2.5 / 3)
    assert fields["total"].runner_up_confidence is None
    assert fields["date"].confidence == pytest.approx(0.6 + 0.1 * 1.5 / 3)
    assert (fields["date"].value, fields["date"].runner_up) == ("x", "y")
    assert fields["date"].runner_up_confidence == pytest.approx(0.3 + 0.1 * 1.5 / 3)
    assert fields["total"].num_candidates == 2


def test_without_a_posterior_a_value_has_its_share_of_the_candidates():
    assert beliefs_about([A, A, B])["date"].confidence == pytest.approx(2 / 3)


def test_candidates_of_one_answer_share_its_probability():
    """Two texts count as one answer, but differ in a field that the answer's key leaves out."""
    one, other = A, scored("2", {"total": 3, "date": "y"})
    object.__setattr__(other.report, "vote_key", one.report.vote_key)

    fields = {each.path: each for each in field_beliefs([one, other], one, beliefs=[belief(one, 0.8)], reference=PLAIN)}

    assert fields["date"].confidence == pytest.approx(0.4 + 0.2 * 1.5 / 3)
    assert fields["total"].confidence == pytest.approx(0.8 + 0.2 * 2.5 / 3)


def test_numbers_within_the_tolerance_are_one_value_and_the_selected_one_stays_as_it_is():
    """Three answers with 0.3 each say it, and of the rest all three candidates: 0.9 + 0.1 * 3.5 / 4."""
    totals = (118.401, 118.4, 118.39)
    pool = [scored(str(total), {"total": total}, tolerance=0.01) for total in totals]

    total = beliefs_about(pool, 0.3, 0.3, 0.3)["total"]

    assert (total.value, total.num_candidates, total.runner_up) == (118.401, 3, None)
    assert total.confidence == pytest.approx(0.9 + 0.1 * 3.5 / 4)


def test_a_runner_up_is_the_number_that_represents_the_others():
    pool = [scored(str(total), {"total": total}, tolerance=0.01) for total in (5, 7.01, 7, 7.02)]

    total = beliefs_about(pool, 0.4, 0.2, 0.2, 0.2)["total"]

    assert (total.value, total.num_candidates, total.runner_up) == (5, 1, 7.01)
    assert total.runner_up_confidence == pytest.approx(0.6)


def test_a_field_that_only_others_have_is_missing():
    fields = beliefs_about([A, scored("2", {"total": 3, "date": "x", "tip": 1})], 0.7, 0.3)

    assert fields["tip"].is_missing
    assert fields["tip"].value is None
    assert fields["tip"].confidence == pytest.approx(0.7)
    assert fields["tip"].runner_up == 1


def test_the_fields_of_a_proven_answer_are_certain():
    proven = scored("1", {"total": 3}, proof=True)

    assert beliefs_about([proven, scored("2", {"total": 4})], 1.0, 0.0)["total"].confidence == 1.0


def test_no_selection_and_an_unstructured_answer_have_no_fields():
    assert field_beliefs([A], None, beliefs=[], reference=PLAIN) == ()
    assert field_beliefs([bare := scored("1", {})], bare, beliefs=[], reference=PLAIN) == ()


def term(name, pool, of=lambda row: row):
    model = FieldModel(weights={name: 1.0}, skills={"ann": {"": 1.0, "total": 2.0}, "bob": {"": 0.5}})
    evidence = field_evidence(pool, None, PLAIN)
    scores = model.log_odds(evidence)
    return {
        (evidence.paths[path], value): float(score)
        for path, value, score in zip(evidence.path_of_row, evidence.values, scores, strict=True)
    }


def test_votes_are_smoothed_log_odds():
    assert term("votes", [A, A, A, B])["date", '"x"'] == pytest.approx(math.log(3.5 / 1.5))


def test_authors_speak_once_each_with_their_skill_at_the_kind_of_field():
    """Half of ann's candidates and none of bob's have x: 1.0 / 2. All of both have 3: 2.0 + 0.5."""
    terms = term("skill", [A, scored("3", {"total": 3, "date": "y"}), B])

    assert terms["date", '"x"'] == pytest.approx(0.5)
    assert terms["total", "3"] == pytest.approx(2.5)


def test_energy_is_the_pool_mean_minus_the_lowest_with_the_value():
    pool = [scored("1", {"a": 1}, mu=1.0), scored("2", {"a": 1}, mu=-1.0), scored("3", {"a": 2}, mu=3.0)]

    assert term("energy", pool) == {("a", "1"): pytest.approx(2.0), ("a", "2"): pytest.approx(-2.0)}


def test_a_penalty_counts_where_its_violation_names_the_field_and_every_answer_with_the_value_breaks_it():
    broken = Violation(constraint="c", penalty=0.5, weight=2.0, message="m", path="items")
    pool = [
        scored("1", {"items[0]": 1, "items[1]": 2, "itemsize": 3}, violations=(broken,)),
        scored("2", {"items[0]": 1, "items[1]": 9, "itemsize": 3}),
    ]

    terms = term("penalty", pool)

    assert terms["items[1]", "2"] == -1.0
    assert terms["items[0]", "1"] == terms["itemsize", "3"] == 0.0


def test_too_many_fields_over_all_candidates_are_none():
    pool = [scored(str(number), {f"f{number}-{place}": 1 for place in range(300)}) for number in range(2)]

    assert field_beliefs(pool, pool[0], beliefs=[], reference=PLAIN) == ()


def test_fields_below_the_threshold_are_to_be_reviewed():
    assert to_review(tuple(beliefs_about([A, B], 0.6, 0.3).values()), 0.8) == ("date",)


def test_another_threshold_of_fields_voids_their_guarantee_alone():
    answers = {"max_error": 0.1, "confidence": 0.9, "certified": True, "problems": 50}
    policy = Policy(tau_field=0.8, field_guarantee=CERTIFIED, guarantee=answers)

    assert Policy().changed({"tau_field": 0.95}).tau_field == 0.95
    assert policy.changed({"tau_field": 0.9}).field_guarantee["certified"]
    changed = policy.changed({"tau_field": 0.95})
    assert (changed.field_guarantee["certified"], changed.guarantee["certified"]) == (False, True)
    assert "tau_field" in changed.field_guarantee["reason"]


def test_another_rule_voids_both_guarantees():
    changed = Policy(field_guarantee=CERTIFIED, guarantee=CERTIFIED).changed({"lambda": 2.0})

    assert not changed.field_guarantee["certified"]
    assert not changed.guarantee["certified"]


def test_the_loss_of_a_problem_is_the_share_of_wrong_fields_that_are_not_flagged():
    fit = FieldFit(
        model=FieldModel(weights={}), owner=np.array([0, 0, 0, 2]), paths=("a", "b", "c", "a"),
        confidence=np.array([0.9, 0.8, 0.5, 0.4]), marginal=np.zeros(4), share=np.zeros(4),
        right=np.array([1.0, 0.0, 0.0, 1.0]),
    )  # fmt: skip

    shown, losses = fit.losses(0.8)

    assert shown.tolist() == [math.inf, -math.inf]  # problem 1 has no labelled field
    assert losses.tolist() == [0.5, 0.0]


def test_pools_with_too_many_fields_have_no_fit():
    pools = []
    for number in range(4):
        candidates = [scored(f"{number}-{each}", {f"f{each}-{place}": 1 for place in range(300)}) for each in range(2)]
        verdicts = [dict.fromkeys(each.report.fields, True) for each in candidates]
        pools.append(Labelled(str(number), candidates, np.ones(2), verdicts))

    assert fit_policy(table_of(pools), base=Policy(max_passes=1), config=DecisionConfig()).fields is None


def test_problems_without_labelled_fields_do_not_count():
    rng = np.random.default_rng(0)
    pools = [simulated(number, rng) for number in range(20)]
    bare = [replace(each, problem_id=f"b{each.problem_id}", fields=[{}] * len(each.candidates)) for each in pools]

    fit = fit_policy(table_of([*pools, *bare]), base=Policy(max_passes=1), config=DecisionConfig(max_field_error=0.5))

    assert fit.field_guarantee.problems == 20


def simulated(number, rng):
    """Six fields, right with probability 0.95, 0.8 and 0.6 by author and field: ann, bob and cy."""
    gold = {f"f{place}": int(rng.integers(5)) for place in range(6)}
    candidates, verdicts = [], []
    for author, skill in {"ann": 0.95, "bob": 0.8, "cy": 0.6}.items():
        for sample in range(2):
            wrong = rng.random(6) > skill - 0.3 * (np.arange(6) == 5)
            fields = {
                path: (value + int(rng.integers(1, 5))) % 5 if is_wrong else value
                for (path, value), is_wrong in zip(gold.items(), wrong, strict=True)
            }
            candidates.append(scored(f"{number}-{author}-{sample}", fields, author=author))
            verdicts.append({path: fields[path] == value for path, value in gold.items()})
    worth = np.array([float(all(each.values())) for each in verdicts])
    return Labelled(str(number), candidates, worth, verdicts)


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    table = table_of([simulated(number, rng) for number in range(150)])
    return fit_policy(table, base=Policy(max_passes=1), config=DecisionConfig(max_field_error=0.05))


def test_the_fit_is_calibrated_on_problems_that_it_did_not_see(fitted):
    fields = fitted.fields
    bins = np.array_split(np.argsort(fields.confidence), 10)
    gaps = [abs(fields.confidence[rows].mean() - fields.right[rows].mean()) for rows in bins]

    assert len(fields.right) == 150 * 6
    assert np.mean(gaps) < 0.04
    assert ((fields.confidence - fields.right) ** 2).mean() < ((fields.share - fields.right) ** 2).mean()


def test_the_fit_learns_who_is_good_and_which_field_is_hard(fitted):
    model = fitted.policy.fields

    assert model.skill("ann", "f0") > model.skill("bob", "f0") > model.skill("cy", "f0")
    assert model.skill("ann", "f5") < model.skill("ann", "f0")
    by_path = {path: fitted.fields.confidence[np.array(fitted.fields.paths) == path].mean() for path in ("f0", "f5")}
    assert by_path["f5"] < by_path["f0"]


def test_a_rare_kind_of_field_counts_in_the_skill_over_all_kinds_alone():
    """Ann is right on 12 totals, a kind of its own, and wrong on 3 tips, one that is too rare for it."""
    pools = []
    for number in range(12):
        fields = {"total": number, **({"tip": 1} if number < 3 else {})}
        verdicts = {path: path == "total" for path in fields}
        pools.append(Labelled(str(number), [scored(str(number), fields)], np.ones(1), [verdicts]))

    model = fit_policy(table_of(pools), base=Policy(max_passes=1), config=DecisionConfig()).policy.fields

    pooled = 12.5 / 16
    overall = (12 + 10 * pooled) / 25
    total = (12 + 50 * overall) / 62
    assert model.skills == {
        "ann": {
            "": pytest.approx(math.log(overall / (1 - overall))), "total": pytest.approx(math.log(total / (1 - total)))
        }
    }  # fmt: skip
    assert model.kinds.keys() == {"total"}


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)], ids=["selected first", "selected last"])
def test_a_value_that_another_answer_makes_wrong_has_the_verdict_of_the_selected_answer(order):
    """Two plans have dinner at x; the one that two of three candidates give had lunch elsewhere, the other at x."""
    pools = []
    for number in range(12):
        plans = [{"lunch": "y", "dinner": "x"}, {"lunch": "y", "dinner": "x"}, {"lunch": "x", "dinner": "x"}]
        candidates = [scored(f"{number}-{place}", plan) for place, plan in enumerate(plans)]
        verdicts = [{"lunch": True, "dinner": place < 2} for place in range(3)]
        worth = np.array([1.0, 1.0, 0.0])[list(order)]
        pools.append(
            Labelled(str(number), [candidates[each] for each in order], worth, [verdicts[each] for each in order])
        )

    fields = fit_policy(table_of(pools), base=Policy(max_passes=1), config=DecisionConfig()).fields

    assert fields.paths.count("dinner") == 12
    assert fields.right.tolist() == [1.0] * 24


def test_the_certified_threshold_is_the_policy_s_and_keeps_the_error(fitted):
    policy = fitted.policy
    shown, losses = fitted.fields.losses(policy.tau_field)

    assert policy.field_guarantee["certified"]
    assert policy.tau_field in policy.field_guarantee["thresholds"]
    assert losses[shown > 0].mean() < 0.05


def test_the_model_gives_live_what_the_fit_gave(fitted):
    """The live confidence in a problem of the fit is near its cross-fitted one: the same weights, fold for fold."""
    pool = simulated(0, np.random.default_rng(0)).candidates
    best = pool[0]
    fields = field_beliefs(
        pool,
        best,
        beliefs=fitted.policy.posterior.beliefs(pool),
        reference=fitted.policy.posterior.reference,
        model=fitted.policy.fields,
    )

    assert [each.path for each in fields] == [f"f{place}" for place in range(6)]
    assert all(0 < each.confidence < 1 for each in fields)


def test_fields_and_authors_that_the_fit_never_saw_have_the_common_values(fitted):
    """Another schema than the policy was fitted on: no bias of the kind, no skill of the author."""
    model, pool = fitted.policy.fields, [scored("1", {"renamed": 1}, author="new"), scored("2", {"renamed": 2})]

    assert model.skill("new", "renamed") == 0.0
    assert model.skill("ann", "renamed") == model.skills["ann"][""]
    fields = beliefs_about(pool, 0.6, 0.3, model=model)
    assert 0 < fields["renamed"].confidence < 1


def test_a_candidate_without_an_answer_is_left_out():
    lost = scored("2", {})
    object.__setattr__(lost.report, "vote_key", None)

    assert beliefs_about([A, lost])["total"].confidence == pytest.approx(1 - 1e-4)


def test_a_policy_with_a_model_is_read_as_it_was_written(fitted):
    assert Policy.from_json(json.loads(json.dumps(fitted.policy.to_json()))).fields == fitted.policy.fields


def test_a_guarantee_on_fields_needs_fields():
    rng = np.random.default_rng(0)
    pools = [simulated(number, rng) for number in range(4)]
    bare = table_of([replace(each, fields=()) for each in pools])

    with pytest.raises(ConfigError, match=r"max_field_error is 0\.1.*labelled fields"):
        fit_policy(bare, base=Policy(max_passes=1), config=DecisionConfig(max_field_error=0.1))
