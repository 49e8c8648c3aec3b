"""A helper process: answers, hangs, ends, and is gone."""

import signal
import sys

import pytest

from raydebm.tasks.child import Child, ChildLostError

ECHO = "import sys\nfor line in sys.stdin:\n    print(line, end='', flush=True)"


def child(source):
    return Child([sys.executable, "-c", source])


@pytest.fixture
def echo():
    process = child(ECHO)
    yield process
    process.kill()


def test_it_answers_in_order(echo):
    assert [echo.ask({"n": n}, timeout_s=30) for n in range(3)] == [{"n": 0}, {"n": 1}, {"n": 2}]


def test_one_that_hangs_is_ended():
    hanging = child("import time\ntime.sleep(600)")
    with pytest.raises(ChildLostError, match=r"took longer than 0\.2 s and was stopped") as caught:
        hanging.receive(timeout_s=0.2)
    assert caught.value.exit_code is None
    assert hanging.kill() == -9


def test_one_that_does_not_even_read_is_ended():
    """A pipe holds 64 KiB."""
    hanging = child("import time\ntime.sleep(600)")
    with pytest.raises(ChildLostError, match=r"took longer than 0\.2 s and was stopped"):
        hanging.ask({"text": "x" * 1_000_000}, timeout_s=0.2)
    assert hanging.kill() == -9


def test_a_request_larger_than_a_pipe_arrives_whole(echo):
    request = {"text": "x" * 1_000_000}
    assert echo.ask(request, timeout_s=30) == request


def test_one_that_ends_says_its_exit_code():
    with pytest.raises(ChildLostError, match="exit code 7") as caught:
        child("raise SystemExit(7)").receive(timeout_s=30)
    assert caught.value.exit_code == 7


def test_asking_one_that_is_gone_is_the_same_error(echo):
    echo.kill()
    with pytest.raises(ChildLostError):
        echo.ask({}, timeout_s=1)


def test_half_a_reply_is_no_reply():
    half = child("import sys, time\nsys.stdout.write('{')\nsys.stdout.flush()\ntime.sleep(600)")
    with pytest.raises(ChildLostError, match="took longer"):
        half.receive(timeout_s=0.5)


def test_one_that_hangs_ends_itself_where_nothing_ends_it():
    spinning = child(
        "from raydebm.tasks import child\nchild.OWN_END_S = 0\nwith child.ending_itself(0.1):\n  while True:\n    pass"
    )
    with pytest.raises(ChildLostError) as caught:
        spinning.receive(timeout_s=60)
    assert caught.value.exit_code == -signal.SIGALRM


def test_one_that_was_in_time_lives_on():
    in_time = child(
        "import time\nfrom raydebm.tasks import child\nchild.OWN_END_S = 0\nwith child.ending_itself(0.1):\n    pass\n"
        "time.sleep(0.3)\nprint('1')"
    )
    assert in_time.receive(timeout_s=60) == 1
