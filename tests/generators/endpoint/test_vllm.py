"""vLLM servers. Started ones have a small script as Python that takes vLLM's options and answers as it is told to."""

import asyncio
import importlib.util
import json
import os
import signal
import stat
import subprocess
import sys
import textwrap
import urllib.request

import pytest
from processes import is_running

from raydebm.config import OpenAIGenerator, TransformersGenerator, VllmGenerator
from raydebm.errors import ResourceError
from raydebm.generators import build_generator
from raydebm.generators.endpoint import vllm
from raydebm.generators.endpoint.vllm import endpoint_of, run_groups, running
from raydebm.generators.requests import collect, requests_for
from raydebm.records import Problem, Sampling

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
    return running(VllmGenerator(name="v", model="org/m", python=program, **settings), host="127.0.0.1")


def asked(config):
    with urllib.request.urlopen(config.url) as reply:
        return json.load(reply)


@pytest.mark.parametrize("url", ["http://host:8000/", "http://host:8000/v1"])
def test_server_is_an_endpoint_without_key_or_price(url):
    endpoint = endpoint_of(VllmGenerator(name="v", model="m", url=url))
    assert endpoint.base_url == "http://host:8000/v1"
    assert (endpoint.api_key_env, endpoint.usd_per_million_tokens) == (None, (0.0, 0.0))


def test_servers_to_be_started_come_last_one_by_one():
    started, other = (VllmGenerator(name=name, model="m") for name in "ab")
    endpoint, up = OpenAIGenerator(name="o", model="m"), VllmGenerator(name="u", model="m", url="http://host:8000")
    local = TransformersGenerator(name="l", model="m")
    assert run_groups([started, endpoint, other, up, local]) == [(endpoint, up, local), (started,), (other,)]
    assert run_groups([started]) == [(started,)]


def test_generator_without_a_server_says_how_to_get_one():
    with pytest.raises(ResourceError, match=r"generator 'v': no vLLM server.*`url`"):
        build_generator(VllmGenerator(name="v", model="m"))


def test_a_server_that_runs_is_left_alone():
    config = VllmGenerator(name="v", model="m", url="http://host:8000")
    with running(config, host="127.0.0.1") as reachable:
        assert reachable is config


def test_a_server_is_up_within_the_context_and_gone_after_it(program, eventually):
    with server(program(SERVES)) as config:
        processes = asked(config)["processes"]
        assert all(map(is_running, processes))
    assert eventually(lambda: not any(map(is_running, processes)), seconds=10)


def test_engine_arguments_become_options(program):
    arguments = {"max_model_len": 512, "dtype": "bfloat16", "enforce_eager": True, "enable_prefix_caching": False}
    arguments["speculative_config"] = {"method": "ngram"}
    with server(program(SERVES), engine_kwargs=arguments) as config:
        command = asked(config)["command"]
    assert command[2:6] == ["--model", "org/m", "--served-model-name", "org/m"]
    assert command[10:] == [
        *("--max-model-len", "512", "--dtype", "bfloat16", "--enforce-eager", "--no-enable-prefix-caching"),
        *("--speculative-config", '{"method": "ngram"}'),
    ]


def test_an_error_is_shown_although_much_follows_it(program):
    broken = program("print('RuntimeError: no such kernel' + '\\nleaked' * 50, flush=True); sys.exit(3)")
    with pytest.raises(ResourceError, match=r"its log:\nRuntimeError: no such kernel$"), server(broken):
        pass


def test_a_server_that_never_comes_up_is_ended(program, tmp_path, monkeypatch):
    monkeypatch.setattr(vllm, "STARTUP_S", 2.0)
    slow = program(f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(600)")
    with pytest.raises(ResourceError, match="did not answer within 2 s"), server(slow):
        pass
    assert not is_running(int((tmp_path / "pid").read_text()))


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vllm is installed")
def test_without_vllm_the_error_says_how_to_get_it():
    with pytest.raises(ResourceError, match=r"not installed here.*raydebm\[vllm\].*`python`.*`url`"), server(None):
        pass


def test_a_python_that_is_missing_is_named():
    message = "'no-such-python' is not a program; set `python`"
    with pytest.raises(ResourceError, match=message), server("no-such-python"):
        pass


def test_a_killed_starter_leaves_no_server_behind(program, tmp_path, eventually):
    starter = f"""
        from pathlib import Path
        import os, time
        from raydebm.config import VllmGenerator
        from raydebm.generators.endpoint.vllm import running
        config = VllmGenerator(name="v", model="org/m", python={program(SERVES)!r})
        with running(config, host="127.0.0.1") as config:
            Path({str(tmp_path / "url.part")!r}).write_text(config.url)
            os.rename({str(tmp_path / "url.part")!r}, {str(tmp_path / "url")!r})
            time.sleep(600)
    """
    started = subprocess.Popen([sys.executable, "-c", textwrap.dedent(starter)])
    assert eventually((tmp_path / "url").exists, seconds=60)
    config = VllmGenerator(name="v", model="org/m", url=(tmp_path / "url").read_text())
    server_pid, child_pid = asked(config)["processes"]

    started.kill()
    started.wait()

    assert eventually(lambda: not is_running(server_pid), seconds=10)
    os.kill(child_pid, signal.SIGKILL)  # vLLM itself ends what it started when it gets SIGTERM


def test_a_server_that_dies_meanwhile_is_told(program, caplog):
    dies = program(
        SERVES.replace("def do_GET(self):", "def do_GET(self):\n        if self.path != '/health': os._exit(7)")
    )
    with server(dies) as config:
        with pytest.raises(OSError, match="closed connection"):
            urllib.request.urlopen(config.url)
        with pytest.raises(OSError, match=r"closed|refused|reset"):
            urllib.request.urlopen(config.url)
    assert "the vLLM server of v ended with status 7" in caplog.text


@pytest.mark.vllm
@pytest.mark.skipif("RAYDEBM_VLLM_URL" not in os.environ, reason="set RAYDEBM_VLLM_URL (and RAYDEBM_VLLM_MODEL)")
def test_real_server():
    model = os.environ.get("RAYDEBM_VLLM_MODEL", "default")
    config = VllmGenerator(name="v", model=model, url=os.environ["RAYDEBM_VLLM_URL"])
    requests = requests_for(
        Problem(task="toy", problem_id="p", prompt="?"),
        [{"role": "user", "content": "Zoey says: Oliver is a knave. Who is a knight?"}],
        generator="v",
        sampling=Sampling(max_tokens=32),
        samples=range(4),
        run_seed=0,
    )

    async def ask():
        generator = build_generator(config)
        try:
            return await collect(generator, requests)
        finally:
            await generator.aclose()

    candidates = asyncio.run(ask())
    assert [candidate.error for candidate in candidates] == [None] * 4
    assert all(0 < candidate.completion_tokens <= 32 for candidate in candidates)
    assert len({candidate.text for candidate in candidates}) > 1
