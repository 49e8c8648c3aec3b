"""A judge on a real Ray: whose key it has, and what it may spend."""

import pytest
from chat_endpoint import chat_endpoint
from tiny_run import recipe_of

from raydebm.errors import MissingKeyError
from raydebm.evaluation.baselines.eorm import EormRecord
from raydebm.generators.journal import Journal
from raydebm.pipeline.context import StageContext
from raydebm.pipeline.pools import read_scores
from raydebm.pipeline.runner import Pipeline
from raydebm.pipeline.stages.scores import ask_failed_again, score_baselines, waiting_baselines
from raydebm.records import Candidate, CandidateScore, Label, Problem, Verdict
from raydebm.run.directory import RunDir
from raydebm.run.fingerprints import baseline_state, new_manifest
from raydebm.run.tables import SplitProblem

pytestmark = pytest.mark.ray

PROBLEMS = [
    SplitProblem(problem=Problem(task="toy", problem_id=name, prompt=f"What is {name}, if it is 2+2?"), split=split)
    for name, split in (("p", "test"), ("q", "train"), ("r", "train"))
]
"""One is tested, one validates, one trains."""


@pytest.fixture
def endpoint():
    """(address, the Authorization headers that came) of one that rates every answer 7, for 25 cents."""
    keys = []

    def answer(headers, body):
        keys.append(headers["Authorization"])
        return "Score: 7"

    with chat_endpoint(answer, prompt_tokens=9, completion_tokens=3, cost=0.25) as url:
        yield url, keys


NO_RETRIES = {"api_key_env": None, "max_retries": 0}


def judge(name="judge", **generator):
    asked = {"kind": "openai", "name": "rater", "model": "m", "max_in_flight": 1, "api_key_env": "JUDGES_KEY"}
    return {"kind": "judge", "name": name, "generator": asked | generator}


def answers(count, problem_id="p"):
    return [
        Candidate(
            candidate_id=f"{problem_id}{index}",
            task="toy",
            problem_id=problem_id,
            generator="g",
            text=f"It is {index}.",
        )
        for index in range(count)
    ]


def score(recipe, run, candidates, payer=None):
    run.write_problems(PROBLEMS)
    run.write_candidates(candidates)
    score_baselines(StageContext(recipe=recipe.model_copy(update={"run_dir": run.root}), payer=payer), recipe.baselines)
    return [row.score for baseline in recipe.baselines for row in run.scores(baseline.name)]


def test_the_key_is_read_where_the_command_runs(local_ray, endpoint, tmp_path, monkeypatch):
    """Workers were started without it."""
    url, keys = endpoint
    monkeypatch.setenv("JUDGES_KEY", "open sesame")
    recipe = recipe_of(tmp_path, baselines=[judge(base_url=url)])

    assert score(recipe, RunDir(str(tmp_path)), answers(2)) == [7.0, 7.0]
    assert keys == ["Bearer open sesame"] * 2


def test_a_missing_key_stops_all_baselines_before_one_is_asked(local_ray, endpoint, tmp_path, monkeypatch):
    url, keys = endpoint
    monkeypatch.delenv("JUDGES_KEY", raising=False)
    recipe = recipe_of(tmp_path, baselines=[judge("first", base_url=url, api_key_env=None), judge(base_url=url)])

    with pytest.raises(MissingKeyError, match="JUDGES_KEY"):
        score(recipe, RunDir(str(tmp_path)), answers(1))
    assert keys == []


def test_judges_share_the_budget_of_the_run(local_ray, endpoint, tmp_path):
    """Of a dollar, candidates took 25 cents and the first judge 50."""
    url, keys = endpoint
    drawn = Candidate(candidate_id="d", task="toy", problem_id="p", generator="g", text="It is 4.", cost_usd=0.25)
    Journal(tmp_path / "candidates" / "journal").put(drawn)
    judges = [judge(name, base_url=url, api_key_env=None) for name in ("first", "second")]
    recipe = recipe_of(tmp_path, baselines=judges, generation={"max_usd": 1.0})

    assert score(recipe, RunDir(str(tmp_path)), answers(2)) == [7.0, 7.0, 7.0, None]
    assert len(keys) == 3


def test_runs_with_one_payer_ask_a_judge_once_and_share_the_budget(local_ray, endpoint, tmp_path):
    """Of a dollar, the first run spent 50 cents on two answers; the second has these two, and money for two more."""
    url, keys = endpoint
    recipe = recipe_of(tmp_path, baselines=[judge(base_url=url, api_key_env=None)], generation={"max_usd": 1.0})
    payer, first, second = (RunDir(str(tmp_path / name)) for name in ("payer", "payer/fold-0", "payer/fold-1"))

    assert score(recipe, first, answers(2), payer=payer) == [7.0, 7.0]
    assert score(recipe, second, answers(5), payer=payer) == [7.0, 7.0, 7.0, 7.0, None]
    assert len(keys) == 4


@pytest.fixture
def fragile():
    """(address, texts that the endpoint rates, the questions that came); it fails where a question has none of them."""
    rated, asked = {"It is 0."}, []

    def answer(headers, body):
        asked.append(body["messages"][-1]["content"])
        return "Score: 7" if any(text in asked[-1] for text in rated) else None

    with chat_endpoint(answer) as url:
        yield url, rated, asked


