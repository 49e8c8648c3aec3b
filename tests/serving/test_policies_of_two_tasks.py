"""Two tasks behind one address store their decisions in one folder: each is compared on its own."""

import pytest
from hand_written_run import RIGHT
from two_runs import LIKE_THEM

from raydebm.cli import main
from raydebm.decision.policy import Policy, policy_id
from raydebm.decision.policy_history import PolicyHistory
from raydebm.decisions.writer import DecisionWriter
from raydebm.run.directory import RunDir
from raydebm.serving.api.application import create_app
from raydebm.serving.core.service import TriageService
from raydebm.serving.settings.gateway import load_gateway

TRIED = Policy(theta_sigma=10.0, theta_abstain=20.0, max_passes=1)
TASKS = ("gsm8k", "knights_knaves")


@pytest.fixture
def args(two_runs):
    """Both runs try the same policy."""
    args = two_runs()
    for folder in (args.run_dir, args.further_runs[0].run_dir):
        PolicyHistory(RunDir(folder)).try_policy(TRIED, percent=0.0)
    return args


@pytest.fixture
def gateway(args):
    return load_gateway(args)


@pytest.fixture
def service(gateway, script, client_of, puzzle):
    """One stored decision of each task, the puzzle's the newest."""
    backend = script(lambda request: RIGHT if request.task == "knights_knaves" else "#### 84")
    writer = DecisionWriter(gateway.records.folder)
    client = client_of(create_app(TriageService(gateway, backend, records=writer)))
    for task, question in zip(TASKS, (LIKE_THEM, puzzle), strict=True):
        client.post("/v1/triage", {"problem": question, "task": task})
    writer.flush()
    yield client
    writer.close()


@pytest.mark.parametrize("task", TASKS)
def test_the_newest_pair_is_one_of_the_task(service, gateway, task):
    body = service.get(f"/v1/policies/comparison?task={task}").json()
    assert (body["first"]["version"], body["num_decisions"]) == (gateway.of(task).versions["policy"], 1)


def test_a_pair_of_policies_is_compared_on_decisions_of_its_task_alone(service, gateway):
    """Of the pair of the other task there is no decision, though its policies are there."""
    first = gateway.of("knights_knaves").versions["policy"]
    reply = service.get(f"/v1/policies/comparison?task=gsm8k&first={first}&second={policy_id(TRIED)}")
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, "no_pairs")


@pytest.fixture
def compared(capsys):
    """What the command says."""

    def compare(*arguments):
        with pytest.raises(SystemExit) as ended:
            main(["policies", "compare", *arguments])
        assert ended.value.code == 0
        return " ".join(capsys.readouterr().out.split())

    return compare


def test_the_command_line_compares_decisions_of_the_runs_task(service, gateway, args, compared):
    words = compared("--run-dir", args.further_runs[0].run_dir, "--records", gateway.records.folder)
    assert f"first {gateway.of('gsm8k').versions['policy']}" in words


def test_another_task_can_be_named_on_the_command_line(service, gateway, args, compared):
    """A service may serve another task than the recipe's, by its argument ``task``."""
    words = compared("--run-dir", args.run_dir, "--task", "gsm8k")
    assert f"first {gateway.of('gsm8k').versions['policy']}" in words
