"""Learning from outcomes: what is held out, what is compared, and what goes on trial."""

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from reported_decisions import POLICY, RIGHT, WRONG, record

from raydebm.cli import main
from raydebm.config import parse_recipe
from raydebm.decision.policy import Policy
from raydebm.decision.policy_history import PolicyHistory
from raydebm.decision_import import labelled_decisions
from raydebm.decision_import.improvement_round import finish, plan_improvement, recalibrated, write_improved_run
from raydebm.decision_import.new_outcomes import new_outcomes, source_in_force
from raydebm.decision_import.run_folder import write_run
from raydebm.decision_import.sample import Origin
from raydebm.decision_import.version_trial import trial_of
from raydebm.decisions.reader import Filter
from raydebm.decisions.stored_replay import OtherEnsemble
from raydebm.errors import ConfigError, PoolError
from raydebm.pairs import text_key
from raydebm.pipeline.runner import Pipeline
from raydebm.records import Problem
from raydebm.run.directory import RunDir
from raydebm.run.ensemble_file import fingerprint_of
from raydebm.run.file_lock import locked
from raydebm.run.fingerprints import current_manifest
from raydebm.tasks import get_task

ENSEMBLE = {"adapters": []}
OWN = fingerprint_of(ENSEMBLE)
RECIPE = {
    "name": "sums",
    "task": {"name": "gsm8k"},
    "generators": [{"kind": "openai", "name": "ada", "model": "m", "base_url": "http://127.0.0.1:9/v1"}],
    "scorer": {"backbone": "embedded:encoder-mini"},
}
ORIGIN = Origin(task=get_task("gsm8k"), checkpoint=OWN, where=Filter())


def mixed(count, *, start=0, checkpoint=OWN):
    """Every third decision is less certain (share 0.7), and wrong."""
    return [
        (record(index, 7 if index % 3 == 0 else 10, checkpoint=checkpoint), WRONG if index % 3 == 0 else RIGHT)
        for index in range(start, start + count)
    ]


def outcomes_of(stored, *, known=(), source=None):
    return new_outcomes(stored, ORIGIN, known={text_key(prompt) for prompt in known}, source=source)


def names(decisions):
    return {decision.problem.problem_id for decision in decisions}


# ---- which outcomes --------------------------------------------------------------------------------------------------


def test_every_new_problem_is_learned_from_or_held_out(reader):
    outcomes = outcomes_of(reader(mixed(60)))

    assert names(outcomes.learned) | names(outcomes.held_out) == {f"p{index}" for index in range(60)}
    assert not names(outcomes.learned) & names(outcomes.held_out)
    assert 10 <= len(outcomes.held_out) <= 26  # three tenths of 60 are 18, with a standard deviation of 3.5


def test_a_problem_stays_on_its_side_when_others_come(tmp_path, reader):
    few = outcomes_of(reader(mixed(20)))
    more = outcomes_of(reader(mixed(40, start=20)))

    assert names(few.held_out) == {name for name in names(more.held_out) if int(name[1:]) < 20}


def test_the_same_question_in_other_letters_stays_on_its_side(reader):
    loud = Problem(task="gsm8k", problem_id="loud", prompt="WHAT  is 5?")
    outcomes = outcomes_of(reader([*mixed(6), (record(50, problem=loud, checkpoint=OWN), RIGHT)]))

    assert outcomes.repeated == 1
    assert "loud" in names(outcomes.learned) | names(outcomes.held_out)
    assert "p5" not in names(outcomes.learned) | names(outcomes.held_out)


def test_problems_of_the_run_are_not_new(reader):
    outcomes = outcomes_of(reader(mixed(10)), known=["What is  3?", "what is 4?"])

    assert outcomes.known == 2
    assert not {"p3", "p4"} & (names(outcomes.learned) | names(outcomes.held_out))


def test_what_another_ensemble_scored_compares_nothing_and_teaches(reader):
    outcomes = outcomes_of(reader(mixed(60, checkpoint="other")))

    assert (len(outcomes.held_out), outcomes.spent + len(outcomes.learned)) == (0, 60)
    assert outcomes.spent > 0


HOURS_0_TO_29 = {"since": "2026-05-01T12:00:00+00:00", "until": "2026-05-02T17:00:00+00:00"}


def test_what_the_policy_in_force_was_calibrated_on_compares_nothing(reader):
    outcomes = outcomes_of(reader(mixed(60)), source=HOURS_0_TO_29)

    assert outcomes.spent > 0
    assert {int(name[1:]) for name in names(outcomes.held_out)} <= set(range(30, 60))


def test_a_problem_that_the_policy_in_force_was_calibrated_on_compares_nothing_when_it_is_asked_again(reader):
    """All of the 30 problems are asked again later, after the calibration."""
    again = [
        (record(index + 30, problem=decision.problem, checkpoint=OWN), RIGHT)
        for index, (decision, _) in enumerate(mixed(30))
    ]
    outcomes = outcomes_of(reader([*mixed(30), *again]), source=HOURS_0_TO_29)

    assert len(outcomes.held_out) == 0
    assert outcomes.spent > 0


