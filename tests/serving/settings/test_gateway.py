"""Several runs behind one address: what their bundle holds, and which arguments are refused."""

import pytest
from two_runs import write_second_run

from raydebm.decision.sampling.checks import check_candidate
from raydebm.errors import ConfigError, UnknownNameError
from raydebm.records import Candidate, ScoredCandidate
from raydebm.serving.settings.app_args import AppArgs, GeneralArgs, RunArgs
from raydebm.serving.settings.gateway import GENERAL_POSTERIOR, load_gateway
from raydebm.tasks import get_task


def test_every_run_keeps_its_policy_adapters_and_generators(two_runs):
    gateway = load_gateway(two_runs())

    assert gateway.tasks == ("knights_knaves", "gsm8k")
    assert [run.policies[name].theta_sigma for run, name in zip(gateway.runs, gateway.tasks, strict=True)] == [0.8, 0.5]
    assert gateway.of("knights_knaves").checkpoint_ref != gateway.of("gsm8k").checkpoint_ref
    assert (gateway.of("gsm8k").generators, gateway.all_generators) == (("ada",), ("ada", "bo"))


def test_all_runs_store_their_decisions_in_the_first_runs_folder(two_runs):
    gateway = load_gateway(two_runs())

    assert gateway.of("gsm8k").records == gateway.records


def test_one_run_is_served_as_without_a_gateway(write_run):
    gateway = load_gateway(AppArgs(run_dir=write_run()))

    assert (gateway.tasks, gateway.known, gateway.alone) == (("knights_knaves",), None, gateway)


def test_a_task_has_one_run(write_run, recipe, tmp_path):
    other = write_second_run(tmp_path / "other", recipe, "knights_knaves", texts=())
    with pytest.raises(ConfigError, match=r"task 'knights_knaves' is served from .*run and from .*other"):
        load_gateway(AppArgs(run_dir=write_run(), further_runs=(RunArgs(run_dir=other),)))


def test_the_general_task_has_the_generators_of_the_task_that_it_is_like(two_runs):
    gateway = load_gateway(two_runs(general=GeneralArgs(like="gsm8k")))
    general = gateway.of("any")

    assert gateway.tasks == ("knights_knaves", "gsm8k", "any")
    assert (general.generators, general.source) == (("ada",), gateway.of("gsm8k").source)
    assert (general.policies["any"].guarantee, general.policies["any"].tau_answer) == (None, 0.85)


def test_an_unknown_task_to_be_like_is_named(two_runs):
    with pytest.raises(UnknownNameError, match="'taco'"):
        load_gateway(two_runs(general=GeneralArgs(like="taco")))


def test_general_and_passthrough_exclude_each_other(two_runs):
    with pytest.raises(ConfigError, match="`general` or `passthrough`, not both"):
        load_gateway(two_runs(general=GeneralArgs(), passthrough="ada"))


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ({"ada": ["Rome"] * 4}, 0.85),
        ({"ada": ["Rome"], "bo": ["Rome"]}, 0.92),
        ({"ada": ["Rome"], "bo": ["Rome"], "cy": ["Rome"]}, 0.96),
        ({"ada": ["Rome"], "bo": ["Rome"], "cy": ["Pisa"]}, 0.75),
    ],
    ids=["one-model", "two-models", "three-models", "two-against-one"],
)
def test_one_model_that_agrees_with_itself_is_not_two_that_agree(texts, expected):
    """e^(0.7 authors) shares^1.5 against e^-1 for none of them: 2.014 / (2.014 + 0.368) = 0.85 for one model."""
    task = get_task("any")
    problem = task.problem_from_text("Where is the Colosseum?")
    candidates = [
        Candidate(candidate_id=f"{name}{i}", task="any", problem_id="p", generator=name, text=f"#### {text}")
        for name, answers in texts.items()
        for i, text in enumerate(answers)
    ]
    pool = [
        ScoredCandidate(candidate=each, report=check_candidate(task, problem, each), energies=None)
        for each in candidates
    ]

    assert GENERAL_POSTERIOR.beliefs(pool).best.probability == pytest.approx(expected, abs=0.006)
