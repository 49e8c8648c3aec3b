import pytest

from raydebm.generators.endpoint.rate_limits import Backoff, RateLimit, retry_after_s


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7", 7.0),
        ("0.5", 0.5),
        ("Thu, 01 Jan 1970 00:01:50 GMT", 10.0),
        ("Thu, 01 Jan 1970 00:00:10 GMT", 0.0),
        ("-3", 0.0),
        ("soon", None),
        ("", None),
    ],
)
def test_retry_after(text, expected):
    assert retry_after_s({"retry-after": text}, now=100.0) == expected


@pytest.mark.parametrize(
    ("attempt", "chance", "wished", "expected"),
    [(0, 0.0, None, 0.25), (0, 1.0, None, 0.5), (3, 1.0, None, 4.0), (0, 0.0, 7.0, 7.0), (3, 1.0, 1.0, 4.0)],
    ids=["half", "whole", "doubles", "server-wish", "own-wait-is-longer"],
)
def test_backoff(attempt, chance, wished, expected):
    assert Backoff(base_s=0.5).wait_s(attempt, chance=chance, retry_after_s=wished) == expected


def sent_at(rate, now, count):
    """When ``count`` requests that come at ``now`` go out, each waiting its turn."""
    times = []
    for _ in range(count):
        now += rate.wait_s(now)
        rate.take(now)
        times.append(now)
    return times


def test_rate_limit_spreads_requests():
    rate = RateLimit(120)  # two a second
    assert sent_at(rate, 10.0, 4) == [10.0, 10.0, 10.5, 11.0]
    assert rate.wait_s(100.0) == 0.0