def test_too_few_outcomes_are_refused_with_their_number(reader):
    outcomes = outcomes_of(reader(mixed(10)), known=["What is 3?"])
    wanted = f"{len(outcomes.learned)} outcomes about new problems are to learn from, and at least 20 are needed"
    with pytest.raises(PoolError, match=wanted) as caught:
        outcomes.check(20)
    assert "of 10 decisions with an outcome 1 are about problems that the run has" in str(caught.value)


# ---- the comparison --------------------------------------------------------------------------------------------------

STRICT = POLICY.replaced(tau_accept=0.8, tau_answer=0.8)


def held_out_of(stored):
    return list(labelled_decisions(stored, get_task))


def test_a_stricter_policy_gives_out_fewer_wrong_answers(reader):
    trial = trial_of(held_out_of(reader(mixed(30))), old=POLICY, new=STRICT)

    first, second = trial.comparison.first, trial.comparison.second
    assert (first.answered, first.right, first.wrong) == (30, 20, 10)
    assert (second.answered, second.right, second.wrong) == (20, 20, 0)
    assert trial.comparison.wrong.difference.value == pytest.approx(-1 / 3)
    assert not trial.is_worse


def test_a_policy_that_gives_out_more_wrong_answers_is_worse(reader):
    trial = trial_of(held_out_of(reader(mixed(30))), old=STRICT, new=POLICY)

    assert trial.comparison.wrong.difference.low > 0
    assert trial.is_worse


class Prefers3:
    """An ensemble to which texts that end in 3 are best."""

    def score(self, texts):
        return [Given((-5.0, -5.0) if text.endswith("3") else (5.0, 5.0)) for _, text in texts]


@dataclass(frozen=True)
class Given:
    members: tuple[float, float]
    num_tokens: int = 1
    num_truncated: int = 0


def test_another_scorer_decides_by_its_own_energies(reader):
    """The policy selects the lowest energy: in the record the first candidate, which is right; then one that says 3."""
    by_energy = Policy(max_passes=1, rule="paper", theta_sigma=1.0, theta_abstain=2.0)
    held_out = held_out_of(reader([(record(index, 7, checkpoint=OWN), RIGHT) for index in range(12)]))
    trial = trial_of(held_out, old=by_energy, new=by_energy, ensemble=OtherEnsemble(scorer=Prefers3()))

    assert (trial.comparison.first.right, trial.comparison.second.right) == (12, 0)
    assert trial.is_worse


# ---- a round ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path, reader):
    """A run of ten problems of its own with a policy and an ensemble in name, as the pipeline leaves it."""
    labelled = list(labelled_decisions(reader(mixed(10, start=1000)), get_task))
    write_run(labelled, recipe=parse_recipe(RECIPE), out=str(tmp_path / "run"), test_frac=0.3, seed=0)
    made = RunDir(str(tmp_path / "run"))
    made.write_json(ENSEMBLE, "scorer", "ensemble.json")
    made.write_json(POLICY.to_json(), "calibration", "policy.json")
    return made


@pytest.fixture
def planned(run, reader):
    return lambda pairs, **options: plan_improvement(run, reader(pairs), by=None, **{"least": 5, **options})


def test_the_runs_own_problems_are_not_learned_again(planned):
    plan = planned(mixed(60))

    assert (plan.number, plan.outcomes.known, plan.folder.root) == (1, 10, f"{plan.run.root}/improved-1")


def test_what_a_round_held_out_is_still_held_out_when_its_policy_is_in_force(run, reader):
    stored = reader(mixed(60))
    plan = plan_improvement(run, stored, by=None, least=5)
    promising = parse_recipe({**RECIPE, "decision": {"max_error": 0.3}})

    policy = recalibrated(replace(plan, recipe=promising), stored)

    assert policy.guarantee["outcomes"]["decisions"] > 0
    assert outcomes_of(stored, source=policy.guarantee["outcomes"]).spent == 0


PROMISE = {"max_error": 0.1, "confidence": 0.9, "certified": True, "problems": 30}


@pytest.mark.parametrize(
    ("guarantee", "fitted", "source"),
    [
        ({**PROMISE, "outcomes": HOURS_0_TO_29}, {"outcomes": {"since": "x"}}, HOURS_0_TO_29),
        (PROMISE, {}, None),
        (None, {"outcomes": HOURS_0_TO_29}, HOURS_0_TO_29),
        (None, {}, None),
        (None, None, None),
    ],
    ids=["promised on outcomes", "promised on labels", "no promise", "labels", "the paper's rule"],
)
def test_what_the_policy_in_force_was_calibrated_on(run, guarantee, fitted, source):
    if fitted is not None:
        run.write_json(fitted, "calibration", "decision.json")

    assert source_in_force(run, POLICY.replaced(guarantee=guarantee)) == source


