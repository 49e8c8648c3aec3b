import math
import random
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from raydebm.config import DecisionConfig
from raydebm.decision.calibration import grid
from raydebm.decision.calibration.grid import GridRow, calibrate, choose, without_gate
from raydebm.decision.policy import Policy
from raydebm.decision.replay import Recording, replay
from raydebm.errors import PoolError
from raydebm.records import (
    Candidate,
    ConstraintReport,
    Decision,
    Energies,
    GenerationRequest,
    Label,
    Problem,
    Sampling,
    ScoredCandidate,
    Verdict,
    Violation,
)
from raydebm.tasks.base import TaskDefaults

DEFAULT = Policy(lambda_=1.0, theta_sigma=0.8, theta_abstain=1.5, num_regenerate=2)


class PlainTask:
    """Only what the loop asks of a task when checks are recorded."""

    name = "toy"
    defaults = TaskDefaults(max_length=64, batch_size=1, patience=1)

    def messages(self, problem):
        return ({"role": "user", "content": problem.prompt},)


def requests_of(problem, pass_index, messages):
    request = GenerationRequest(
        task="toy",
        problem_id=problem.problem_id,
        generator="g",
        messages=messages,
        sampling=Sampling(),
        seed=0,
        pass_index=pass_index,
    )
    return [replace(request, sample_index=sample) for sample in range(2)]


class World:
    """Random pools: every candidate has a report, perhaps energies, perhaps a label; second passes appear on demand."""

    def __init__(
        self, seed, *, num_problems, num_candidates, has_second_pass=True, num_members=2, spreads=(0.125, 0.5, 1.0, 2.0)
    ):
        self.rng = random.Random(seed)
        self.num_members, self.spreads = num_members, spreads
        self.problems = [Problem(task="toy", problem_id=f"p{i}", prompt=f"q{i}") for i in range(num_problems)]
        self.candidates, self.reports, self.energies, self.labels = {}, {}, {}, {}
        for problem in self.problems:
            for index in range(num_candidates):
                self.add(f"{problem.problem_id}c{index}", problem.problem_id, 1)
        self.requests_of = requests_of if has_second_pass else None

    def add(self, candidate_id, problem_id, pass_index):
        rng = self.rng
        penalty = rng.choice([0.0, 0.0, 0.5, math.inf, math.inf])
        answer = None if math.isinf(penalty) else rng.choice("ab")
        violations = ()
        if answer and penalty:
            violations = (Violation(constraint="c", penalty=penalty, weight=1.0, message=f"over by {penalty}"),)
        self.candidates[candidate_id] = Candidate(
            candidate_id=candidate_id,
            task="toy",
            problem_id=problem_id,
            generator="g",
            text=f"{answer}",
            pass_index=pass_index,
        )
        self.reports[candidate_id] = ConstraintReport(
            candidate_id=candidate_id, answer=answer, vote_key=answer, penalty=penalty, violations=violations
        )
        # Exact binary fractions, so that a sigma can lie exactly on a threshold.
        spread, mu = rng.choice(self.spreads), rng.randrange(-4, 5) / 4
        members = tuple(mu + (-spread if index % 2 else spread) for index in range(self.num_members))
        broken = rng.random() < 0.05
        self.energies[candidate_id] = None if broken else Energies(candidate_id=candidate_id, members=members)
        verdict = rng.choice([Verdict.CORRECT, Verdict.INCORRECT, Verdict.UNLABELED])
        self.labels[candidate_id] = Label(candidate_id=candidate_id, problem_id=problem_id, verdict=verdict)

    def recorded(self):
        scored = {
            name: ScoredCandidate(candidate=candidate, report=self.reports[name], energies=self.energies[name])
            for name, candidate in self.candidates.items()
        }
        return Recording(PlainTask(), scored, requests_of=self.requests_of)

    def calibrate(self, base=DEFAULT, *, num_thresholds=12, max_abstain_frac=0.1, **lambdas):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(grid, "NUM_THRESHOLDS", num_thresholds)
            patch.setattr(grid, "MAX_ABSTAIN_FRAC", max_abstain_frac)
            config = DecisionConfig(**lambdas)
            recorded = self.recorded()
            outcomes = {
                lambda_: replay(self.problems, recorded, policy=policy)
                for lambda_, policy in without_gate(base, config).items()
            }
            return calibrate(outcomes, self.labels, base=base, config=config)

    def complete(self, lambdas):
        """Draw every second pass that some lambda asks for."""
        recorded = self.recorded()
        for lambda_ in lambdas:
            always = DEFAULT.replaced(lambda_=lambda_, theta_sigma=0.0, theta_abstain=1e9)
            replay(self.problems, recorded, policy=always)
        for request in recorded.missing:
            self.add(request.candidate_id, request.problem_id, 2)
        return self


