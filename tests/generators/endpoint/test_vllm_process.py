"""Servers as processes. Their Python is a small script that takes vLLM's options and answers as it is told to."""

import importlib.util
import json
import stat
import subprocess
import sys
import textwrap
import urllib.request

import pytest
from processes import is_running

from raydebm.config import VllmGenerator
from raydebm.errors import ResourceError
from raydebm.generators.endpoint.vllm_process import vllm_process

HEAD = f"""\
#!{sys.executable}
import http.server, json, os, subprocess, sys, time
options = dict(zip(sys.argv[3::2], sys.argv[4::2]))
"""
SERVES = """
child = subprocess.Popen(["sleep", "600"])
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"command": sys.argv[1:], "processes": [os.getpid(), child.pid]}).encode())
http.server.HTTPServer((options["--host"], int(options["--port"])), Answer).serve_forever()
"""


@pytest.fixture
def program(tmp_path):
    def write(body):
        path = tmp_path / "vllm"
        path.write_text(HEAD + textwrap.dedent(body), encoding="utf-8")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    return write


def server(program, **settings):
    config = VllmGenerator(name="v", model="org/m", python=program, **settings)
    return vllm_process(config, source="/models/m", host="127.0.0.1")


def asked(url):
    with urllib.request.urlopen(url) as reply:
        return json.load(reply)


def test_a_server_is_up_within_the_context_and_gone_after_it(program, eventually):
    with server(program(SERVES)) as url:
        processes = asked(url)["processes"]
        assert all(map(is_running, processes))
    assert eventually(lambda: not any(map(is_running, processes)), seconds=10)


def test_engine_arguments_become_options(program):
    arguments = {"max_model_len": 512, "dtype": "bfloat16", "enforce_eager": True, "enable_prefix_caching": False}
    arguments["speculative_config"] = {"method": "ngram"}
    with server(program(SERVES), engine_kwargs=arguments, tensor_parallel=2) as url:
        command = asked(url)["command"]
    assert command[2:6] == ["--model", "/models/m", "--served-model-name", "org/m"]
    assert command[10:] == [
        *("--tensor-parallel-size", "2", "--pipeline-parallel-size", "1", "--max-model-len", "512"),
        *("--dtype", "bfloat16", "--enforce-eager", "--no-enable-prefix-caching"),
        *("--speculative-config", '{"method": "ngram"}'),
    ]


def test_an_error_is_shown_although_much_follows_it(program):
    broken = program("print('RuntimeError: no such kernel' + '\\nleaked' * 50, flush=True); sys.exit(3)")
    with pytest.raises(ResourceError, match=r"its log:\nRuntimeError: no such kernel$"), server(broken):
        pass


def test_a_server_that_ends_early_shows_its_last_lines(program):
    broken = program("print('no memory for the weights', flush=True); sys.exit(3)")
    with (
        pytest.raises(ResourceError, match=r"'v'.*'org/m' ended with status 3.*\n.*no memory for the weights"),
        server(broken),
    ):
        pass


def test_a_server_that_never_comes_up_is_ended(program, tmp_path):
    slow = program(f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(600)")
    with (
        pytest.raises(ResourceError, match=r"did not answer within 2 s \(startup_timeout_s\)"),
        server(slow, startup_timeout_s=2),
    ):
        pass
    assert not is_running(int((tmp_path / "pid").read_text()))


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vllm is installed")
def test_without_vllm_the_error_says_how_to_get_it():
    with pytest.raises(ResourceError, match=r"no GPU.*vLLM is not installed here.*`python`.*`url`"), server(None):
        pass


def test_a_python_that_is_missing_is_named():
    with pytest.raises(ResourceError, match="'no-such-python' is no program; set `python`"), server("no-such-python"):
        pass


def test_a_killed_starter_leaves_no_server_behind(program, tmp_path, eventually):
    starter = f"""
        from pathlib import Path
        import os, time
        from raydebm.config import VllmGenerator
        from raydebm.generators.endpoint.vllm_process import vllm_process
        config = VllmGenerator(name="v", model="org/m", python={program(SERVES)!r})
        with vllm_process(config, source="/models/m", host="127.0.0.1") as url:
            Path({str(tmp_path / "url.part")!r}).write_text(url)
            os.rename({str(tmp_path / "url.part")!r}, {str(tmp_path / "url")!r})
            time.sleep(600)
    """
    started = subprocess.Popen([sys.executable, "-c", textwrap.dedent(starter)])
    assert eventually((tmp_path / "url").exists, seconds=60)
    processes = asked((tmp_path / "url").read_text())["processes"]

    started.kill()
    started.wait()

    assert eventually(lambda: not any(map(is_running, processes)), seconds=10)


def test_an_error_within_the_context_ends_the_server_too(program):
    processes = []

    def fail_within():
        with server(program(SERVES)) as url:
            processes.extend(asked(url)["processes"])
            raise KeyError

    with pytest.raises(KeyError):
        fail_within()
    assert not is_running(processes[0])


def test_a_server_that_dies_meanwhile_is_told(program, caplog):
    dies = program(
        SERVES.replace("def do_GET(self):", "def do_GET(self):\n        if self.path != '/health': os._exit(7)")
    )
    with server(dies) as url:
        with pytest.raises(OSError, match="closed connection"):
            urllib.request.urlopen(url)
        with pytest.raises(OSError, match=r"closed|refused|reset"):
            urllib.request.urlopen(url)
    assert "the vLLM server of v ended with status 7" in caplog.text
