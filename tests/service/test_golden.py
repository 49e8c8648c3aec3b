"""The service answers recorded requests as it did when they were recorded."""

import pytest
from golden_pairs import Scene, asked, groups, recorded


def differences(now, before, place):
    """One line for each value that differs, with its place in the response."""
    if isinstance(now, dict) and isinstance(before, dict):
        for key in {**before, **now}:
            yield from differences(now.get(key, "(absent)"), before.get(key, "(absent)"), f"{place}.{key}")
    elif isinstance(now, list) and isinstance(before, list) and len(now) == len(before):
        for index, pair in enumerate(zip(now, before, strict=True)):
            yield from differences(*pair, f"{place}[{index}]")
    elif now != before:
        yield f"{place}: {before!r} -> {now!r}"


@pytest.mark.parametrize("group", groups())
def test_recorded_requests_are_answered_as_before(group, tmp_path):
    changes = [
        change
        for pair, response in asked(group, tmp_path)
        for change in differences(response, pair["response"], pair["name"])
    ]
    assert changes == []


def test_what_is_refused_asks_no_generator(tmp_path):
    scene = Scene(tmp_path)
    replies = [(scene.ask(pair)["status"], scene.backend.requests) for pair in recorded("refused")["pairs"]]
    assert {status for status, _ in replies} == {400, 404, 422, 503}
    assert [requests for _, requests in replies if requests] == []
