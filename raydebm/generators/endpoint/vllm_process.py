"""A vLLM server as a process of this machine, up while a context lasts and the process that started it lives.

Does not know: Ray, requests.
"""

import contextlib
import importlib.util
import json
import logging
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from raydebm.config import VllmGenerator
from raydebm.errors import ResourceError

_LOG = logging.getLogger(__name__)

_LOG_LINES = 8
"""Lines of the server's log that an error shows."""
_ERROR = re.compile(r"\b\w*(Error|Exception)\b: ")
_DYING_S = 1.0
"""A server whose last connection broke may take so long to be gone."""
_STOP_S = 20.0
"""Time between SIGTERM and SIGKILL."""
_END_S = 40.0
"""How long the supervisor may take to end the server and all that it started."""
_SUPERVISOR = str(Path(__file__).with_name("supervisor.py"))
"""Ends the server when this process is killed: what stays behind would hold the machine's memory or its GPU."""


@contextlib.contextmanager
def vllm_process(config: VllmGenerator, *, source: str, host: str) -> Iterator[str]:
    """Start a server for one generator and yield its URL once it answers; end it, and all its processes, at last.

    Args:
        source: the model's folder or hub name.
        host: the address at which the server is to be reached.

    Raises:
        ResourceError: vLLM is missing, or the server ends or does not answer within ``startup_timeout_s``.
    """
    port = free_port(host)
    command = [_python(config), "-m", "vllm.entrypoints.openai.api_server", "--model", source]
    command += ["--served-model-name", config.model, "--host", host, "--port", str(port)]
    with tempfile.NamedTemporaryFile(mode="w+b", prefix="raydebm-vllm-", suffix=".log") as log:
        server = subprocess.Popen(  # the operator's own program
            [sys.executable, "-I", _SUPERVISOR, str(_STOP_S), *command, *_flags(config)],
            stdin=subprocess.PIPE,  # held open, never written to
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            url = f"http://{host}:{port}"
            _wait_until_up(server, url, config, log)
            yield url
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = server.wait(_DYING_S)
                _LOG.warning(
                    "the vLLM server of %s ended with status %d; its log:\n%s", config.name, status, _tail(log)
                )
        finally:
            _end(server)


def check_process(config: VllmGenerator) -> None:
    """Check what can be known before the server is started.

    Raises:
        ResourceError: there is no vLLM for it, or more than one replica is asked for.
    """
    _python(config)
    if config.replicas > 1:
        raise ResourceError(
            f"generator {config.name!r} asks for {config.replicas} replicas, and a server that is a process of this "
            "machine has it to itself; set `replicas` to 1, or `url` and `replica_urls` to servers that run elsewhere"
        )


def _python(config: VllmGenerator) -> str:
    if config.python is None and importlib.util.find_spec("vllm") is not None:
        return sys.executable
    if config.python is not None and (path := shutil.which(config.python)) is not None:
        return path
    if config.python is not None:
        raise ResourceError(
            f"generator {config.name!r}: {config.python!r} is no program; set `python` to the Python of an environment "
            "that has vLLM, or `url` to a server that already runs"
        )
    raise ResourceError(
        f"generator {config.name!r}: there is no GPU for a vLLM server, and vLLM is not installed here; add GPU nodes "
        "and the extra raydebm[vllm], or install vLLM's CPU build in an environment and name its `python`, or set the "
        "generator's `url` to a server that already runs"
    )


def engine_arguments(config: VllmGenerator) -> dict[str, Any]:
    """Arguments of vLLM's engine, by its names. Those in ``engine_kwargs`` win over the recipe's settings."""
    sizes = {"tensor_parallel_size": config.tensor_parallel, "pipeline_parallel_size": config.pipeline_parallel}
    return {**sizes, **config.engine_kwargs}


def _flags(config: VllmGenerator) -> list[str]:
    """vLLM's engine arguments as options: ``max_model_len: 512`` becomes ``--max-model-len 512``."""
    flags = list[str]()
    for name, value in engine_arguments(config).items():
        option = name.replace("_", "-")
        if isinstance(value, bool):
            flags.append(f"--{option}" if value else f"--no-{option}")
        else:
            flags += [f"--{option}", value if isinstance(value, str) else json.dumps(value)]
    return flags


def _wait_until_up(server: subprocess.Popen[bytes], url: str, config: VllmGenerator, log: IO[bytes]) -> None:
    deadline = time.monotonic() + config.startup_timeout_s
    while not _answers(url):
        if (status := server.poll()) is not None:
            raise ResourceError(
                f"generator {config.name!r}: the vLLM server of {config.model!r} ended with status {status} before it "
                f"answered; its log:\n{_tail(log)}"
            )
        if time.monotonic() >= deadline:
            raise ResourceError(
                f"generator {config.name!r}: the vLLM server of {config.model!r} did not answer within "
                f"{config.startup_timeout_s:g} s (startup_timeout_s); its log:\n{_tail(log)}"
            )
        time.sleep(0.2)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as reply:  # http, to our own child
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _tail(log: IO[bytes]) -> str:
    """What the log says of errors, which much may follow; without any its end."""
    lines = Path(log.name).read_text(encoding="utf-8", errors="replace").splitlines()
    errors = [line for line in lines if _ERROR.search(line)]
    return "\n".join((errors or lines)[-_LOG_LINES:])


def _end(server: subprocess.Popen[bytes]) -> None:
    """End the supervisor, which ends the server and what it started, such as its engine's process."""
    server.terminate()
    try:
        server.wait(_END_S)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
    assert server.stdin is not None
    server.stdin.close()


def free_port(host: str) -> int:
    """A port of this machine that nothing listens on now; another process may take it at any time."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
