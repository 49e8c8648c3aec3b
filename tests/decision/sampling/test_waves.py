"""Passes in waves: what is asked in which order, when a pass ends, and that a replay decides as was decided."""

import asyncio
from dataclasses import replace

import pytest
from decision_pools import scored
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from raydebm.decision.evidence.posterior import Posterior
from raydebm.decision.evidence.terms import Author, Reference
from raydebm.decision.loop import solve
from raydebm.decision.policy import Policy
from raydebm.decision.redecide import redecide, with_energies
from raydebm.decision.replay import Recording, replay
from raydebm.decision.sampling.checks import check_candidate
from raydebm.decision.sampling.deadline import Deadline
from raydebm.decision.sampling.one_pass import Observer, Parts
from raydebm.decision.sampling.waves import cut_pass, generator_order, in_turns
from raydebm.errors import GenerationError
from raydebm.generators.requests import unanswered
from raydebm.records import (
    Candidate,
    ConstraintReport,
    Decision,
    Energies,
    GenerationRequest,
    Sampling,
    ScoredCandidate,
)

BY_VOTES = Posterior(weights={"votes": 1.0}, context_weights={})

# Votes alone decide when to stop; any sigma is accepted.
VOTES = Policy(theta_sigma=10.0, theta_abstain=20.0, max_passes=1, waves=(4, 4, 8, 16))
AT_ONCE = VOTES.replaced(waves=None)
SLOW_FOURTH = [(0.0, "1"), (0.0, "2"), (0.0, "3"), (0.19, "4"), *map(str, range(5, 17))]
"""Different answers, of which the fourth takes almost all of 200 ms."""


class Waved:
    """A source whose samples take so many seconds each; remembers what was asked for and what was cancelled."""

    def __init__(self, *passes, failing=None):
        self.passes = passes
        self.failing = failing
        """Number of the wave that cannot be drawn."""
        self.asked, self.cancelled = [], []

    async def generate(self, problem, *, pass_index, messages, arrived, waves=None):
        items = self.passes[pass_index - 1]
        seconds = {candidate.candidate_id: s for s, candidate in items}
        completed = []

        async def one(candidate):
            try:
                await asyncio.sleep(seconds[candidate.candidate_id])
            except asyncio.CancelledError:
                self.cancelled.append(candidate.candidate_id)
                raise
            completed.append(candidate)
            arrived(candidate)

        async def draw(wave):
            self.asked.append([candidate.candidate_id for candidate in wave])
            if self.failing == len(self.asked):
                raise GenerationError("endpoint is down")
            await asyncio.gather(*map(one, wave))

        candidates = [candidate for _, candidate in items]
        try:
            await (draw(candidates) if waves is None else waves.run(candidates, draw))
        except GenerationError as error:
            if not completed:
                raise
            for name in self.asked[-1]:
                lost = next(candidate for candidate in candidates if candidate.candidate_id == name)
                arrived(replace(lost, text=None, error=str(error)))
                completed.append(replace(lost, text=None, error=str(error)))
        return completed


class Listening(Observer):
    def __init__(self):
        self.waves = []

    def waved(self, wave):
        self.waves.append(wave)


@pytest.fixture
def samples(make_candidate):
    """Texts, or (seconds, text) -> the items of a pass: ids are the pass's letter and the place."""

    def make(*texts, letter="a", pass_index=1):
        pairs = [text if isinstance(text, tuple) else (0.0, text) for text in texts]
        return [
            (
                seconds,
                make_candidate(
                    f"{letter}{place:02}",
                    text,
                    pass_index=pass_index,
                    sample_index=place,
                    prompt_tokens=10,
                    completion_tokens=20,
                ),
            )
            for place, (seconds, text) in enumerate(pairs)
        ]

    return make


class AnyScorer:
    """Sigma 0 and mu 0 for every candidate, so that ties go to the earlier id."""

    async def score(self, problem, candidates):
        return [Energies(candidate_id=candidate.candidate_id, members=(0.0, 0.0)) for candidate in candidates]


@pytest.fixture
def run(task, problem, checker, run_virtually):
    def run(source, policy=VOTES, *, observer=None, deadline_ms=None, scorer=None):
        async def solved():
            deadline = None if deadline_ms is None else Deadline.starting_now(deadline_ms)
            return await solve(
                problem,
                parts=Parts(
                    task=task,
                    source=source,
                    checker=checker,
                    scorer=scorer or AnyScorer(),
                    observer=observer or Observer(),
                    deadline=deadline,
                ),
                policy=policy,
            )

        return run_virtually(solved())

    return run


