"""`raydebm replay`: stored traffic decided again, and what the command prints."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from decisions_by_hand import record, scored, stored_in

from raydebm.config import CostsConfig
from raydebm.decision.evidence.posterior import Posterior
from raydebm.decision.evidence.terms import Author, Reference
from raydebm.decision.policy import Policy
from raydebm.decision.redecide import redecide
from raydebm.records import OWN_LOGPROB, Verdict
from raydebm.service.store.reader import DecisionReader
from raydebm.service.store.stored_replay import (
    Changes,
    OtherEnsemble,
    ReplayedPair,
    ReplayTally,
    compare_policies,
    replay_stored,
)

BY_SHARE = Posterior(weights={"votes": 1.0}, context_weights={"none": -30.0})
BY_VOTES = Policy(max_passes=1, rule="posterior", posterior=BY_SHARE, tau_accept=0.9, tau_answer=0.4)


@pytest.fixture
def policy_file(tmp_path):
    """A policy whose confidence is the share of votes, with a certified guarantee."""
    guarantee = {"max_error": 0.1, "confidence": 0.9, "certified": True, "problems": 500, "tau": 0.4}
    path = tmp_path / "policy.json"
    path.write_text(json.dumps(BY_VOTES.replaced(guarantee=guarantee).to_json()))
    return path


@pytest.fixture
def folder(tmp_path):
    """Three decisions: sure; unsure; and one whose selection has the lowest mu but violates a constraint."""
    records = [
        record(0, scored("a", -2.0, 0.0)),
        record(1, scored("b", -2.0, 1.0), scored("c", -1.0, 0.0, key="43")),
        record(2, scored("d", -3.0, 0.5, penalty=0.5), scored("e", -2.4, 0.5, key="7")),
    ]
    stored_in(tmp_path / "records", records)
    return str(tmp_path / "records")


@pytest.fixture
def replayed(folder, raydebm):
    """Runs the command on the folder; returns what it printed."""

    def run(*arguments):
        done = raydebm("replay", folder, *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_nothing_changed_changes_nothing(replayed):
    printed = replayed()
    assert "3 stored decisions, decided again" in printed
    assert "changed: 0 of 3 (0.0%)" in printed
    assert "coverage (share accepted): 100.0% recorded, 100.0% replayed" in printed


def test_another_lambda_gives_another_answer(replayed):
    """E of d is -3 + 2 * 0.5 = -2, above -2.4 of e, which answers 7."""
    printed = replayed("lambda=2")
    assert "accept, another answer" in printed
    assert "changed: 1 of 3" in printed


def test_more_passes_than_were_drawn_give_an_interval(replayed):
    """The second (sigma 1) and the third (violated) would be drawn again; only the first is certain."""
    printed = replayed("max_passes=2")
    assert "would sample a pass or wave that is not recorded" in printed
    assert "between 33.3% and 100.0% replayed" in printed
    assert "changed: 0 of 3 (0.0%); 2 are unknown" in printed


def test_whether_a_decision_changes_is_null_where_a_pass_is_missing(replayed, tmp_path):
    """The first stays, the second would sample a pass, and the third gives another answer."""
    replayed("max_passes=2", "lambda=2", "--out", tmp_path / "again.jsonl")
    rows = [(row["decision"], row["changed"]) for row in rows_of(tmp_path / "again.jsonl")]
    assert rows == [("accept", False), ("regenerate", None), ("accept", True)]


def test_a_budget_keeps_the_first_candidates(replayed):
    printed = replayed("budget=1")
    assert "candidates per decision: 1.67 recorded, 1.00 replayed" in printed


def test_accuracy_needs_labels_and_leaves_out_the_unlabeled(replayed, tmp_path):
    file = tmp_path / "labels.jsonl"
    verdicts = {"a": "correct", "b": "unlabeled", "d": "incorrect", "e": "correct"}
    file.write_text("\n".join(json.dumps({"candidate_id": k, "verdict": v}) for k, v in verdicts.items()))
    printed = replayed("lambda=2", "--labels", file)
    assert "accuracy of accepted answers: 50.0% (n=2) recorded, 100.0% (n=2) replayed" in printed


def test_every_decision_can_be_written_to_a_file(replayed, tmp_path):
    out = tmp_path / "sub" / "again.jsonl"
    replayed("theta_abstain=0.75", "theta_sigma=0.1", "--out", out)
    rows = rows_of(out)
    assert [row["recorded_decision"] for row in rows] == ["accept"] * 3
    assert [row["decision"] for row in rows] == ["accept", "abstain", "accept"]
    assert [row["problem_id"] for row in rows] == ["p0", "p1", "p2"]
    assert [row["sigma"] for row in rows] == [0.0, 1.0, 0.5]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["theta_sigma=2"], "theta_sigma must be below theta_abstain, got 2.0 and 1.5"),
        (["budget=0"], "budget: Input should be greater than or equal to 1 (got 0)"),
        (["--since", "yesterday"], "--since must be a time such as"),
        (["--until", "2026-05-01T12:00:30"], "--until needs a time zone, such as 2026-05-01T12:00:30Z"),
        (["--task", "other"], "no stored decision in"),
        (
            ["--policy", "/nowhere.json"],
            "'/nowhere.json' does not exist; give a file, or leave --policy out",
        ),
        (["--labels", "/nowhere.jsonl"], "does not exist"),
        (["--out", "again.parquet"], "--out must end in .jsonl"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_mistakes_are_one_clear_line(folder, raydebm, arguments, reason):
    done = raydebm("replay", folder, *arguments)
    assert done.returncode == 2
    assert reason in done.stderr


class Letters:
    """An ensemble that prefers texts with a late last letter."""

    def __init__(self):
        self.texts = []

    def score(self, texts):
        self.texts += texts
        facts = {"num_tokens": 3, "num_truncated": 0}
        return [SimpleNamespace(members=(-float(ord(text[-1])),), **facts) for _, text in texts]


def test_another_ensemble_scores_the_stored_texts(folder, policy_file):
    """It gets the problem as the first one did, and every text once."""
    letters = Letters()
    ensemble = OtherEnsemble(scorer=letters)
    stored = DecisionReader(folder).records()
    selected = [decision.again.selected for decision in replay_stored(stored, Changes(), ensemble=ensemble)]
    assert selected == ["a", "c", "e"]
    assert letters.texts == [("6 x 7?", f"text of {name}") for name in "abcde"]

    # The guarantee was certified with the recorded energies.
    changes = Changes(policy=Policy.from_json(json.loads(policy_file.read_text())))
    stored = DecisionReader(folder).records()
    assert [decision.guaranteed for decision in replay_stored(stored, changes, ensemble=ensemble)] == [False] * 3


def test_an_ensemble_that_reads_the_thinking_gets_it_again(tmp_path):
    thinking = scored("a", 0.0, 0.0)
    thinking = replace(thinking, candidate=replace(thinking.candidate, text="#### 42", reasoning="6 x 7 is 42."))
    letters = Letters()

    replayed_once(tmp_path, record(0, thinking), ensemble=OtherEnsemble(scorer=letters, reasoning="all"))

    assert letters.texts == [("6 x 7?", "6 x 7 is 42.\n\n#### 42")]


def test_a_verdict_holds_for_another_candidate_with_the_same_answer(tmp_path):
    """E of a is -3 + 2 * 0.5 = -2, above -2.4 of b; both answer 42, and the report was about a."""
    decision = record(0, scored("a", -3.0, 0.5, penalty=0.5), scored("b", -2.4, 0.5))
    stored = stored_in(tmp_path / "one", [decision]).records()
    (replayed,) = replay_stored(stored, Changes(values={"lambda": 2.0}))
    tally = ReplayTally()

    tally.add(replayed, {"a": Verdict.CORRECT})

    assert replayed.again.selected == "b"
    names = ("correct_before", "correct_after", "labeled_before", "labeled_after")
    assert [tally.counts[name] for name in names] == [1, 1, 1, 1]


@pytest.mark.parametrize("policy", [{}, {"max_passes": 1}, {"max_passes": 4, "theta_sigma": 0.0}], ids=str)
@pytest.mark.parametrize("kind", ["sure", "unsure"])
def test_what_the_service_decided_and_stored_is_decided_again_the_same(
    decided, script, texts, tmp_path, policy, kind, energies
):
    """Through the service's own loop, the file and back: wrong, then without an answer, then right."""
    members = energies[kind]
    by_pass = {1: texts["wrong"], 2: texts["unreadable"], 3: texts["right"]}
    script(
        lambda asked: None if asked.sample_index == 1 else by_pass.get(asked.pass_index, texts["right"]),
        lambda text: members,
    )
    record = decided(**policy).record

    again = replayed_once(tmp_path, record)

    best = record.outcome.best
    assert (again.decision, again.exact) == (record.outcome.decision, True)
    assert again.selected == (best and best.candidate.candidate_id)
    assert again.num_passes == len(record.outcome.passes)


