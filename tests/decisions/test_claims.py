"""Bets on a promise that outlive removed outcomes, restarts, and what other replicas write."""

from pathlib import Path

import pyarrow as pa
import pytest

from raydebm.decision.guarantee.watch import ErrorWatch
from raydebm.decisions.outcomes.claims import FOLDER, Claim, ClaimMonitor
from raydebm.decisions.outcomes.log import LINES

CLAIM = Claim(max_error=0.05)
BAD_START = [(index, index % 3 == 0) for index in range(60)] + [(index, index % 25 == 0) for index in range(60, 400)]
"""Outcomes, as (number, wrong): every third of the first 60 is wrong, and 4 % of the others."""


class KeptLog:
    """What is kept of a log: rows as (record number, wrong), in the order of their first report.

    Records are about a problem each, but for those of ``problems``, by their number.
    """

    def __init__(self, folder):
        self.root, self.rows, self.problems = str(folder), [], {}

    def lines(self):
        same = {"by": "a", "content": "c", "task": "t", "policy_id": "p", "decision": "accept"}
        rows = [
            {
                "outcome_id": f"{number:06d}",
                "record_id": f"r{number}",
                "correct": not wrong,
                "problem_key": self.problems.get(number),
                **same,
            }
            for number, wrong in self.rows
        ]
        return pa.Table.from_pylist(rows, schema=LINES)


@pytest.fixture
def log(tmp_path):
    return KeptLog(tmp_path)


def watch_of(log, claim=CLAIM):
    """What a process that begins now says about the promise."""
    monitor = ClaimMonitor(log, {"p": claim})
    monitor.refresh()
    return monitor.watches()["p"][1]


def bet_on(rows, alpha=0.05):
    return ErrorWatch(alpha=alpha).after_all(wrong for _, wrong in rows)


@pytest.mark.parametrize("restarted", [False, True])
def test_an_alarm_stays_when_the_outcomes_that_raised_it_are_removed(log, restarted):
    """33 of 400 are wrong, and the alarm comes in the first 60; the other 340 alone raise none."""
    monitor = ClaimMonitor(log, {"p": CLAIM})
    log.rows = BAD_START
    monitor.refresh()
    assert monitor.suspension("p").suspended
    assert not bet_on(BAD_START[60:]).alarmed

    log.rows = BAD_START[60:]
    monitor = ClaimMonitor(log, {"p": CLAIM}) if restarted else monitor
    monitor.refresh()

    assert monitor.watches()["p"][1] == bet_on(BAD_START)
    assert monitor.suspension("p").suspended


@pytest.mark.parametrize("restarts", [False, True])
def test_outcomes_in_a_moving_window_are_one_martingale(log, restarts):
    """400 outcomes, of which the last 100 are kept at any time."""
    monitor = ClaimMonitor(log, {"p": CLAIM})
    for end in range(50, 401, 50):
        log.rows = BAD_START[max(0, end - 100) : end]
        monitor = ClaimMonitor(log, {"p": CLAIM}) if restarts else monitor
        monitor.refresh()

    assert monitor.watches()["p"][1] == bet_on(BAD_START)


def test_a_problem_that_was_asked_again_is_bet_on_once_by_its_first_request(log):
    log.rows, log.problems = [(0, False), (1, True), (2, True), (3, True)], {1: "x", 2: "y", 3: "x"}

    assert watch_of(log) == bet_on([(0, False), (1, True), (2, True)])


def test_a_problem_that_was_asked_again_is_not_bet_on_again_when_its_first_outcome_is_removed(log):
    log.problems = {0: "x", 2: "x"}
    monitor = ClaimMonitor(log, {"p": CLAIM})
    log.rows = [(0, True), (1, False), (2, False)]
    monitor.refresh()
    log.rows = [(1, False), (2, False), (3, True)]
    monitor.refresh()

    assert monitor.watches()["p"][1] == bet_on([(0, True), (1, False), (3, True)])


def test_a_corrected_report_is_bet_on_again_after_what_was_removed(log):
    monitor = ClaimMonitor(log, {"p": CLAIM})
    log.rows = [(0, True), (1, False), (2, True), (3, False)]
    monitor.refresh()
    log.rows = [(1, False), (2, False), (3, False), (4, True)]
    monitor.refresh()

    corrected = bet_on([(0, True), (1, False), (2, False), (3, False), (4, True)])
    assert monitor.watches()["p"][1] == corrected
    assert watch_of(log) == corrected


def test_a_report_that_was_corrected_while_no_process_ran_is_bet_on_again(log):
    log.rows = [(number, True) for number in range(9)]
    assert watch_of(log).alarmed
    log.rows = [(number, False) for number in range(9)]

    assert watch_of(log) == bet_on(log.rows)


def test_outcomes_that_were_removed_while_no_process_ran_stay_counted(log):
    log.rows = BAD_START[:100]
    watch_of(log)
    log.rows = BAD_START[60:150]
    assert watch_of(log) == bet_on(BAD_START[:150])
    log.rows = BAD_START[120:200]
    assert watch_of(log) == bet_on(BAD_START[:200])


def test_another_promise_about_the_policy_has_bets_of_its_own(log):
    log.rows = [(number, True) for number in range(9)]
    assert watch_of(log).alarmed

    assert watch_of(log, Claim(max_error=0.5)) == bet_on(log.rows, alpha=0.5)
    assert len(names_of(log)) == 2


def test_a_state_that_cannot_be_read_is_left_out(log, caplog):
    log.rows = BAD_START[:30]
    watch_of(log)
    for content in ("{", "{}", "[]", '{"base": 1, "watch": 1, "settled": "", "last": ""}'):
        (Path(log.root) / FOLDER / names_of(log)[0]).write_text(content)
        caplog.clear()
        assert watch_of(log) == bet_on(log.rows)
        assert "is left out" in caplog.text


def test_bets_that_cannot_be_written_count_all_the_same(log, caplog, tmp_path):
    (tmp_path / FOLDER).write_text("no folder")
    log.rows = BAD_START[:60]

    assert watch_of(log).alarmed
    assert "a restart may forget them" in caplog.text


def names_of(log):
    return sorted(path.name for path in (Path(log.root) / FOLDER).iterdir())
