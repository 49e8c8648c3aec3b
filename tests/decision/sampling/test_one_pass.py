"""One pass: checks and energies begin with the first candidate, and say the same as if all had come at once."""

import asyncio
import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from raydebm.decision.loop import solve
from raydebm.decision.policy import Policy
from raydebm.decision.sampling.deadline import now_s
from raydebm.decision.sampling.one_pass import Parts, sample_pass
from raydebm.errors import ScoringError
from raydebm.records import Decision

SURE = (-0.1, 0.1)


class Arriving:
    """Candidates that arrive after so many seconds each; all are returned in the order given."""

    def __init__(self, *items):
        self.items = items
        self.was_cancelled = False

    async def generate(self, problem, *, pass_index, messages, arrived, waves=None):
        async def write(seconds, candidate):
            await asyncio.sleep(seconds)
            arrived(candidate)

        try:
            await asyncio.gather(*(write(*timed_candidate) for timed_candidate in self.items))
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        return [candidate for _, candidate in self.items]


class Timed:
    """A scorer or checker that takes so long, and remembers when it was called with what."""

    def __init__(self, inner, seconds):
        self.inner, self.seconds, self.calls = inner, seconds, []

    async def score(self, problem, candidates):
        return await self._call(self.inner.score, problem, candidates)

    async def check(self, problem, candidates):
        return await self._call(self.inner.check, problem, candidates)

    async def _call(self, method, problem, candidates):
        self.calls.append((now_s(), [candidate.candidate_id for candidate in candidates]))
        await asyncio.sleep(self.seconds)
        return await method(problem, candidates)


class Heard:
    def __init__(self):
        self.scored_at, self.decisions = [], []

    def scored(self, scored):
        self.scored_at.append((round(now_s(), 6), scored.candidate.candidate_id, scored.energies is not None))

    def decided(self, record, reason, beliefs):
        self.decisions.append((record.decision, reason))


@pytest.fixture
def arriving(make_candidate):
    """(seconds, id, text) or (seconds, id) -> a source."""
    return lambda *items: Arriving(*((s, make_candidate(name, *(text or ["42"]))) for s, name, *text in items))


@pytest.fixture
def timed_scorer(make_scorer):
    return lambda seconds, *names: Timed(make_scorer(dict.fromkeys(names, SURE)), seconds)


@pytest.fixture
def run(task, problem, run_virtually):
    def run(source, checker, scorer, **parts):
        parts = Parts(task=task, source=source, checker=checker, scorer=scorer, **parts)

        async def work():
            return await sample_pass(problem, parts=parts, pass_index=1, messages=None), round(now_s(), 6)

        return run_virtually(work())

    return run


def test_scoring_begins_with_the_first_candidate_and_takes_what_has_come_since(run, arriving, checker, timed_scorer):
    scorer = timed_scorer(1.0, "a", "b", "c", "d")

    pool, ended_s = run(arriving((1, "a"), (1.2, "b"), (1.8, "c"), (5, "d")), checker, scorer)

    assert scorer.calls == [(1, ["a"]), (2, ["b", "c"]), (5, ["d"])]
    assert ended_s == 6.0  # after the slowest: 6, and not 5 and four times 1
    assert [scored.candidate.candidate_id for scored in pool] == ["a", "b", "c", "d"]


def test_checks_and_energies_do_not_wait_for_each_other(run, arriving, checker, timed_scorer):
    slow_checker, scorer = Timed(checker, 10.0), timed_scorer(1.0, "a", "b")

    _, ended_s = run(arriving((0, "a"), (3, "b")), slow_checker, scorer)

    assert (slow_checker.calls, scorer.calls) == ([(0, ["a"]), (10, ["b"])], [(0, ["a"]), (3, ["b"])])
    assert ended_s == 20.0


class Scores:
    """A baseline that takes so long, and scores by the length of the text."""

    def __init__(self, seconds):
        self.seconds = seconds

    async def scores(self, problem, candidates):
        await asyncio.sleep(self.seconds)
        return [{"reader": float(len(candidate.text))} for candidate in candidates]