def measured(world, policy):
    """What a grid row states, from running the loop itself."""
    outcomes = replay(world.problems, world.recorded(), policy=policy)
    accepted = [outcome for outcome in outcomes if outcome.decision is Decision.ACCEPT]
    verdicts = [world.labels[outcome.best.candidate.candidate_id].verdict for outcome in accepted]
    labelled = [verdict for verdict in verdicts if verdict is not Verdict.UNLABELED]
    return (
        labelled.count(Verdict.CORRECT) / len(labelled) if labelled else None,
        len(labelled),
        len(verdicts) - len(labelled),
        1 - len(accepted) / len(outcomes),
        sum(outcome.passes[0].decision is Decision.REGENERATE for outcome in outcomes) / len(outcomes),
    )


@pytest.mark.parametrize("signal", ["selected", "pool_mean", "equation"])
@pytest.mark.parametrize("max_passes", [1, 2])
@given(seed=st.integers(0, 2**20))
@settings(max_examples=12)
def test_every_row_says_what_the_loop_does_with_its_setting(seed, signal, max_passes):
    lambdas = (0.0, 1.0)
    world = World(seed, num_problems=6, num_candidates=3).complete(lambdas)
    base = DEFAULT.replaced(signal=signal, max_passes=max_passes)

    try:
        result = world.calibrate(base, lambdas=lambdas, num_thresholds=2, max_abstain_frac=1.0)
    except PoolError:  # by chance no selection is labelled
        assume(False)

    for row in result.rows:
        policy = base.replaced(lambda_=row.lambda_, theta_sigma=row.theta_sigma, theta_abstain=row.theta_abstain)
        stated = (row.pass_at_1, row.num_answered, row.num_unlabeled, row.abstain_frac, row.regenerate_frac)
        assert stated == pytest.approx(measured(world, policy)), policy


def test_with_violation_scores_the_lambda_is_the_one_that_violates_least():
    """Each problem: the low energy has violation 0.5, the kept constraint 0.1; nothing is correct."""
    world = World(0, num_problems=0, num_candidates=0, has_second_pass=False)
    for index in range(6):
        problem = Problem(task="toy", problem_id=f"p{index}", prompt="q")
        world.problems.append(problem)
        for name, mu, penalty, violation in (("a", 0.0, 1.0, 0.5), ("b", 1.0, 0.0, 0.1)):
            candidate_id = f"p{index}{name}"
            world.add(candidate_id, problem.problem_id, 1)
            world.energies[candidate_id] = Energies(candidate_id=candidate_id, members=(mu - 0.1, mu + 0.1))
            world.reports[candidate_id] = ConstraintReport(
                candidate_id=candidate_id, answer=name, vote_key=name, penalty=penalty
            )
            world.labels[candidate_id] = Label(
                candidate_id=candidate_id, problem_id=problem.problem_id, verdict=Verdict.INCORRECT,
                violation_score=violation,
            )  # fmt: skip

    calibration = world.calibrate(DEFAULT.replaced(max_passes=1), lambdas=(0.0, 4.0))

    assert [row.mean_violation for row in calibration.best_by_lambda] == [pytest.approx(0.5), pytest.approx(0.1)]
    assert calibration.policy.lambda_ == 4.0


def test_problems_whose_second_pass_is_not_recorded_are_counted():
    world = World(3, num_problems=20, num_candidates=4)

    before = world.calibrate(lambdas=(0.0, 4.0))
    after = world.complete((0.0, 1.0, 4.0)).calibrate(lambdas=(0.0, 4.0))

    assert (before.num_incomplete, after.num_incomplete) == (20, 0)
    assert (0.8, 1.5) in {(row.theta_sigma, row.theta_abstain) for row in after.rows}  # the paper's


