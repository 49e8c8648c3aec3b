"""The starter task, from its file to labels on Ray Data and answers of Ray Serve, which run when the file is gone."""

import json
import shutil
from pathlib import Path

import httpx
import pytest

from raydebm.config import load_recipe
from raydebm.generators.requests import answered
from raydebm.records import GenerationRequest, Sampling
from raydebm.serving.launch import deployed
from raydebm.store import CANDIDATES, LABELS, REPORTS, RunDir, candidate_row
from raydebm.tasks import task_of
from raydebm.tasks.declared.starter import starter_files
from raydebm.triage.policy import Policy

pytestmark = [pytest.mark.ray, pytest.mark.slow]

NAME = "reply"
TYPED = {"message": "The zip broke.", "paid": 20}
GREEDY_REFUND = '{"reply": "Done.", "refund": 30, "articles": ["returns"]}'
FAIR_REFUND = '{"reply": "Sorry! It is on its way back to you.", "refund": 20, "articles": ["returns"]}'


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("declared")
    for name, content in starter_files(NAME, str(folder)).items():
        (folder / name).write_text(content, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def recipe(folder):
    """The starter's recipe; its task file is removed once it has been read."""
    found = load_recipe(folder / "recipe.yaml", overrides=[f"run_dir={folder / 'run'}"])
    (folder / "task.yaml").unlink()
    return found


@pytest.fixture(scope="module")
def labelled(local_ray, recipe):
    """The run directory after generation and labelling."""
    from raydebm.distributed.stages import Pipeline

    pipeline = Pipeline(recipe=recipe)
    pipeline.make_labels()
    return pipeline.run


def recorded(task, text, *, pass_index):
    """What the model «scripted» says to the typed problem."""
    problem = task.problem_from_text(json.dumps(TYPED))
    request = GenerationRequest(
        task=task.name,
        problem_id=problem.problem_id,
        generator="scripted",
        messages=({"role": "user", "content": problem.prompt},),
        sampling=Sampling(),
        seed=0,
        pass_index=pass_index,
    )
    return candidate_row(answered(request, text))


@pytest.fixture(scope="module")
def url(labelled, live_run, recipe, repository, new_port):
    """The service of a run whose generator asks too much in pass 1 and is fair in pass 2."""
    run = labelled
    shutil.copytree(Path(live_run) / "scorer", Path(run.root) / "scorer")
    task = task_of(recipe.task)
    rows = [recorded(task, GREEDY_REFUND, pass_index=1), recorded(task, FAIR_REFUND, pass_index=2)]
    run.write_table(rows, CANDIDATES, "pool.parquet")
    tree = run.read_json("recipe.json")
    scripted = {"kind": "recorded", "name": "scripted", "pool": run.uri("pool.parquet"), "model": "scripted"}
    run.write_json({**tree, "generators": [scripted], "generation": {"num_samples": 1}}, "recipe.json")
    # Random adapters disagree by any amount; these thresholds let constraints alone decide.
    run.write_json(Policy(theta_sigma=1e3, theta_abstain=1e4, num_regenerate=1).to_json(), "calibration", "policy.json")
    args = {"run_dir": run.root, "threads": 1, "device": "cpu", "dtype": "float32"}
    with deployed(repository / "serve_config.yaml", port=new_port(), args=args, timeout_s=600) as address:
        yield address


def test_workers_label_and_check_without_the_file(labelled, folder):
    assert not (folder / "task.yaml").exists()
    labels = labelled.read_table(LABELS, "labels", "labels.parquet")
    reports = labelled.read_table(REPORTS, "labels", "reports.parquet")

    assert sum(row["verdict"] == "correct" for row in labels) == 27
    assert sum(row["verdict"] == "incorrect" for row in labels) == 21
    assert sum(row["penalty"] == 0 for row in reports) == 24


def test_the_run_directory_holds_the_task(labelled):
    assert RunDir(labelled.root).read_json("recipe.json")["task"]["definition"]["name"] == NAME


def test_the_service_checks_gives_feedback_and_accepts(url):
    answer = httpx.post(f"{url}/v1/triage", json={"task": NAME, "problem": json.dumps(TYPED)}, timeout=240).json()

    assert (answer["decision"], json.loads(answer["answer"])["refund"]) == ("accept", 20)
    assert [found["decision"] for found in answer["passes"]] == ["regenerate", "accept"]
    assert "- the refund is 30.00; it must be at most 20.00" in answer["feedback"][0]
    assert "- the reply neither thanks nor apologises" in answer["feedback"][0]


def test_a_problem_with_prompt_and_data_is_the_same_problem(url):
    body = {"problem": {"prompt": "Message: The zip broke.\nPaid: 20", "data": TYPED}}
    answer = httpx.post(f"{url}/v1/triage", json=body, timeout=240).json()

    assert answer["decision"] == "accept"


def test_the_chat_route_names_what_is_missing(url):
    body = {"model": f"raydebm/{NAME}", "messages": [{"role": "user", "content": "The zip broke."}]}
    answer = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=240)

    assert answer.status_code == 422
    assert "needs the fields message, paid" in answer.json()["error"]["message"]
