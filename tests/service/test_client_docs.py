"""The client against the application's own parts behind a real socket, and every Python block of docs/client.md.

The parts run behind Serve's local handles in this process; no Ray is started.
"""

import contextlib
import io
import re
import shutil

import pytest
import yaml

from raydebm.run.directory import RunDir
from raydebm.service.core import TriageService
from raydebm.service.routes.application import create_app
from raydebm.service.settings import AppArgs, load_bundle
from raydebm.service.store.record import DecisionWriter
from raydebm_client import AsyncRaydebm, Progress, Raydebm

WHERE = "http://127.0.0.1:8000"
BLOCK = re.compile(r"(?:<!-- service: (\w+) -->\n)?```python\n(.*?)```", re.DOTALL)
SECTION = re.compile(r"^## (.+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def application_of(local_backend):
    def make(run_dir, name, records=None):
        bundle = load_bundle(AppArgs(run_dir=run_dir, records=records and {"folder": records.root}))
        return create_app(TriageService(bundle, local_backend(bundle, name).serving(bundle), records=records))

    return make


@pytest.fixture(scope="module")
def url(live_run, application_of, tmp_path_factory, listening, new_port):
    records = DecisionWriter(str(tmp_path_factory.mktemp("kept")))
    with listening(application_of(live_run, "puzzles", records), new_port()) as address:
        yield address


@pytest.fixture(scope="module")
def packing_url(live_run, application_of, repository, tmp_path_factory, listening, new_port):
    """A run of the task that docs/tutorials/a_task.md builds, with the ensemble of the other run."""
    page = (repository / "docs" / "tutorials" / "a_task.md").read_text(encoding="utf-8")
    definition = yaml.safe_load(re.search(r"file: packing/task\.yaml -->\n```yaml\n(.*?)```", page, re.DOTALL).group(1))
    run = RunDir(str(shutil.copytree(live_run, tmp_path_factory.mktemp("packing") / "run")))
    tree = run.read_json("recipe.json")
    run.write_json({**tree, "task": {"name": definition["name"], "definition": definition}}, "recipe.json")
    with listening(application_of(run.root, "packing"), new_port()) as address:
        yield address


@pytest.fixture
def connected(url):
    with Raydebm(url, max_retries=0) as client:
        yield client


def blocks(repository):
    """(section, service, code) of every Python block, in the order of the page."""
    page = (repository / "docs" / "client.md").read_text(encoding="utf-8")
    for match in BLOCK.finditer(page):
        section = [heading.group(1) for heading in SECTION.finditer(page, 0, match.start())][-1]
        yield section, match.group(1), match.group(2)


def printed_by(code, address, question):
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        names = {"__name__": "docs", "question": question}
        exec(compile(code.replace(WHERE, address), "docs/client.md", "exec"), names)
    return output.getvalue()


EXPECTED = {
    "First request in 60 seconds": 'accept {"Ava": "knave", "Zoey": "knight"}',
    "Settings": "404 unknown_task task 'no_such_task' is not served here",
    "Behind an existing OpenAI app": '{"Ava": "knave", "Zoey": "knight"}',
    "Progress while it works": "candidate {'pass': 1, 'done': 1, 'total': 3",
    "Many problems": "accept\nnot_a_problem\n",
    "Reporting outcomes": "created right\n",
    "As RL reward": ", -10.0]",
    "As reranker": "-1000000.00  sigma",
    "With your own task": "the bag weighs 27.5 kg, 22.5 kg more than the limit of 5.0 kg; leave something out",
}
"""What each section's example prints, in part."""


@pytest.mark.parametrize("section", EXPECTED)
def test_examples_run_as_they_stand(repository, url, packing_url, puzzle, section):
    ((_, service, code),) = [block for block in blocks(repository) if block[0] == section]
    assert EXPECTED[section] in printed_by(code, packing_url if service == "packing" else url, puzzle)


def test_every_section_with_an_example_is_run(repository):
    assert [section for section, _, _ in blocks(repository)] == list(EXPECTED)


def test_a_stream_ends_with_the_result_that_triage_gives(connected, puzzle):
    *progress, last = connected.stream(puzzle, return_candidates=True)
    plain = connected.triage(puzzle, return_candidates=True)
    assert all(isinstance(event, Progress) for event in progress)
    assert sum(event.event == "candidate" for event in progress) == 5
    assert (last.decision, last.answer, last.text) == (plain.decision, plain.answer, plain.text)
    assert last.sigma == pytest.approx(plain.sigma)  # texts are scored in the batches that requests happen to share
    assert last.candidate.candidate_id == plain.candidate.candidate_id


def test_both_clients_have_the_same_methods():
    one, other = ({name for name in vars(kind) if not name.startswith("_")} for kind in (Raydebm, AsyncRaydebm))
    assert one == other