def test_a_labelled_problem_without_a_selection_is_wrong():
    world = single([(0.1, True), (0.1, True)])
    world.reports["p01"] = ConstraintReport(candidate_id="p01", answer=None, vote_key=None, penalty=math.inf)

    labelled = world.calibrate(DEFAULT.replaced(max_passes=1), lambdas=(1.0,))
    world.labels["p01"] = replace(world.labels["p01"], verdict=Verdict.UNLABELED)
    unlabelled = world.calibrate(DEFAULT.replaced(max_passes=1), lambdas=(1.0,))

    assert (labelled.single_pass, unlabelled.single_pass) == ({1.0: 0.5}, {1.0: 1.0})


def row(pass_at_1=0.5, *, violation=None, abstain=0.0, regenerate=0.0, lambda_=1.0, theta_sigma=0.8, theta_abstain=1.5):
    return GridRow(
        mean_violation=violation,
        lambda_=lambda_,
        theta_sigma=theta_sigma,
        theta_abstain=theta_abstain,
        pass_at_1=pass_at_1,
        lift=None,
        num_answered=10,
        num_unlabeled=0,
        abstain_frac=abstain,
        regenerate_frac=regenerate,
    )


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        (row(0.6, abstain=0.1), row(0.5)),
        (row(0.5), row(0.9, abstain=0.11)),
        (row(abstain=0.01, regenerate=0.9), row(abstain=0.02)),
        (row(regenerate=0.1, lambda_=4.0), row(regenerate=0.2)),
        (row(lambda_=0.5, theta_sigma=0.1), row(lambda_=2.0)),
        (row(theta_sigma=0.7), row(theta_sigma=0.1)),
        (row(0.1), row(None)),
        (row(0.1, violation=0.2), row(0.9, violation=0.3)),
        (row(0.1, violation=0.2), row(None)),
    ],
    ids=[
        "lift",
        "limit",
        "abstention",
        "regenerations",
        "lambda",
        "threshold",
        "nothing-answered",
        "violation",
        "nothing-violated",
    ],
)
def test_choice(better, worse):
    for rows in ([better, worse], [worse, better]):
        assert choose(rows, base=DEFAULT) is better


def test_when_nothing_keeps_the_limit_the_lowest_abstention_wins():
    rows = [row(0.9, abstain=0.5), row(0.2, abstain=0.3)]

    assert choose(rows, base=DEFAULT) is rows[1]


def single(task_rows):
    """Problems with one candidate each: (sigma, correct)."""
    world = World(0, num_problems=0, num_candidates=0)
    for index, (sigma, correct) in enumerate(task_rows):
        name = f"p{index:02d}"
        world.problems.append(Problem(task="toy", problem_id=name, prompt=name))
        world.candidates[name] = Candidate(candidate_id=name, task="toy", problem_id=name, generator="g", text="a")
        world.reports[name] = ConstraintReport(candidate_id=name, answer="a", vote_key="a", penalty=0.0)
        world.energies[name] = Energies(candidate_id=name, members=(-sigma, sigma))
        verdict = Verdict.CORRECT if correct else Verdict.INCORRECT
        world.labels[name] = Label(candidate_id=name, problem_id=name, verdict=verdict)
    return world


def test_abstaining_on_the_one_uncertain_mistake_is_found():
    """9 of 10 right, the mistake has the largest sigma: abstaining on it gives 9 of 9."""
    world = single([(0.1 + index / 100, True) for index in range(9)] + [(1.2, False)])

    result = world.calibrate(DEFAULT.replaced(max_passes=1), lambdas=(1.0,))

    assert result.chosen.pass_at_1 == 1.0
    assert result.chosen.lift == pytest.approx(0.1)
    assert result.chosen.abstain_frac == 0.1
    assert 0.18 <= result.policy.theta_abstain < 1.2
    assert result.within_limit


def test_the_limit_forbids_abstaining_on_more():
    world = single([(0.1 + index / 100, True) for index in range(8)] + [(1.2, False), (1.3, False)])

    result = world.calibrate(DEFAULT.replaced(max_passes=1), lambdas=(1.0,), max_abstain_frac=0.05)

    assert result.chosen.abstain_frac == 0.0
    assert result.chosen.lift == 0.0


def test_no_label_is_an_error():
    world = World(0, num_problems=3, num_candidates=3)
    world.labels.clear()

    with pytest.raises(PoolError, match="no labelled selection among 3 problems"):
        world.calibrate()
