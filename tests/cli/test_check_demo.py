"""Continuous integration fails when the demo does not show its three decisions."""

import importlib.util
import json

import pytest

GOOD = {
    "accept": {"decision": "accept", "passes": 1, "first_selection_correct": True, "last_selection_correct": True},
    "regenerate": {"decision": "accept", "passes": 2, "first_selection_correct": False, "last_selection_correct": True},
    "abstain": {"decision": "abstain", "passes": 2, "first_selection_correct": False, "last_selection_correct": False},
}


@pytest.fixture(scope="module")
def check(repository):
    spec = importlib.util.spec_from_file_location("check_demo", repository / ".ci" / "check_demo.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def decisions(**changes):
    """The good ones with changes; None leaves a kind out."""
    changed = {kind: facts | {"as_replayed": True} | (changes.get(kind) or {}) for kind, facts in GOOD.items()}
    return {kind: facts for kind, facts in changed.items() if kind not in changes or changes[kind] is not None}


def test_the_three_decisions_pass(check, tmp_path):
    (tmp_path / "demo.json").write_text(json.dumps({"decisions": decisions()}))

    assert check.main(str(tmp_path / "demo.json")) == 0


@pytest.mark.parametrize("kind", GOOD)
def test_a_missing_decision_fails(check, tmp_path, kind, capsys):
    (tmp_path / "demo.json").write_text(json.dumps({"decisions": decisions(**{kind: None})}))

    assert check.main(str(tmp_path / "demo.json")) == 1
    assert capsys.readouterr().out == f"{kind}: the demo shows no such decision\n"


@pytest.mark.parametrize(
    ("kind", "change", "fault"),
    [
        ("accept", {"decision": "abstain"}, "accept: decision is 'abstain', expected 'accept'"),
        ("accept", {"as_replayed": False}, "accept: as_replayed is False, expected True"),
        ("regenerate", {"passes": 1}, "regenerate: 1 pass(es), expected at least 2"),
        (
            "regenerate",
            {"last_selection_correct": False},
            "regenerate: last_selection_correct is False, expected True",
        ),
        ("abstain", {"last_selection_correct": True}, "abstain: last_selection_correct is True, expected False"),
    ],
)
def test_a_decision_that_went_wrong_is_named(check, kind, change, fault):
    assert list(check.faults(decisions(**{kind: change}))) == [fault]
