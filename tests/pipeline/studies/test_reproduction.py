"""Reports over finished runs, on a real Ray: the paper's tables, baselines, transfer, confounding, repair."""

import shutil
from dataclasses import replace

import pytest
from chat_endpoint import chat_endpoint

from raydebm.config import ConfoundingConfig, ModelBaseline, OpenAIGenerator
from raydebm.errors import ConfigError
from raydebm.pipeline.pools import evaluated_pools
from raydebm.pipeline.studies.confounding import confounding
from raydebm.pipeline.studies.repair import repair_run
from raydebm.pipeline.studies.reproduction import reproduce, with_repairs
from raydebm.run.directory import RunDir

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def pipelines(finished, reward_model, tmp_path_factory):
    """A copy of one run under two names, the first with a baseline, which other tests' evaluation must not have."""
    original, _, _ = finished
    folder = tmp_path_factory.mktemp("copied") / "run"
    shutil.copytree(original.run.root, folder)
    pipeline = replace(original, recipe=original.recipe.model_copy(update={"run_dir": str(folder)}))
    baseline = ModelBaseline(kind="reward_model", name="tiny-reward-model", model=str(reward_model))
    first = replace(pipeline, recipe=pipeline.recipe.model_copy(update={"baselines": (baseline,)}))
    second = replace(
        pipeline, recipe=pipeline.recipe.model_copy(update={"name": "again", "run_dir": pipeline.run.root})
    )
    return first, second


@pytest.fixture(scope="module")
def report(pipelines, tmp_path_factory):
    folder = tmp_path_factory.mktemp("reproduction")
    reproduction, address = reproduce(pipelines, run=RunDir(str(folder)), with_transfer=True, transfer_problems=3)
    return reproduction, address, folder


def test_the_same_scorer_transfers_to_what_it_scored_itself(report, pipelines):
    """Both names are one run, so the transferred energies must be the run's own."""
    reproduction, _, _ = report
    (matrix,) = reproduction.transfers
    values = {(cell.source, cell.target): cell.by_mu.pass_at_1.value for cell in matrix.cells}
    assert len(set(values.values())) == 1


def test_a_baseline_has_a_row_in_the_evaluation_of_its_run(report, pipelines):
    assert pipelines[0].evaluate().row("tiny-reward-model") is not None


def test_a_reproduction_with_confounding_has_the_ablation_of_its_scorers(finished, report, tmp_path):
    pipeline, _, _ = finished
    without, _, _ = report

    with_all, _ = reproduce([pipeline], run=RunDir(str(tmp_path)), with_confounding=True)

    titles = [{table.title for table in each.sections[0].tables} for each in (with_all, without)]
    assert titles[0] - titles[1] == {"Style ablation"}


@pytest.fixture
def rewriter():
    """An OpenAI-compatible endpoint that gives the solution back under a heading, and counts what it is asked."""
    asked = []

    def answer(headers, body):
        asked.append(body["messages"][-1]["content"])
        solution = asked[-1].partition("Solution:\n")[2].partition("\n\nExample 1:")[0]
        return f"# Answer\n{solution}"

    with chat_endpoint(answer) as url:
        yield url, asked


def test_correct_answers_are_rewritten_by_a_model_that_is_shown_a_style(finished, rewriter):
    pipeline, _, _ = finished
    url, asked = rewriter
    writer = OpenAIGenerator(name="writer", model="m", base_url=url, api_key_env=None)
    pools = evaluated_pools(pipeline, "test")
    right = zip(pools.candidates, pools.correct, strict=True)
    sources = [scored.candidate.generator for scored, correct in right if correct == 1]
    source = max(set(sources), key=sources.count)
    settings = ConfoundingConfig(swap=(source,), rewriter=writer)
    swapped = replace(pipeline, recipe=pipeline.recipe.model_copy(update={"confounding": settings}))

    report, _ = confounding(swapped)
    num_asked = len(asked)
    again, _ = confounding(swapped)

    (result,) = report.swaps
    assert result.source == source
    assert all(row.num_asked and row.num_failed == 0 for row in result.rows)
    assert num_asked == len({text.candidate_id for text in result.texts}) * len({text.style for text in result.texts})
    assert (len(asked), again.swaps) == (num_asked, report.swaps), "a second report asks nobody"


@pytest.fixture(scope="module")
def repaired(finished):
    """The finished run, whose scorer was repaired in ``repair/``."""
    finished_run, _, _ = finished
    repair_run(finished_run, min_cell=4)
    return finished_run


def test_the_energies_of_a_repaired_run_are_those_of_its_scorer(repaired):
    """Most are made of the features that the repair has read, and fewer than half of the texts are read again."""
    from raydebm.scorer.ensemble import EnsembleScorer

    run = RunDir(repaired.run.uri("repair"))
    prompts = {row.problem.problem_id: row.problem.prompt for row in run.problems()}
    candidates = {candidate.candidate_id: candidate for candidate in run.candidates()}
    rows = [row for row in run.energies() if row.members is not None and None not in row.members]
    facts = run.facts("energies")

    chosen = [candidates[row.candidate_id] for row in rows]
    scorer = EnsembleScorer.load(run.uri("scorer"), device="cpu", dtype=facts["dtype"])
    expected = scorer.score([(prompts[candidate.problem_id], candidate.text) for candidate in chosen])

    for row, one in zip(rows, expected, strict=True):
        assert row.members == pytest.approx(one.members, rel=1e-5, abs=1e-5)
        assert (row.num_tokens, row.num_truncated) == (one.num_tokens, one.num_truncated)
    assert facts["texts"] < len(rows) / 2


def test_a_report_shows_a_run_before_and_after_its_repair(repaired, tmp_path):
    pipeline = repaired
    assert [each.is_repaired for each in with_repairs([pipeline])] == [False, True]

    reproduction, _ = reproduce([pipeline], run=RunDir(str(tmp_path)))

    assert [(study.name, study.repaired) for study in reproduction.studies] == [
        ("tiny (knights_knaves)", False),
        ("tiny, repaired (knights_knaves)", True),
    ]
    assert {"before", "after"} <= set(reproduction.sections[-1].tables[0].headers)


def test_repair_needs_a_folder_for_the_new_checkpoint(finished):
    pipeline, _, _ = finished
    elsewhere = replace(pipeline, recipe=pipeline.recipe.model_copy(update={"run_dir": "s3://bucket/run"}))
    with pytest.raises(ConfigError, match=r"s3://bucket/run.* is not a local path"):
        repair_run(elsewhere)