def test_scores_of_baselines_are_waited_for_and_belong_to_their_candidates(run, arriving, checker, timed_scorer):
    source = arriving((0, "a", "42"), (0, "b", "7"), (0, "c", None))

    pool, ended_s = run(source, checker, timed_scorer(1.0, "a", "b"), baselines=Scores(5.0))

    assert [dict(scored.scores) for scored in pool] == [{"reader": 2.0}, {"reader": 1.0}, {}]
    assert ended_s == 5.0


def test_a_failed_candidate_is_neither_checked_nor_scored(run, arriving, checker, timed_scorer):
    scorer = timed_scorer(0.0, "b")

    pool, _ = run(arriving((0, "a", None), (0, "b", "42")), checker, scorer)

    assert scorer.calls == [(0, ["b"])]
    assert (pool[0].report.error, pool[0].energies) == ("no text to check: HTTP 500", None)


def test_an_observer_hears_of_a_candidate_when_both_are_known(run, arriving, checker, timed_scorer):
    heard = Heard()

    run(arriving((0, "a"), (1, "b"), (1, "c", None)), Timed(checker, 0.25), timed_scorer(0.5, "a", "b"), observer=heard)

    assert heard.scored_at == [(0.5, "a", True), (1.5, "b", True)]


def test_an_observer_hears_of_every_pass(task, problem, arriving, checker, timed_scorer, run_virtually):
    heard = Heard()
    scorer = timed_scorer(0.0, "a")

    run_virtually(
        solve(
            problem,
            parts=Parts(task=task, source=arriving((0, "a")), checker=checker, scorer=scorer, observer=heard),
            policy=Policy(max_passes=1),
        )
    )

    ((decision, reason),) = heard.decisions
    assert decision is Decision.ACCEPT
    assert reason == "sigma 0.1 is at or below theta_sigma 0.8 and every constraint holds"


def test_a_scorer_that_breaks_ends_the_pass_and_cancels_the_source(run, arriving, checker):
    class Broken:
        async def score(self, problem, candidates):
            raise ScoringError("out of memory")

    source = arriving((0, "a"), (60, "b"))

    with pytest.raises(ScoringError, match="out of memory"):
        run(source, checker, Broken())

    assert source.was_cancelled


def test_a_source_that_breaks_cancels_the_scorer(run, checker, make_candidate):
    class Broken:
        async def generate(self, problem, *, pass_index, messages, arrived, waves=None):
            arrived(make_candidate("a", "42"))
            await asyncio.sleep(1)
            raise OSError("no route")

    class Endless:
        async def score(self, problem, candidates):
            await asyncio.sleep(1e9)

    with pytest.raises(OSError, match="no route"):
        run(Broken(), checker, Endless())


TEXTS = st.sampled_from(["42", "41", "41!2", "hm", None])
MEMBERS = st.tuples(*[st.sampled_from([-2.0, -0.5, 0.0, 1.0, math.nan])] * 2)
CANDIDATES = st.lists(st.tuples(TEXTS, MEMBERS, st.floats(0, 5)), min_size=1, max_size=6)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(candidates=CANDIDATES, scoring_s=st.floats(0, 3), checking_s=st.floats(0, 3))
def test_the_order_of_arrival_changes_nothing(
    task, problem, checker, make_candidate, make_scorer, run_virtually, candidates, scoring_s, checking_s
):
    made = [(wait, make_candidate(f"c{place}", text)) for place, (text, _, wait) in enumerate(candidates)]
    scorer = make_scorer({f"c{place}": members for place, (_, members, _) in enumerate(candidates)})

    def outcome(source, checker, scorer):
        parts = {"source": source, "checker": checker, "scorer": scorer}
        return run_virtually(solve(problem, parts=Parts(task=task, **parts), policy=Policy(max_passes=1)))

    together = outcome(Arriving(*((0, candidate) for _, candidate in made)), checker, scorer)
    apart = outcome(Arriving(*made), Timed(checker, checking_s), Timed(scorer, scoring_s))

    assert apart == together