# ---- when a pass ends ------------------------------------------------------------------------------------------------


def test_one_wave_is_enough_where_all_agree(run, samples):
    source = Waved(samples(*["42"] * 16))

    outcome = run(source)

    [record] = outcome.passes
    assert source.asked == [["a00", "a01", "a02", "a03"]]
    assert (record.num_requested, record.stop.reason, record.stop.num_planned) == (4, "accept", 16)
    assert (record.stop.num_samples, record.stop.num_cancelled, record.stop.saved_frac) == (4, 0, 0.75)
    assert record.stop.tokens_saved == 12 * 30
    assert record.stop.words.startswith("the leading answer is settled after 4 samples, 12 left")


def test_waves_go_on_where_answers_differ(run, samples):
    source = Waved(samples(*map(str, range(16))))

    outcome = run(source)

    assert list(map(len, source.asked)) == [4, 4, 8]
    stop = outcome.passes[0].stop
    assert (stop.reason, stop.words) == ("budget", "all 16 samples of the pass were taken")
    assert (stop.num_samples, stop.tokens_saved, stop.saved_frac) == (16, 0, 0.0)


def test_with_other_energies_waves_are_judged_again(run, samples):
    """After 4 of 16 candidates nothing else can be known, whatever ended the recorded pass."""
    outcome = run(Waved(samples(*["42"] * 16)), VOTES)
    pool = [replace(each, report=replace(each.report, vote_key=None)) for each in outcome.pool]
    stopped = replace(outcome, pool=pool)

    assert redecide(stopped, VOTES).decision is not Decision.REGENERATE
    assert redecide(with_energies(stopped, {}), VOTES, is_rescored=True).decision is Decision.REGENERATE


def test_what_is_in_flight_is_cancelled_once_the_others_settle_the_pass(run, samples):
    # 2 votes against 2 settle nothing; 6 against 2 and 2 samples to come do, and the two would take a minute.
    texts = [*["42", "1"] * 2, *[(1.0, "42")] * 4, (60.0, "1"), (60.0, "2")]
    source = Waved(samples(*texts))

    outcome = run(source, VOTES.replaced(waves=(4, 6)))

    stop = outcome.passes[0].stop
    assert sorted(source.cancelled) == ["a08", "a09"]
    assert (stop.reason, stop.num_samples, stop.num_cancelled) == ("accept", 8, 2)
    assert stop.tokens_saved == 0  # what is cancelled may have been billed
    assert outcome.passes[0].num_requested == 10
    assert len(outcome.pool) == 8


def test_nothing_but_a_proof_ends_the_first_wave_early(run, samples):
    source = Waved(samples(*["42"] * 3, (0.05, "42"), *["42"] * 4))

    outcome = run(source)

    assert (source.cancelled, outcome.passes[0].stop.num_samples) == ([], 4)


def test_a_proven_answer_stops_at_once(samples, task, problem, run_virtually):
    class Proving:
        async def check(self, problem, candidates):
            return [
                ConstraintReport(
                    candidate_id=candidate.candidate_id,
                    answer=candidate.text,
                    vote_key=candidate.text,
                    penalty=0.0,
                    proof=True,
                )
                for candidate in candidates
            ]

    source = Waved(samples("42", (60.0, "1"), (60.0, "2"), (60.0, "3")))
    outcome = run_virtually(
        solve(problem, parts=Parts(task=task, source=source, checker=Proving(), scorer=AnyScorer()), policy=VOTES)
    )

    assert outcome.answer == "42"
    assert sorted(source.cancelled) == ["a01", "a02", "a03"]
    assert outcome.passes[0].stop.words == "an exact constraint proves the answer after 1 samples"
    assert outcome.passes[0].stop.reason == "accept"


def test_a_failing_wave_leaves_the_decision_to_those_before(run, samples):
    source = Waved(samples(*map(str, range(16))), failing=2)

    outcome = run(source)

    stop = outcome.passes[0].stop
    assert outcome.decision is Decision.ACCEPT
    assert (stop.reason, stop.words) == ("budget", "wave 2 could not be sampled (endpoint is down)")
    assert (len(source.asked), outcome.passes[0].num_failed, stop.tokens_saved) == (2, 4, 0)


