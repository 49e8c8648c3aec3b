"""``best_of`` on hand-made runs; energies come from a table."""

import asyncio
import math
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest

import raydebm
from raydebm.choose import Chooser, best_of
from raydebm.config import parse_recipe
from raydebm.decision.evidence.posterior import Posterior
from raydebm.decision.evidence.terms import Author, Kind, Reference
from raydebm.decision.policy import Policy
from raydebm.decision.redecide import redecide
from raydebm.decision.sampling.checks import check_candidate
from raydebm.errors import CheckpointError, ConfigError, ScoringError, TaskDataError
from raydebm.generators.requests import answered
from raydebm.records import Candidate, Decision, Energies
from raydebm.run.directory import RunDir
from raydebm.service.core import TriageService, request_context
from raydebm.service.routes.bodies import ChatRequest
from raydebm.service.routes.chat import chat_context
from raydebm.service.settings import AppArgs, Overrides, load_bundle
from raydebm.service.store.record import record_of, record_row

AUTHORS = {
    "ada": Author(skill=3.0, center=0.0, scale=1.0),
    "bo": Author(skill=-3.0, center=0.0, scale=1.0),
}
POSTERIOR = Posterior(
    weights={"votes": 1.0, "skill": 0.5, "authors": 0.5, "energy": 0.5},
    context_weights={"none": -2.0},
    reference=Reference(
        authors=AUTHORS,
        default=Author(skill=0.0, center=0.0, scale=1.0),
        lambda_=1.0,
    ),
)
POLICY = Policy(rule="posterior", posterior=POSTERIOR, tau_accept=0.6, tau_answer=0.5, num_regenerate=1, max_passes=1)
RECIPE = {
    "name": "tiny",
    "task": {"name": "gsm8k"},
    "generators": [
        {"kind": "openai", "name": name, "model": "m", "base_url": "http://127.0.0.1:9/v1", "api_key_env": None}
        for name in ("ada", "bo")
    ],
    "generation": {"num_samples": 2},
    "scorer": {"backbone": "embedded:encoder-mini"},
}
PROBLEM = "Ann has 3 apples and buys 4. How many has she?"
SEVEN, EIGHT = "3 + 4 = 7\n#### 7", "I guess\n#### 8"


@dataclass(frozen=True)
class Scored:
    members: tuple[float, ...]
    num_tokens: int = 3
    num_truncated: int = 0


class TableScorer:
    """Energies by text; a text that is not in the table cannot be scored."""

    def __init__(self, table):
        self.table, self.read = table, []

    def score(self, texts):
        self.read += [text for _, text in texts]
        if any(text not in self.table for _, text in texts):
            raise ScoringError("no finite energy")
        return [Scored(self.table[text]) for _, text in texts]


@pytest.fixture
def run(tmp_path):
    """A run directory with recipe and policy, without adapters; returns its path."""
    directory = RunDir(str(tmp_path / "run"))
    directory.write_json(parse_recipe(RECIPE).model_dump(mode="json", by_alias=True), "recipe.json")
    directory.write_json(POLICY.to_json(), "calibration", "policy.json")
    return directory.root


@pytest.fixture
def chooser(run):
    return Chooser.load(run, energies=False, check_timeout_s=None)


def test_three_lines(run):
    choice = raydebm.best_of(PROBLEM, [SEVEN, SEVEN, EIGHT], run=run, energies=False)

    assert (choice.decision, choice.answer, choice.text, choice.selected) == (Decision.ACCEPT, "#### 7", SEVEN, 0)


def test_probabilities_by_hand(chooser):
    """All texts are one unknown author's of skill 0: scores log 2/3 + 1/2 * 2/3 and log 1/3 + 1/2 * 1/3; none -2."""
    choice = chooser.best_of(PROBLEM, [SEVEN, EIGHT, SEVEN])

    mass = [2 / 3 * math.exp(1 / 3), 1 / 3 * math.exp(1 / 6)]
    total = sum(mass) + math.exp(-2)
    assert [answer.probability for answer in choice.answers] == pytest.approx([value / total for value in mass])
    assert choice.confidence == choice.answers[0].probability
    assert [(answer.answer, answer.candidates) for answer in choice.answers] == [("#### 7", (0, 2)), ("#### 8", (1,))]


