"""What CONTRIBUTING.md states: hooks and workflow run the project's checks, and every place that it names exists."""

import re

import pytest
import yaml


@pytest.fixture
def text(repository):
    return (repository / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_the_hooks_run_the_tools_of_make_check(repository):
    config = yaml.safe_load((repository / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    hooks = [hook for source in config["repos"] for hook in source["hooks"]]
    recipe = (repository / "Makefile").read_text(encoding="utf-8").split("\ncheck:", 1)[1].split("\n\n", 1)[0]
    checked = re.findall(r"\$\(BIN\)/(.+)", recipe)

    assert [source["repo"] for source in config["repos"]] == ["local"]
    assert {hook["language"] for hook in hooks} == {"system"}
    assert len(checked) == 4
    assert {re.search(r"\.venv/bin/(\S+(?: (?!-)\S+)?)", hook["entry"])[1] for hook in hooks} == {
        re.match(r"\S+(?: (?![-.])\S+)?", command)[0] for command in checked
    }


def test_the_workflow_calls_what_runs_the_checks_and_the_tests(repository):
    workflow = yaml.safe_load((repository / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    steps = [step.get("run") for job in workflow["jobs"].values() for step in job["steps"]]

    assert ".ci/run" in steps
    assert (repository / ".ci" / "run").stat().st_mode & 0o111


def test_every_place_that_it_names_exists(text, repository):
    named = set(re.findall(r"`((?:raydebm|tests|benchmarks)/[\w./-]+)`", text))

    assert len(named) >= 5
    assert [name for name in named if not (repository / name).exists()] == []


def test_every_name_in_capitals_that_a_step_tells_to_extend_is_in_the_code(text, repository):
    places = {
        "BUILT_IN": "raydebm/tasks/__init__.py",
        "CASES": "tests/tasks/test_conformance.py",
    }
    for name, place in [*places.items(), ("BUILT_IN", "raydebm/decision/evidence/built_in_terms.py")]:
        assert f"`{name}`" in text
        assert re.search(rf"^{name}\b.*=", (repository / place).read_text(encoding="utf-8"), flags=re.MULTILINE), name