def test_no_wave_begins_when_the_deadline_leaves_no_time(run, samples):
    outcome = run(Waved(samples(*SLOW_FOURTH)), deadline_ms=200)

    stop = outcome.passes[0].stop
    assert (stop.reason, stop.num_samples, stop.num_planned, stop.saved_frac) == ("budget", 4, 16, 0.0)
    assert stop.words == "the deadline of 200 ms leaves no time for wave 2"


def test_a_deadline_in_the_middle_of_a_wave_leaves_what_was_there(run, samples):
    texts = [*map(str, range(5)), (60.0, "6"), (60.0, "7"), (60.0, "8")]
    source = Waved(samples(*texts))

    outcome = run(source, deadline_ms=200)

    stop = outcome.passes[0].stop
    assert (stop.reason, stop.words) == ("budget", "the deadline ended the pass")
    assert stop.num_samples == 5
    assert sorted(source.cancelled) == ["a05", "a06", "a07"]


def test_every_wave_is_told(run, samples):
    observer = Listening()

    run(Waved(samples(*map(str, range(4)), *["1"] * 12)), observer=observer)

    first, *_, last = observer.waves
    assert (first.number, first.num_samples, first.num_planned, first.decision.reason) == (1, 4, 16, None)
    assert last.decision.reason is not None


def test_later_passes_are_sampled_in_waves_too(run, samples):
    first = samples(*["41!2"] * 8)
    second = samples(*["42"] * 8, letter="b", pass_index=2)
    source = Waved(first, second)

    outcome = run(source, VOTES.replaced(max_passes=2))

    assert list(map(len, source.asked)) == [4, 4, 4]  # after the second, 4 votes stand against 4
    assert [record.stop.num_planned for record in outcome.passes] == [8, 8]
    assert outcome.answer == "42"


def test_a_hopeless_pass_ends_and_the_loop_regenerates(run, samples):
    posterior = replace(BY_VOTES, context_weights={"none": 3.0})
    policy = VOTES.replaced(rule="posterior", posterior=posterior, tau_accept=0.99, tau_answer=0.0, max_passes=2)
    source = Waved(samples(*map(str, range(16))), samples(*["42"] * 16, letter="b", pass_index=2))

    outcome = run(source, policy)

    assert outcome.passes[0].stop.reason == "abstain"
    assert outcome.passes[0].stop.num_samples < 16
    assert outcome.passes[0].decision is Decision.REGENERATE


def test_answers_that_do_not_compete_are_sampled_to_the_end(run, samples):
    posterior = replace(BY_VOTES, competition="independent")
    policy = VOTES.replaced(rule="posterior", posterior=posterior, tau_accept=0.0, tau_answer=0.0)

    stop = run(Waved(samples(*["42"] * 16)), policy).passes[0].stop

    assert (stop.reason, stop.num_samples) == ("budget", 16)


def test_a_settled_answer_that_the_profile_does_not_select_ends_nothing():
    """The author who is trusted most says B once; the posterior believes the many that say A."""
    author = Author(skill=0.0, center=0.0, scale=1.0)
    reference = Reference(authors={"expert": replace(author, skill=5.0)}, default=author, lambda_=1.0)
    posterior = replace(BY_VOTES, reference=reference)
    policy = VOTES.replaced(rule="posterior", posterior=posterior, tau_accept=0.4, tau_answer=0.0)
    pool = [scored("e", "B", (0.0,), author="expert"), *(scored(f"c{i}", "A", (0.0,), author="x") for i in range(15))]

    by_author, reason = cut_pass(pool, policy.replaced(profile="best_author"), num_planned=32)
    by_posterior, _ = cut_pass(pool, policy, num_planned=32)

    assert (reason, len(by_author)) == (None, 16)
    assert len(by_posterior) < 16


# ---- the order -------------------------------------------------------------------------------------------------------


def with_skills(prices, **skills):
    authors = {name: Author(skill=skill, center=0.0, scale=1.0) for name, skill in skills.items()}
    reference = Reference(authors=authors, default=Author(skill=0.0, center=0.0, scale=1.0), lambda_=1.0)
    return Policy(posterior=replace(BY_VOTES, reference=reference), prices=prices, waves=(4,))


