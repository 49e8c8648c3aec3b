"""What ``raydebm serve`` makes of its options."""

import os
import re

import pytest
import typer

from raydebm.cli.commands import command_of
from raydebm.errors import ResourceError
from raydebm.service.ray.app import check_port
from raydebm.service.settings import RunArgs


@pytest.fixture
def serve(monkeypatch):
    """Serves nothing; returns the arguments that the application would get."""
    from raydebm.service.ray import app

    def run(*options):
        given = []
        monkeypatch.setattr(app, "serve_until_interrupted", lambda args, *, host, port: given.append(args))
        command_of("serve").main(options, standalone_mode=False)
        [args] = given
        return args

    return run


def test_further_runs_are_served_behind_the_same_address(serve):
    args = serve("--run-dir", "/runs/a", "--further-run", "/runs/b", "--further-run", "/runs/c")
    assert (args.run_dir, args.further_runs) == ("/runs/a", (RunArgs(run_dir="/runs/b"), RunArgs(run_dir="/runs/c")))


def test_log_lines_of_replicas_are_printed_as_they_are_unless_the_user_says_otherwise(serve, monkeypatch):
    monkeypatch.setenv("RAY_DEDUP_LOGS", "1")
    monkeypatch.setenv("RAY_DISABLE_WORKER_LOG_PREFIX", "")  # so that it is put back after the test
    monkeypatch.delenv("RAY_DISABLE_WORKER_LOG_PREFIX")
    serve()
    assert (os.environ["RAY_DISABLE_WORKER_LOG_PREFIX"], os.environ["RAY_DEDUP_LOGS"]) == ("1", "1")


@pytest.mark.parametrize("verb", ["serve", "demo"])
@pytest.mark.parametrize("port", ["99999", "-1"])
def test_a_port_that_cannot_be_is_refused(verb, port):
    with pytest.raises(typer.BadParameter, match=r"65535|equal to 0"):
        command_of(verb).main(["--port", port], standalone_mode=False)


@pytest.mark.parametrize("host", ["nope.invalid", "a..b", "192.0.2.1"])
def test_a_host_that_is_not_of_this_machine_is_named_with_its_option(host):
    with pytest.raises(ResourceError, match=rf"{re.escape(host)}:8000 cannot be used .*\(`--host`\)"):
        check_port(host, 8000)