def test_the_skill_of_authors_counts(chooser):
    """One answer by the skilled author outweighs two by the other."""
    pairs = [(SEVEN, "ada"), (EIGHT, "bo"), (EIGHT, "bo")]

    assert chooser.best_of(PROBLEM, pairs).answer == "#### 7"
    assert chooser.best_of(PROBLEM, [text for text, _ in pairs]).answers[0].answer == "#### 8"


def by_kind():
    """The policy where bo is the better author in the kind "divisions"."""
    known = {name: replace(author, kinds={"divisions": -author.skill}) for name, author in AUTHORS.items()}
    kinds = {"divisions": Kind(level=0.0, difficulty=0.0, num_problems=9)}
    reference = replace(POSTERIOR.reference, authors=known, kinds=kinds)
    return POLICY.replaced(posterior=replace(POSTERIOR, reference=reference))


@pytest.mark.parametrize(("kind", "answer"), [("", "#### 7"), ("divisions", "#### 8"), ("riddles", "#### 7")])
def test_skills_are_those_of_the_kind(chooser, kind, answer):
    choice = replace(chooser, policy=by_kind()).best_of(PROBLEM, [(SEVEN, "ada"), (EIGHT, "bo")], kind=kind)

    assert choice.answer == answer


def test_a_failed_candidate_is_left_out(chooser):
    failed = Candidate(candidate_id="f", task="gsm8k", problem_id="p", generator="bo", text=None, error="HTTP 500")

    assert [answer.answer for answer in chooser.best_of(PROBLEM, [failed, SEVEN]).answers] == ["#### 7"]


def test_an_abstention_gives_no_text_and_keeps_what_was_selected(chooser):
    choice = chooser.best_of(PROBLEM, [(SEVEN, "bo"), (EIGHT, "bo")])

    assert (choice.decision, choice.answer, choice.text, choice.selected) == (Decision.ABSTAIN, None, None, 0)
    assert choice.answers[0].text == SEVEN
    assert "below tau_answer 0.5" in choice.reason


def test_answers_apart_from_their_thinking(chooser):
    choice = chooser.best_of(PROBLEM, [f"<think>#### 8</think>{SEVEN}"])

    assert (choice.answer, choice.text) == ("#### 7", SEVEN)


def test_nothing_is_guaranteed_about_given_candidates(chooser):
    guarantee = {"max_error": 0.1, "confidence": 0.9, "certified": True, "problems": 500}

    policy = POLICY.replaced(guarantee=guarantee, field_guarantee=guarantee)
    choice = replace(chooser, policy=policy).best_of(PROBLEM, [SEVEN])

    reason = "the candidates were given, not sampled as those of the calibration problems were"
    assert choice.guarantee == choice.field_guarantee == {**guarantee, "certified": False, "reason": reason}


def test_energies_count_and_equal_texts_are_scored_once(chooser):
    scorer = TableScorer({SEVEN: (3.0, 3.0), EIGHT: (-3.0, -3.0)})

    choice = replace(chooser, scorer=scorer).best_of(PROBLEM, [SEVEN, EIGHT, SEVEN])

    assert scorer.read == [SEVEN, EIGHT]
    assert choice.answer == "#### 8"


class Readings:
    """Prefers the answer 8."""

    def scores(self, texts):
        self.texts = texts
        return [{"reader": float("8" in text)} for _, text in texts]


def test_scores_of_baselines_are_evidence_and_equal_texts_are_read_once(chooser):
    posterior = replace(chooser.policy.posterior, weights={**chooser.policy.posterior.weights, "score:reader": 5.0})
    readings = Readings()
    reading = replace(chooser, policy=chooser.policy.replaced(posterior=posterior), baselines=readings)

    choice = reading.best_of(PROBLEM, [SEVEN, EIGHT, SEVEN])

    assert len(readings.texts) == 2
    assert choice.text == EIGHT
    assert choice.answers[0].contributions["score:reader"] > 0