def test_generators_come_by_right_answers_per_dollar():
    # sigmoid(0) / 1 = 0.5 and sigmoid(2) / 4 = 0.22 per dollar; the free ones come first, the better one before.
    policy = with_skills({"dear": 4.0, "cheap": 1.0, "own": 0.0, "idle": 0.0}, dear=2.0, cheap=0.0, own=-1.0, idle=1.0)

    assert generator_order(["dear", "cheap", "own", "idle"], policy) == ["idle", "own", "cheap", "dear"]


def test_a_wave_takes_every_generators_first_sample_before_any_second_one():
    policy = with_skills({"dear": 4.0, "cheap": 1.0}, dear=0.0, cheap=0.0)
    pool = [
        Candidate(candidate_id=f"{name}{index}", task="t", problem_id="p", generator=name, text="x", sample_index=index)
        for name in ("dear", "cheap")
        for index in range(2)
    ]

    assert [candidate.candidate_id for candidate in in_turns(pool, policy)] == ["cheap0", "dear0", "cheap1", "dear1"]


# ---- replaying -------------------------------------------------------------------------------------------------------


def same(again, outcome):
    selected = None if outcome.best is None else outcome.best.candidate.candidate_id
    return again.exact and (again.decision, again.selected, again.num_candidates) == (
        outcome.decision,
        selected,
        len(outcome.pool),
    )


ANSWERS = st.lists(st.sampled_from(["1", "2", "3!1", None, "hm"]), min_size=1, max_size=16)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=ANSWERS, late=st.sets(st.integers(0, 15)), second=ANSWERS)
def test_a_record_decides_again_as_it_was_decided(run, make_candidate, texts, late, second):
    """Also where requests were cancelled in flight, and over two passes."""
    policy = VOTES.replaced(max_passes=2, theta_sigma=0.5, waves=(2, 4), num_regenerate=16)

    def items(pass_texts, index):
        names = [f"{index}{place:02}" for place in range(len(pass_texts))]
        made = [
            make_candidate(name, text, pass_index=index, sample_index=place)
            for place, (name, text) in enumerate(zip(names, pass_texts, strict=True))
        ]
        return [(1.0 if place in late else 0.0, candidate) for place, candidate in enumerate(made)]

    outcome = run(Waved(items(texts, 1), items(second, 2)), policy)

    assert same(redecide(outcome, policy), outcome)
    assert same(redecide(outcome, policy, is_rescored=True), outcome), "cut by the rule"


@pytest.mark.parametrize("policy", [AT_ONCE, VOTES.replaced(waves=(8,))])
def test_a_rule_that_wants_more_than_was_sampled_cannot_be_replayed(run, samples, policy):
    outcome = run(Waved(samples(*["42"] * 16)))

    again = redecide(outcome, VOTES, policy)

    assert (again.decision, again.as_it_stands) == (Decision.REGENERATE, Decision.ACCEPT)
    assert again.reason == "more of pass 1 would be sampled than the 4 of 16 that are recorded"


def test_a_budget_that_the_record_fills_is_enough(run, samples):
    outcome = run(Waved(samples(*["42"] * 16)))

    again = redecide(outcome, VOTES, AT_ONCE.replaced(budget=4))

    assert (again.decision, again.num_candidates) == (Decision.ACCEPT, 4)


def test_a_pass_that_its_deadline_ended_had_no_more_to_give(run, samples):
    outcome = run(Waved(samples(*SLOW_FOURTH)), deadline_ms=200)

    assert same(redecide(outcome, VOTES), outcome)


def test_a_replay_lacks_only_the_wave_that_it_would_sample(task, problem, samples):
    first = [candidate for _, candidate in samples("41!1")]
    requests = [
        GenerationRequest(
            task="toy",
            problem_id="p",
            generator="g",
            messages=({"role": "user", "content": "again"},),
            sampling=Sampling(),
            seed=index,
            sample_index=index,
            pass_index=2,
        )
        for index in range(8)
    ]
    known = {
        each.candidate_id: ScoredCandidate(candidate=each, report=check_candidate(task, problem, each), energies=None)
        for each in [*first, *(unanswered(r, "x") for r in requests[:4])]
    }
    recorded = Recording(task, known, requests_of=lambda problem, pass_index, messages: requests)

    replay([problem], recorded, policy=VOTES.replaced(max_passes=2))

    assert recorded.missing == requests[4:]