def weighing(**weights):
    """A policy that answers by these terms of evidence; texts of e^3 characters are usual."""
    usual = Author(skill=0.0, center=0.0, scale=1.0, length_center=3.0, length_scale=0.5, scores={OWN_LOGPROB: (0, 1)})
    reference = Reference(authors={}, default=usual, lambda_=1.0)
    posterior = Posterior(weights=weights, context_weights={"pool_length": 1.0}, reference=reference)
    return Policy(max_passes=1, rule="posterior", posterior=posterior, tau_accept=0.0, tau_answer=0.0)


def replayed_once(tmp_path, decision, **options):
    stored = stored_in(tmp_path / "one", [decision]).records()
    (replayed,) = replay_stored(stored, Changes(), **options)
    return replayed.again


@pytest.mark.parametrize("term", ["length", f"score:{OWN_LOGPROB}"])
def test_evidence_of_texts_and_log_probabilities_decides_again_as_it_did(tmp_path, term):
    """Equal votes; the second text is brief, and its generator was surer of it."""
    policy = weighing(**{term: 4.0})
    pool = [
        replace(each, candidate=replace(each.candidate, text=text, logprob=logprob))
        for each, text, logprob in (
            (scored("a", 0.0, 0.0), "so it is 42 " * 9, -2.0),
            (scored("b", 0.0, 0.0, key="43"), "43", -0.1),
        )
    ]
    decision = record(0, *pool, policy=policy)
    live = redecide(decision.outcome, policy)

    again = replayed_once(tmp_path, decision)

    assert (again.selected, again.confidence) == (live.selected, live.confidence)
    assert live.selected == "b"