def test_what_was_held_out_compares_nothing_where_the_policy_was_calibrated_on_it_without_a_promise(planned, run):
    run.write_json({"outcomes": HOURS_0_TO_29}, "calibration", "decision.json")
    plan = planned(mixed(60), least=1)

    assert plan.outcomes.spent > 0
    assert {int(name[1:]) for name in names(plan.outcomes.held_out)} <= set(range(30, 60))


def test_a_run_without_a_scorer_is_refused(run, reader):
    run.remove("scorer")
    with pytest.raises(ConfigError, match="holds no labels and trained ensemble; bring it to its calibration first"):
        plan_improvement(run, reader(mixed(60)), by=None, least=5)


def test_the_improved_run_has_old_and_learned_problems_and_none_that_is_held_out(planned):
    plan = planned(mixed(60))
    recipe = write_improved_run(plan)

    splits = {row.problem.problem_id: row.split for row in plan.folder.problems()}
    old = {row.problem.problem_id: row.split for row in plan.run.problems()}
    assert {name: splits[name] for name in old} == old
    assert set(splits) == set(old) | names(plan.outcomes.learned)
    assert {splits[name] for name in names(plan.outcomes.learned)} == {"train"}
    assert current_manifest("labels", recipe, plan.folder) is not None
    assert (recipe.triage.max_passes, recipe.name) == (1, "sums-decisions-improved-1")


def test_the_pipeline_goes_on_from_there(planned):
    """Of the run's own problems none has a right and a wrong answer, of the new ones each has."""
    plan = planned([(record(index, 7, checkpoint=OWN), RIGHT) for index in range(60)])
    pipeline = Pipeline(recipe=write_improved_run(plan))
    pipeline.make("pairs")

    facts = pipeline.run.manifest("pairs")["facts"]
    assert facts["train"]["problems"] + facts["validation"]["problems"] == len(plan.outcomes.learned)


def test_another_round_needs_other_outcomes(planned, reader):
    plan = planned(mixed(60))
    finish(plan, policy=None, scorer=None)
    with pytest.raises(PoolError, match=r"no outcome about another problem was reported since .*improved-1"):
        planned([])
    assert planned(mixed(30, start=60)).number == 2


# ---- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def improve(run, reader, tmp_path, capsys):
    """Runs the command on stored pairs; returns the exit code and what it printed."""

    def command(pairs, *options):
        reader(pairs)
        arguments = ["improve", "--run-dir", run.root, "--decisions", str(tmp_path / "records"), *options]
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        printed = capsys.readouterr()
        return caught.value.code, " ".join((printed.out + printed.err).split())

    return command


def test_a_dry_run_says_what_it_would_do_and_does_nothing(improve, run, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    code, printed = improve(mixed(90), "--dry-run")

    assert code == 0, printed
    assert "100 decisions with an outcome" in printed
    assert "thresholds are chosen again, and the scorer is trained on old and new problems" in printed
    assert [path for path in sorted(tmp_path.rglob("*")) if "records" not in path.parts and path not in before] == []


def test_a_policy_that_is_not_worse_becomes_a_shadow_and_the_report_says_so(improve, run):
    code, printed = improve(mixed(90), "--policy-only")

    assert code == 0, printed
    second = PolicyHistory(run).second()
    assert (second.percent, second.reason) == (0.0, "improve, round 1")
    assert f"policy {second.version} is tried as a shadow" in printed
    assert PolicyHistory(run).applied() == 1  # running services take it
    written = json.loads((RunDir(run.uri("improved-1"))).read_bytes("improvement.json"))
    assert (written["policy"]["worse"], written["scorer"], written["policy"]["version"]) == (
        False, None, second.version,
    )  # fmt: skip
    assert not set(written["learned"]) & set(written["held_out"])
    report = RunDir(run.uri("improved-1")).read_bytes("improvement", "report.md").decode()
    assert "## Thresholds chosen again, the scorer in force" in report
    assert "right answers" in report


def test_a_run_that_another_process_writes_is_not_improved(improve, run):
    held = locked(Path(run.root) / ".lock", wait=False)
    code, printed = improve(mixed(90), "--policy-only")
    os.close(held)

    assert code == 2
    assert "is being written by" in printed
    assert "or give another --run-dir" in printed
    assert PolicyHistory(run).second() is None


def test_a_run_that_is_not_there_gets_no_folder(improve, run, tmp_path):
    code, printed = improve([], "--run-dir", str(tmp_path / "none"))

    assert (code, "recipe.json does not exist" in printed) == (2, True)
    assert not (tmp_path / "none").exists()


def test_a_policy_on_trial_stays_there(improve, run):
    PolicyHistory(run).try_policy(STRICT, percent=5.0, reason="mine")
    code, printed = improve(mixed(90), "--policy-only")

    assert code == 0, printed
    assert "is on trial already and stays there" in printed
    assert PolicyHistory(run).second().reason == "mine"


def test_too_few_outcomes_end_the_command(improve, run):
    code, printed = improve(mixed(9), "--policy-only")

    assert code == 2
    assert "at least 20 are needed" in printed
    assert PolicyHistory(run).second() is None