def test_what_a_judge_could_not_rate_is_asked_again_on_demand_and_nothing_else(local_ray, fragile, tmp_path):
    url, rated, asked = fragile
    recipe, run = recipe_of(tmp_path, baselines=[judge(base_url=url, **NO_RETRIES)]), RunDir(str(tmp_path))
    assert score(recipe, run, answers(2)) == [7.0, None]
    rated.add("It is 1.")
    assert score(recipe, run, answers(2)) == [7.0, None]
    assert ask_failed_again(recipe, run) == {"judge"}

    del asked[:]
    assert score(recipe, run, answers(2)) == [7.0, 7.0]
    assert len(asked) == 1
    assert "It is 1." in asked[0]


def test_the_key_of_a_judge_is_missed_before_anything_starts(tmp_path, monkeypatch):
    monkeypatch.delenv("JUDGES_KEY", raising=False)
    pipeline = Pipeline(recipe=recipe_of(tmp_path, baselines=[judge(), judge("other", api_key_env=None)]))

    with pytest.raises(MissingKeyError, match=r"'rater'.*JUDGES_KEY"):
        pipeline.check_keys()
    pipeline.check_keys(judges=False)


def test_the_key_of_a_judge_is_not_missed_once_it_has_rated(tmp_path, monkeypatch):
    monkeypatch.delenv("JUDGES_KEY", raising=False)
    pipeline = Pipeline(recipe=recipe_of(tmp_path, baselines=[judge()]))
    for stage in ("candidates", "pairs"):
        pipeline.run.finish(stage, new_manifest(stage, pipeline.recipe, pipeline.run, facts={}))
    rated = {**baseline_state(pipeline.recipe.baselines[0]), "basis": pipeline.basis("pairs")}
    pipeline.run.write_json(rated, "scores", "judge.state.json")

    pipeline.check_keys()
    pipeline.run.remove("candidates", "manifest.json")
    with pytest.raises(MissingKeyError, match="JUDGES_KEY"):
        pipeline.check_keys()


@pytest.fixture
def ranked(tmp_path):
    """A recipe with a reward model in a folder, the folder, and a run that has its scores by their manifest."""
    model, run = tmp_path / "model", RunDir(str(tmp_path / "run"))
    model.mkdir()
    (model / "weights").write_text("a")
    recipe = recipe_of(tmp_path / "run", baselines=[{"kind": "reward_model", "name": "rm", "model": str(model)}])
    run.write_json({**baseline_state(recipe.baselines[0]), "basis": "b"}, "scores", "rm.state.json")
    return recipe, model, run


def test_scores_are_made_again_when_the_model_changed(ranked):
    recipe, model, run = ranked
    assert waiting_baselines(recipe, run, "b", recipe.baselines) == []
    (model / "weights").write_text("bb")

    assert [baseline.name for baseline in waiting_baselines(recipe, run, "b", recipe.baselines)] == ["rm"]


def test_eorm_learns_from_all_pairs_whatever_ours_learn_from(local_ray, tmp_path):
    """Two correct and three incorrect answers: six pairs, of which the recipe leaves our adapters one."""
    eorm = {"kind": "eorm", "name": "eorm", "size": "small"}
    recipe = recipe_of(tmp_path, baselines=[eorm], pairs={"max_pairs": 1, "max_correct": 1, "max_incorrect": 1})
    run, verdicts = RunDir(str(tmp_path)), [Verdict.CORRECT] * 2 + [Verdict.INCORRECT] * 3
    candidates = {name: answers(5, name) for name in ("q", "r")}
    run.write_labels(
        Label(candidate_id=candidate.candidate_id, problem_id=name, verdict=verdict)
        for name, pool in candidates.items()
        for candidate, verdict in zip(pool, verdicts, strict=True)
    )
    score(recipe, run, [*candidates["q"], *candidates["r"]])

    record = EormRecord.model_validate(run.read_json("scores", "eorm.model", "eorm.json"))
    assert record.num_train_pairs == 6


READER = {"kind": "reader", "name": "reader", "model": "embedded:kk-bo"}


@pytest.mark.parametrize(("passes", "expected"), [(1, {"q0", "r0"}), (2, set())], ids=["one-pass", "two-passes"])
def test_a_reader_reads_training_answers_where_the_posterior_learns_from_them(local_ray, tmp_path, passes, expected):
    """Of a training and a validation problem; the latter is read in any case."""
    recipe, run = recipe_of(tmp_path, baselines=[READER], decision={"max_passes": passes}), RunDir(str(tmp_path))
    score(recipe, run, [*answers(1, "q"), *answers(1, "r")])
    (trained,) = StageContext(recipe=recipe).splits()["train"]

    assert f"{trained}0" in expected or not expected
    assert {row.candidate_id for row in run.scores("reader")} == (expected or {"q0", "r0"} - {f"{trained}0"})


def test_parts_of_a_score_are_scores_of_their_own(tmp_path):
    run = RunDir(str(tmp_path))
    rows = [
        CandidateScore(candidate_id="a", name="reader", score=-1.0, parts={"worst": -4.0}),
        CandidateScore(candidate_id="b", name="reader", score=None, error="empty"),
    ]
    run.write_scores(rows, "reader")

    assert read_scores(run, ["reader"]) == {
        "reader": {"a": -1.0, "b": None}, "reader.worst": {"a": -4.0, "b": None}
    }  # fmt: skip
