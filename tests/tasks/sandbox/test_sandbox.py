"""What a sandbox gives back, when it refuses, and what it says about itself."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

import raydebm.tasks.sandbox
from raydebm.errors import ResourceError
from raydebm.tasks.sandbox import Limits, Sandbox, Session, Status
from raydebm.tasks.sandbox.inside.values import Opaque, decode, encode
from raydebm.tasks.sandbox.isolation import IN_USER_NAMESPACE

PLAIN = st.recursive(
    st.one_of(
        *(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.binary()),
        st.complex_numbers(allow_nan=False),
    ),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=20,
)


def types_of(value):
    inside = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return type(value), [types_of(child) for child in inside]


@given(PLAIN)
def test_plain_data_survives_the_way_out_with_its_types(value):
    decoded = decode(encode(value))
    assert decoded == value
    assert types_of(decoded) == types_of(value)


@pytest.mark.parametrize("value", [object(), iter([]), lambda: 1, [print]])
def test_what_is_no_plain_data_is_equal_to_nothing(value):
    decoded = decode(encode(value))
    assert isinstance(decoded, Opaque)
    assert decoded != decoded


def test_a_value_that_holds_itself_is_no_plain_data():
    value = []
    value.append(value)
    assert isinstance(decode(encode(value)), Opaque)


def test_a_program_that_fails_has_output_exit_code_and_the_end_of_its_errors(session):
    result = session.run("import sys\nprint(input()[::-1])\nsys.stderr.write('hm')\nsys.exit(3)", b"abc\n")
    assert (result.status, result.stdout, result.detail) == (Status.RUNTIME_ERROR, b"cba\n", "exit code 3: hm")


def test_output_is_cut_at_its_limit(session):
    result = session.run("print('x' * 10**6)", limits=Limits(output_bytes=1000, wall_s=60.0))
    assert (result.status, len(result.stdout)) == (Status.OUTPUT_LIMIT, 1000)


def test_the_last_line_of_a_traceback_is_the_detail(session):
    assert session.run("def f(): raise ValueError('hm')\nf()").detail == "exit code 1: ValueError: hm"


def test_a_large_input_reaches_a_program_that_reads_late(session):
    source = "import sys, time\ntime.sleep(0.1)\nprint(len(sys.stdin.read()))"
    assert session.run(source, b"x" * 3_000_000).stdout == b"3000000\n"


def test_sets_of_texts_come_in_the_same_order_every_time(session):
    first, second = (session.run("print({str(n) for n in range(50)})").stdout for _ in range(2))
    assert first == second


def test_a_program_is_loaded_once_and_keeps_its_state_between_calls(session):
    assert session.open_program("seen = []\ndef add(x):\n    seen.append(x)\n    return seen").status is Status.OK
    assert session.call("add", [1]).value == [1]
    assert session.call("add", [(2,)]).value == [1, (2,)]
    assert session.call("other", [1]).detail.startswith("AttributeError")


def test_after_a_call_that_never_ends_the_program_is_gone_and_another_can_be_opened(session, hasty):
    session.open_program("def f():\n    while True: pass")
    assert session.call("f", [], limits=hasty).status is Status.TIMEOUT
    assert session.call("f", []).status is Status.RUNTIME_ERROR
    assert session.open_program("def f(): return 1").status is Status.OK
    assert session.call("f", []).value == 1


def test_threads_each_with_a_sandbox_of_their_own(sandbox):
    def printed(number):
        with sandbox.session() as session:
            return session.run(f"print({number})").stdout

    with ThreadPoolExecutor() as threads:
        assert list(threads.map(printed, range(4))) == [b"0\n", b"1\n", b"2\n", b"3\n"]


@pytest.fixture
def no_bubblewrap(monkeypatch):
    monkeypatch.setattr(raydebm.tasks.sandbox, "isolated_starts", tuple)
    raydebm.tasks.sandbox._best_start.cache_clear()
    yield
    raydebm.tasks.sandbox._best_start.cache_clear()


@pytest.mark.usefixtures("no_bubblewrap")
def test_without_isolation_nothing_runs_and_the_way_out_is_named():
    with pytest.raises(ResourceError, match=r"bwrap\) is not installed.*Install bubblewrap"):
        Sandbox()


def test_a_sandbox_that_does_not_start_says_why(monkeypatch):
    monkeypatch.setattr(
        "raydebm.tasks.sandbox.session.command", lambda *_: ["/bin/sh", "-c", "echo no rights >&2; exit 1"]
    )
    with pytest.raises(ResourceError, match=r"user namespace\) does not start: no rights"):
        Session(IN_USER_NAMESPACE, Limits())
