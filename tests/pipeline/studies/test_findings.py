"""Figures of a run's confounding, labels, training and models, for the paper's tables."""

from types import SimpleNamespace

import pytest

from raydebm.config import parse_recipe
from raydebm.evaluation.confounding.cases import CaseCount
from raydebm.evaluation.paper.paper_cells import paper
from raydebm.evaluation.stats.intervals import Estimate
from raydebm.pipeline.studies.reproduction import _fit, _models, _share_of_wrong_answers, findings_of
from raydebm.records import Label, Verdict
from raydebm.run.directory import RunDir


def number(value):
    return Estimate(value=value, low=None, high=None, n=9)


def screen(gap, spread, paper=0.5):
    return SimpleNamespace(
        gap_within=number(gap), spread_range=number(spread), accuracy={"energy (paper)": number(paper)}
    )


def picked(generator, difficulty, num_picked, num_avoidable=0):
    return CaseCount(
        generator=generator, difficulty=difficulty, num_picked=num_picked, num_right=num_picked - num_avoidable,
        num_avoidable=num_avoidable, num_hopeless=0,
    )  # fmt: skip


@pytest.fixture
def findings():
    ablation = {
        "original": screen(2.41, 6.67),
        "no headers": screen(2.0, 5.0),
        "no headers + latex": screen(0.55, 1.0),
        "code only": screen(1.0, 3.6),
        "explanation only": screen(0.1, 0.2, paper=0.625),
    }
    styles = [("llama-3.1-8b", False, 2.66), ("gemma", True, 0.1), ("(all other styles)", False, 1.95)]
    swap = SimpleNamespace(
        rows=[SimpleNamespace(style=name, is_control=control, change=number(x)) for name, control, x in styles]
    )
    counts = (picked("gemma", "EASY", 40, 3), picked("gemma", "HARD", 43, 4), picked("llama", "EASY", 5))
    return findings_of(
        SimpleNamespace(
            screen=screen(2.41, 6.67),
            ablation=[SimpleNamespace(name=name, screen=each) for name, each in ablation.items()],
            swaps=[swap],
            cases=SimpleNamespace(counts=counts),
        )
    )


def test_figures_of_a_confounding_report_by_the_names_of_the_papers_text(findings):
    assert {name: estimate.value for name, estimate in findings.items()} == {
        "gap within a generator": 2.41,
        "gap between generators, without style": 1.0,
        "gap within a generator, without style": 0.55,
        "gap between generators, code only": 3.6,
        "pass@1, explanation only": 0.625,
        "change of mu in the style of LLaMA": 2.66,
        "change of mu in another style": 1.95,
        "selections of other generators on EASY problems": 5.0,
        "wrong selections of the favourite with a right alternative": 7.0,
    }
    assert findings["selections of other generators on EASY problems"].n == 5
    assert findings["wrong selections of the favourite with a right alternative"].n == 88


def test_each_of_these_names_is_a_figure_of_the_papers_text(findings):
    claims = {row.split(": ", 1)[1] for row, _ in paper().tables["text"].rows}

    assert findings.keys() <= claims


def label(name, problem_id, reason):
    verdict = Verdict.INCORRECT if reason else Verdict.CORRECT
    return Label(candidate_id=name, problem_id=problem_id, verdict=verdict, reason=reason)


@pytest.mark.parametrize(
    ("reasons", "share"), [(("wrong_answer in test 1 of 2", "timeout", "wrong_answer", ""), 2 / 3), (("no", ""), None)]
)
def test_wrong_answers_among_the_incorrect_programs_of_the_training(reasons, share):
    labels = [label(f"c{index}", "p", reason) for index, reason in enumerate(reasons)]
    run = SimpleNamespace(labels=lambda: [*labels, label("x", "tested", "wrong_answer")])
    pipeline = SimpleNamespace(run=run, splits=lambda: {"train": ["p"], "validation": []})

    found = _share_of_wrong_answers(pipeline)

    assert [each.value for each in found.values()] == ([] if share is None else [pytest.approx(share)])


def test_models_are_named_and_an_eorm_says_its_size(tmp_path):
    generators = [{"kind": "recorded", "name": "g", "pool": "x", "model": "gpt-4o-2024-05-13"}]
    baselines = [{"kind": "eorm", "name": "eorm"}, {"kind": "eorm", "name": "untrained"}]
    recipe = parse_recipe({"name": "r", "task": {"name": "t"}, "generators": generators, "baselines": baselines})
    run = RunDir(str(tmp_path))
    RunDir(run.baseline_uri("eorm")).write_json({"num_parameters": 4_321_000}, "eorm.json")

    assert _models(SimpleNamespace(recipe=recipe, run=run)) == {
        "g": "gpt-4o-2024-05-13",
        "eorm": "EORM of 4.32M parameters, trained on this pool",
    }


def test_a_fit_is_read_from_the_pairs_and_the_trainings(tmp_path):
    run = RunDir(str(tmp_path))
    facts = {"train": {"pairs": 30, "problems": 4, "of": 6}, "validation": {"pairs": 8, "problems": 1, "of": 2}}
    run.finish("pairs", {"facts": facts})
    for name, losses in (("a0", [0.6, 0.5, 0.55]), ("a1", [0.4])):
        run.write_json({"epochs": [{"validation_loss": loss} for loss in losses]}, "scorer", name, "training.json")
    adapters = [SimpleNamespace(name="a0"), SimpleNamespace(name="a1")]
    recipe = SimpleNamespace(scorer=SimpleNamespace(adapters=adapters))

    fit = _fit(SimpleNamespace(run=run, recipe=recipe))

    assert (fit.num_usable, fit.num_pairs, fit.losses, fit.num_epochs) == (5, 38, (0.5, 0.4), (3, 1))