# ---- guarantees and costs ----------------------------------------------------------------------------------


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_rows_carry_the_confidence_and_whether_the_guarantee_holds(replayed, policy_file, tmp_path):
    printed = replayed("--policy", policy_file, "--out", tmp_path / "again.jsonl")

    rows = rows_of(tmp_path / "again.jsonl")
    assert [row["confidence"] for row in rows] == pytest.approx([1.0, 0.5, 0.5], abs=1e-5)
    assert [row["promised"] for row in rows] == [True] * 3
    assert "guarantee: certified for the policy of 3 of 3 decisions" in printed


def test_a_change_that_was_not_certified_voids_the_guarantee(replayed, policy_file, tmp_path):
    printed = replayed("--policy", policy_file, "profile=vote", "--out", tmp_path / "again.jsonl")

    assert [row["promised"] for row in rows_of(tmp_path / "again.jsonl")] == [False] * 3
    assert "no guarantee: the changed policy was not certified" in printed


@pytest.mark.parametrize(
    ("costs", "recorded", "expected"),
    [
        ({"wrong": 1.0, "refusal": 0.0, "pass": 0.0}, 0.9, (0.5, 0.9)),
        ({"wrong": 1.0, "refusal": 0.0, "pass": 0.5}, 0.9, (0.5, 0.75)),  # 1 - 0.5 / 2
        ({"wrong": 1.0, "refusal": 0.0, "pass": 3.0}, 0.9, (0.5, 0.5)),  # no pass is ever worth it
        ({"wrong": 99.0, "refusal": 0.0, "pass": 0.0}, 0.9, (0.99, 0.99)),
    ],
)
def test_thresholds_that_follow_from_costs(costs, recorded, expected):
    changes = Changes(costs=CostsConfig.model_validate(costs))

    policy = changes.policy_for(BY_VOTES.replaced(tau_accept=recorded))

    assert (policy.tau_answer, policy.tau_accept) == pytest.approx(expected)


def test_decisions_with_labels_are_pairs_of_what_both_policies_gave_out(folder):
    """With lambda 2 the energy of d is -2, above e's -2.4: e is selected. Of the other problems nothing is known."""
    tally = ReplayTally()
    for again in replay_stored(DecisionReader(folder).records(), Changes(values={"lambda": 2.0})):
        tally.add(again, {"d": Verdict.INCORRECT, "e": Verdict.CORRECT})
    assert tally.pairs == {("t", "p2"): ReplayedPair(recorded=-1, again=1)}


def test_a_paired_test_is_printed_with_labels(replayed, tmp_path):
    rows = [{"candidate_id": "d", "verdict": "incorrect"}, {"candidate_id": "e", "verdict": "correct"}]
    (tmp_path / "labels.jsonl").write_text("\n".join(map(json.dumps, rows)))
    printed = replayed("lambda=2", "--labels", tmp_path / "labels.jsonl")
    assert "right answers returned, replayed minus recorded: +100.0% [+100.0%, +100.0%] of 1 problems, p 1" in printed


PAIRS = [ReplayedPair(-1, 1)] * 6 + [ReplayedPair(1, 1)] * 3 + [ReplayedPair(1, 0)]


def test_differences_are_those_of_the_replayed_policy():
    right, wrong = compare_policies(PAIRS)
    assert (right.difference.value, right.only_one, right.only_other) == pytest.approx((0.5, 6, 1))
    assert (wrong.difference.value, wrong.only_one, wrong.only_other) == pytest.approx((-0.6, 0, 6))