def test_a_text_that_cannot_be_scored_costs_only_its_own_energies(chooser):
    choice = replace(chooser, scorer=TableScorer({SEVEN: (0.0,)})).best_of(PROBLEM, [SEVEN, EIGHT, SEVEN])

    assert choice.answer == "#### 7"
    assert "1 of 3 candidates have no energy" in choice.reason


def test_the_papers_rule_needs_energies_and_ranks_no_answers(chooser):
    paper = replace(chooser, policy=Policy(), scorer=TableScorer({SEVEN: (0.0, 0.1), EIGHT: (1.0, 1.1)}))

    choice = paper.best_of(PROBLEM, [EIGHT, EIGHT, SEVEN])

    assert (choice.answer, choice.confidence, choice.answers) == ("#### 7", None, ())


def test_checks_in_child_processes_find_the_same(run, chooser):
    checked_apart = Chooser.load(run, energies=False, check_timeout_s=60.0)
    with closing(checked_apart):
        assert checked_apart.best_of(PROBLEM, [SEVEN, EIGHT, SEVEN]) == chooser.best_of(PROBLEM, [SEVEN, EIGHT, SEVEN])


def test_a_check_over_the_time_limit_fails_its_candidate(run):
    """No check ends within a nanosecond, so that no candidate has an answer."""
    with closing(Chooser.load(run, energies=False, check_timeout_s=1e-9)) as hurried:
        choice = hurried.best_of(PROBLEM, [SEVEN])

    assert (choice.decision, choice.selected) == (Decision.ABSTAIN, None)


def test_a_run_is_read_once_per_process(run):
    first = best_of(PROBLEM, [SEVEN], run=run, energies=False)
    RunDir(run).remove("calibration")

    assert best_of(PROBLEM, [SEVEN], run=run, energies=False) == first
    with pytest.raises(ConfigError, match=r"policy\.json does not exist; run `raydebm calibrate`"):
        Chooser.load(run, energies=False)


def test_nothing_heavy_is_loaded_without_energies(run, run_python):
    loaded = run_python(
        f"import sys, raydebm; raydebm.best_of({PROBLEM!r}, [{SEVEN!r}], run={run!r}, energies=False); "
        "print(sorted({'ray', 'torch', 'transformers', 'fastapi', 'httpx'} & set(sys.modules)))"
    )

    assert loaded.strip() == "[]"


@pytest.fixture
def run_python(repository):
    def run(code):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=repository, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


# ---- the service decides the same -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Recorded:
    """A service's backend that writes given texts, by generator and sample, and scores them by a table."""

    task: object
    texts: dict
    scorer: TableScorer

    def serving(self, bundle):
        return self

    async def generate(self, requests, on_candidate, *, may_repeat):
        candidates = [answered(request, self.texts[request.generator][request.sample_index]) for request in requests]
        for candidate in candidates:
            on_candidate(candidate)
        return candidates

    async def check(self, problem, candidates):
        return [check_candidate(self.task, problem, candidate) for candidate in candidates]

    async def score(self, texts):
        return [Energies(candidate_id=text.candidate_id, members=self.scorer.table[text.text]) for text in texts]


@pytest.mark.parametrize("tau_answer", [0.2, 0.99])
@pytest.mark.parametrize("profile", ["posterior", "vote", "energy"])
def test_the_service_decides_the_same(run, chooser, profile, tau_answer):
    policy = POLICY.replaced(profile=profile, tau_answer=tau_answer, tau_accept=0.99)
    folder = RunDir(run)
    folder.write_json(policy.to_json(), "calibration", "policy.json")
    folder.write_json({"backbone": "embedded:encoder-mini"}, "scorer", "ensemble.json")
    scorer = TableScorer({SEVEN: (1.0, 1.4), EIGHT: (0.5, -0.2), "#### 9": (0.3, 0.1), "what?": (0.0, 0.0)})
    texts = {"ada": [SEVEN, "#### 9"], "bo": [EIGHT, "what?"]}
    bundle = load_bundle(AppArgs(run_dir=run, records=None))
    service = TriageService(bundle, Recorded(task=chooser.task, texts=texts, scorer=scorer))
    context = request_context(bundle, Overrides(), request_id="r", task_name="gsm8k", problem=PROBLEM)

    served = asyncio.run(service.triage(context))
    choice = replace(chooser, policy=policy, scorer=scorer).best_of(
        PROBLEM, [(text, author) for author in texts for text in texts[author]]
    )

    decision = served.summary.decision
    text = served.outcome.best.candidate.text if decision == "accept" else None
    assert (choice.decision, choice.answer, choice.text) == (decision, served.answer, text)
    assert choice.reason == served.reason


