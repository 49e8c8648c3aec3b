import asyncio
import os

import pytest

from raydebm.errors import ConfigError
from raydebm.generators.journal import Journal, JournaledGenerator, spent_usd
from raydebm.generators.requests import TokenUsage, answered, collect, unanswered


class CountingGenerator:
    """Answers with the sample index; fails where told to."""

    name = "g"

    def __init__(self, failing=()):
        self.asked = []
        self.failing = failing

    async def stream(self, requests):
        for request in requests:
            self.asked.append(request.sample_index)
            if request.sample_index in self.failing:
                yield unanswered(request, "no luck")
            else:
                yield answered(request, f"text {request.sample_index}", usage=TokenUsage(cost_usd=0.5))

    async def aclose(self):
        pass


@pytest.fixture
def requests(ask):
    return [ask(sample_index=index) for index in range(4)]


def test_answers_survive_the_writer(tmp_path, requests):
    Journal(tmp_path).put(answered(requests[0], "text \u2028 ü", usage=TokenUsage(cost_usd=0.5), reasoning="r"))
    candidate = Journal(tmp_path).get(requests[0].candidate_id)
    assert candidate == answered(requests[0], "text \u2028 ü", usage=TokenUsage(cost_usd=0.5), reasoning="r")


def test_torn_last_line_is_dropped(tmp_path, requests):
    journal = Journal(tmp_path)
    for request in requests[:2]:
        journal.put(answered(request, "text"))
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-7])
    assert len(Journal(tmp_path)) == 1


def test_unreadable_line_costs_only_itself(tmp_path, requests):
    Journal(tmp_path).put(answered(requests[0], "text"))
    (file,) = tmp_path.iterdir()
    file.write_bytes(b'{"half": 1}\n\xff\xfe\n' + file.read_bytes())
    assert len(Journal(tmp_path)) == 1


def test_catch_up_sees_other_writers(tmp_path, requests):
    mine, other = Journal(tmp_path), Journal(tmp_path)
    other.put(answered(requests[0], "text", usage=TokenUsage(cost_usd=0.25)))
    assert mine.get(requests[0].candidate_id) is None
    mine.catch_up()
    other.put(answered(requests[1], "text", usage=TokenUsage(cost_usd=0.25)))
    mine.catch_up()
    assert len(mine) == 2
    assert mine.read_usd == 0.5


def test_what_failed_requests_cost_is_read_back_and_is_no_answer(tmp_path, requests):
    mine, other = Journal(tmp_path), Journal(tmp_path)
    other.put_lost(0.25)
    other.put(answered(requests[0], "text", usage=TokenUsage(cost_usd=0.5)))
    mine.catch_up()
    assert (mine.read_usd, len(mine)) == (0.75, 1)
    assert other.read_usd == 0.0


@pytest.mark.parametrize("has_seen_the_other", [False, True])
def test_an_answer_of_two_writers_is_paid_twice(tmp_path, requests, has_seen_the_other):
    first, second = Journal(tmp_path), Journal(tmp_path)
    first.put(answered(requests[0], "text", usage=TokenUsage(cost_usd=0.25)))
    if has_seen_the_other:
        second.catch_up()
    second.put(answered(requests[0], "text", usage=TokenUsage(cost_usd=0.5)))

    again = Journal(tmp_path)
    assert (again.read_usd, len(again)) == (0.75, 1)
    assert spent_usd([tmp_path]) == 0.75


@pytest.mark.parametrize("bytes_taken", [0, 20])
def test_an_answer_behind_a_torn_line_is_kept(tmp_path, requests, monkeypatch, bytes_taken):
    journal, write = Journal(tmp_path), os.write
    journal.put(answered(requests[0], "text 0"))
    monkeypatch.setattr("raydebm.generators.journal.os.write", lambda file, line: write(file, line[:bytes_taken]))
    with pytest.raises(OSError, match="is the disk full"):
        journal.put(answered(requests[1], "text 1"))
    monkeypatch.undo()
    journal.put(answered(requests[2], "text 2"))
    journal.put(answered(requests[1], "text 1"))

    for reader in (journal, Journal(tmp_path)):
        assert [reader.get(request.candidate_id).text for request in requests[:3]] == ["text 0", "text 1", "text 2"]


def test_reused_answers_are_not_asked_for(tmp_path, requests):
    first, second = CountingGenerator(failing=(1,)), CountingGenerator()
    asyncio.run(collect(JournaledGenerator(first, Journal(tmp_path)), requests[:3]))
    candidates = asyncio.run(collect(JournaledGenerator(second, Journal(tmp_path)), requests))
    assert first.asked == [0, 1, 2]
    assert second.asked == [1, 3]
    assert [candidate.text for candidate in candidates] == ["text 0", "text 1", "text 2", "text 3"]


def test_object_store_is_refused_with_a_way_out():
    with pytest.raises(ConfigError, match=r"s3://bucket/journal.*run_dir"):
        Journal("s3://bucket/journal")


def test_what_journals_hold_is_summed_without_reading_answers(tmp_path, requests):
    """A line counts by its own cost, whatever its text says; an incomplete line counts too, because it was paid."""
    journal = Journal(tmp_path / "one")
    journal.put(answered(requests[0], '{"cost_usd":100,"lost_usd":100}', usage=TokenUsage(cost_usd=0.25)))
    journal.put(answered(requests[1], "nobody said what it cost", usage=TokenUsage(cost_usd=None)))
    journal.put_lost(1e-05)
    other = Journal(tmp_path / "two")
    other.put(answered(requests[2], "text", usage=TokenUsage(cost_usd=2)))
    (file,) = (tmp_path / "two").glob("*.jsonl")
    line = file.read_bytes()
    file.write_bytes(line + line[: line.index(b'"text"')] + b"\n" + line[: line.index(b'"cost_usd"') + 11])

    assert spent_usd([tmp_path / "one", tmp_path / "two", tmp_path / "none"]) == pytest.approx(4.25001)
