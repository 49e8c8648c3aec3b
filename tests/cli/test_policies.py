"""`raydebm policies`: every action on a run directory, and what is wrong in one line with exit code 2."""

import asyncio
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "serving"))

from hand_written_run import backend, energies, puzzle, recipe, script, texts, write_run  # noqa: F401 - fixtures

from raydebm.cli import main
from raydebm.cli.policies.comparison import comparison_lines
from raydebm.decision.evidence.posterior import Posterior
from raydebm.decision.policy import Policy, policy_id
from raydebm.decision.policy_history import PolicyHistory
from raydebm.decisions.writer import DecisionWriter
from raydebm.run.directory import RunDir
from raydebm.serving.core.request import request_context
from raydebm.serving.core.service import TriageService
from raydebm.serving.settings.app_args import AppArgs
from raydebm.serving.settings.bundle import load_bundle
from raydebm.serving.settings.overrides import Overrides

FIRST, SECOND = Policy(theta_sigma=0.8, max_passes=1), Policy(theta_sigma=10.0, theta_abstain=20.0, max_passes=1)


@pytest.fixture
def root(write_run):  # noqa: F811 - the fixture above
    return write_run(policy=FIRST)


@pytest.fixture
def history(root):
    return PolicyHistory(RunDir(root))


@pytest.fixture
def policy_file(tmp_path):
    def write(policy=SECOND):
        file = tmp_path / "candidate.json"
        file.write_text(policy if isinstance(policy, str) else json.dumps(policy.to_json()))
        return str(file)

    return write


@pytest.fixture
def policies(root, capsys):
    """What a command says, and its exit code."""

    def run(action, *arguments):
        with pytest.raises(SystemExit) as ended:
            main(["policies", action, *arguments, "--run-dir", root])
        said = capsys.readouterr()
        return SimpleNamespace(code=ended.value.code, out=said.out, err=" ".join(said.err.split()))

    return run


def test_a_policy_is_tried_promoted_and_rolled_back(policies, policy_file, history):
    assert "a canary for 5 % of the problems" in policies("try", policy_file(), "--percent", "5").out
    assert policies("promote", "--reason", "p = 0.01").code == 0
    assert history.first() == SECOND
    assert "is in force again" in policies("rollback", "--reason", "complaints").out
    assert history.first() == FIRST


def test_a_change_asks_running_services_to_take_it(policies, policy_file, history):
    words = " ".join(policies("try", policy_file()).out.split())
    assert history.applied() == 1
    assert "A running service looks every 5 seconds" in words


def test_a_trial_is_a_shadow_by_default_and_can_be_dropped(policies, policy_file, history):
    assert "is a shadow" in policies("try", policy_file()).out
    assert history.second().percent == 0
    policies("drop")
    assert history.second() is None


def test_the_list_has_both_policies_and_every_change(policies, policy_file):
    policies("try", policy_file(), "--percent", "5")
    policies("promote", "--reason", "it won")
    policies("rollback")
    policies("try", policy_file(), "--percent", "10", "--reason", "once more")
    said = policies("list").out
    assert f"first: {policy_id(FIRST)}" in said
    assert f"second: {policy_id(SECOND)}, a canary for 10 % of the problems" in said
    assert "(once more)" in said
    assert "rollback of 1" in said
    assert "it won" in said


def test_a_reason_with_brackets_stands_in_the_history_as_it_was_given(policies, policy_file):
    policies("try", policy_file())
    policies("promote", "--reason", "[/canary]")

    assert "[/canary]" in policies("list").out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("promote",), "no policy is on trial"),
        (("rollback",), "no promotion is left to roll back"),
        (("drop",), "no policy is on trial"),
        (("try", "missing.json"), "policy file 'missing.json' does not exist"),
        (("try", "."), "policy file '.' cannot be read"),
        (("compare", "--records", __file__), "test_policies.py is a file; give the folder"),
        (("compare",), "starts that"),
        (("compare", "--margin", "0"), "--margin must be between 0 and 1"),
        (("compare", "--first", "a"), "give both --first and --second"),
        (("compare", "--since", "yesterday"), "--since must be a time"),
    ],
)
def test_what_is_not_possible_is_said_in_one_line(policies, arguments, words):
    done = policies(*arguments)
    assert done.code == 2
    assert words in done.err


@pytest.mark.parametrize("percent", ["-1", "100.5", "nan"])
def test_a_share_outside_of_0_to_100_is_refused(policies, policy_file, percent):
    done = policies("try", policy_file(), "--percent", percent)
    assert (done.code, "percent must be between 0" in done.err) == (2, True)


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ('{"theta_sigma": ', "is not JSON"),
        ('{"lamda": 1}', "lamda"),
        (
            Policy(rule="posterior", posterior=Posterior(weights={"votes": 1.0}, context_weights={}, task="gsm8k")),
            "was fitted for task 'gsm8k', and this is task 'knights_knaves'",
        ),
        (
            Policy(rule="posterior", posterior=Posterior(weights={"score:reader": 1.0}, context_weights={})),
            "nothing measures here: reader",
        ),
    ],
)
def test_a_policy_that_does_not_fit_is_not_put_beside_the_first(policies, policy_file, history, policy, words):
    done = policies("try", policy_file(policy))
    assert (done.code, words in done.err) == (2, True)
    assert history.second() is None


def test_stored_decisions_are_compared(root, history, policies, script, texts, energies, puzzle):  # noqa: F811
    history.try_policy(SECOND, percent=0.0)
    backend = script(lambda request: texts["right"], lambda text: energies["unsure"])  # noqa: F811
    bundle = load_bundle(AppArgs(run_dir=root))
    writer = DecisionWriter(bundle.records.folder)
    context = request_context(bundle, Overrides(), request_id="r", task_name=None, problem=puzzle)
    asyncio.run(TriageService(bundle, backend, records=writer).triage(context))
    writer.close()

    said = policies("compare").out
    assert "1 problems, decided by both policies" in said
    assert "They agree on 0 and differ on 1; of 0 the choice" in said
    assert "answered" in said
    assert "0 of 1" in said
    assert "+100.0%" in said
    assert "No outcome tells them apart so far" in said


def test_how_many_outcomes_more_are_needed_is_said():
    comparison = SimpleNamespace(
        num_agree=6, num_differ=4, num_unknown=0, num_outcomes=10, num_unjudged=0, num_repeated=0, num_inexact=0,
        outcomes_needed=302, margin=0.1,
    )  # fmt: skip
    assert list(comparison_lines(comparison))[-1].endswith("about 302 outcomes more are needed.")