def test_the_service_and_its_replay_decide_by_the_kind_of_a_chat(run, chooser):
    folder = RunDir(run)
    folder.write_json(by_kind().to_json(), "calibration", "policy.json")
    folder.write_json({"backbone": "embedded:encoder-mini"}, "scorer", "ensemble.json")
    backend = Recorded(
        task=chooser.task,
        texts={"ada": [SEVEN, SEVEN], "bo": [EIGHT, EIGHT]},
        scorer=TableScorer({SEVEN: (1.0, 1.0), EIGHT: (1.0, 1.0)}),
    )
    bundle = load_bundle(AppArgs(run_dir=run, records=None))
    messages = [{"role": "user", "content": PROBLEM}]
    chat = ChatRequest.model_validate(
        {"model": "raydebm/gsm8k", "messages": messages, "raydebm": {"kind": "divisions"}}
    )
    context, _ = chat_context(bundle, chat, request_id="r")
    stored = []

    asyncio.run(TriageService(bundle, backend, records=SimpleNamespace(put=stored.append)).triage(context))

    record = record_of(record_row(stored[0]))
    again = redecide(record.outcome, record.policy)
    assert record.problem.kind == "divisions"
    assert record.outcome.best.report.answer == again.best.report.answer == "#### 8"
    assert again.confidence == record.outcome.confidence


# ---- bad input ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("candidates", "message"),
    [
        ([], "at least one"),
        ("7", "a list of candidates"),
        ([7], "candidate 0 must be a text, a .text, author. pair or a Candidate, got 7"),
        ([SEVEN, (SEVEN,)], "candidate 1 must be a text"),
        ([(SEVEN, None)], "candidate 0 must be a text"),
    ],
)
def test_what_is_no_candidate_is_refused(chooser, candidates, message):
    with pytest.raises(ConfigError, match=message):
        chooser.best_of(PROBLEM, candidates)


def test_a_problem_of_another_task_is_refused(chooser):
    other = replace(chooser.task.problem_from_text(PROBLEM), task="musr")

    with pytest.raises(ConfigError, match="belongs to task 'musr'; the run has task 'gsm8k'"):
        chooser.best_of(other, [SEVEN])


def test_a_text_that_the_task_cannot_read_is_refused(chooser):
    class Strict:
        name = "strict"

        def problem_from_text(self, text):
            raise KeyError("people")

    with pytest.raises(TaskDataError, match=r"not a problem of task 'strict'.*people"):
        replace(chooser, task=Strict()).best_of(PROBLEM, [SEVEN])


def test_a_run_without_adapters_says_how_to_do_without(run):
    with pytest.raises(
        CheckpointError, match="not contain a trained ensemble; run `raydebm run`, or pass energies=False"
    ):
        best_of(PROBLEM, [SEVEN], run=run)


def test_without_torch_it_says_how_to_do_without(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "raydebm.scorer.ensemble", None)

    with pytest.raises(CheckpointError, match=r"cannot be loaded.*pass energies=False"):
        Chooser.load(run)


def test_the_papers_rule_without_energies_is_refused(run):
    RunDir(run).write_json(Policy().to_json(), "calibration", "policy.json")

    with pytest.raises(ConfigError, match="rule is paper, which selects by energies"):
        Chooser.load(run, energies=False)


def test_a_run_that_is_not_there(tmp_path):
    with pytest.raises(ConfigError, match=r"recipe\.json does not exist; make a run first"):
        best_of(PROBLEM, [SEVEN], run=str(tmp_path / "none"), energies=False)
