"""Which problems the demo asks about, and what it says of the service's decisions."""

import pytest

from raydebm.cli.demo import Example, choose_examples, demo, facts_of
from raydebm.errors import ConfigError
from raydebm.records import Decision, Outcome, PassRecord, Problem


def outcome(name, decision, *selected):
    """A replayed decision whose passes selected these candidates."""
    passes = tuple(
        PassRecord(
            pass_index=index, num_requested=1, num_failed=0, selected=candidate, sigma=None, penalty=None,
            decision=decision if index == len(selected) - 1 else Decision.REGENERATE,
        )
        for index, candidate in enumerate(selected)
    )  # fmt: skip
    problem = Problem(problem_id=name, task="t", prompt=name)
    return Outcome(problem=problem, decision=decision, best=None, passes=passes, pool=(), reason="r")


RIGHT = {"right", "also right"}


def names(outcomes):
    return {kind: example.outcome.problem.problem_id for kind, example in choose_examples(outcomes, RIGHT).items()}


def test_the_first_decision_of_each_kind_that_did_what_it_is_for_is_asked():
    chosen = names(
        [
            outcome("accepted wrongly", Decision.ACCEPT, "wrong"),
            outcome("abstained in vain", Decision.ABSTAIN, "wrong", "right"),
            outcome("regenerated in vain", Decision.ACCEPT, "right", "also right"),
            outcome("abstained", Decision.ABSTAIN, "wrong", "wrong"),
            outcome("improved", Decision.ACCEPT, "wrong", "right"),
            outcome("accepted", Decision.ACCEPT, "right"),
            outcome("accepted later", Decision.ACCEPT, "also right"),
        ]
    )

    assert chosen == {"accept": "accepted", "regenerate": "improved", "abstain": "abstained"}


@pytest.mark.parametrize(
    ("decision", "passes", "as_replayed"), [("accept", 2, True), ("accept", 1, False), ("abstain", 2, False)]
)
def test_facts_say_whether_the_service_decided_as_the_replay(decision, passes, as_replayed):
    example = Example(outcome=outcome("p", Decision.ACCEPT, "wrong", "right"), first_correct=False, correct=True)

    facts = facts_of(example, {"decision": decision, "reason": "why", "num_passes": passes})

    assert facts == {
        "decision": decision,
        "reason": "why",
        "passes": passes,
        "as_replayed": as_replayed,
        "first_selection_correct": False,
        "last_selection_correct": True,
    }


def test_a_folder_for_the_json_file_that_does_not_exist_costs_no_training(tmp_path):
    with pytest.raises(ConfigError, match=r"--json .*the folder does not exist"):
        demo(run_dir=str(tmp_path), port=0, json_file=tmp_path / "absent" / "demo.json")
