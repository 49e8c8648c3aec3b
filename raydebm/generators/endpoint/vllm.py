"""vLLM: an existing server, or a server process on this machine for one model after another.

A server is an OpenAI-compatible endpoint without a key. Independent of: Ray, requests.
"""

import contextlib
import importlib.util
import json
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TypeGuard

from raydebm.config import GeneratorConfig, OpenAIGenerator, VllmGenerator
from raydebm.embedded import PREFIX, embedded_path
from raydebm.errors import ResourceError

MAX_IN_FLIGHT, TIMEOUT_S = 256, 600.0
"""Maximum number of open requests to a server, and the timeout of each. The server queues requests."""
STARTUP_S = 900.0
"""Maximum seconds from the start of a server to its first answer."""
_LOG = logging.getLogger(__name__)
_LOG_LINES = 8
"""Maximum number of the server's log lines in an error."""
_ERROR = re.compile(r"\b\w*(Error|Exception)\b: ")
_DYING_S = 1.0
"""Seconds for a dying server to exit, so that its status can be logged."""
_STOP_S = 20.0
"""Maximum seconds from SIGTERM to SIGKILL."""
_WITH_PARENT = "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 15); os.execvp(sys.argv[1], sys.argv[1:])"
"""Program that replaces itself with a command, which receives SIGTERM (15) when its parent dies, even by SIGKILL
(PR_SET_PDEATHSIG). Otherwise a server that outlives its parent would keep the machine's memory or its GPU."""


def endpoint_of(config: VllmGenerator) -> OpenAIGenerator:
    """Endpoint of a ``vllm`` generator with a known ``url``.

    Raises:
        ResourceError: no server is known.
    """
    if config.url is None:
        raise ResourceError(
            f"generator {config.name!r}: no vLLM server is running for {config.model!r}; set the generator's `url`, "
            "or sample with `raydebm run`, which starts one if vLLM is installed"
        )
    return OpenAIGenerator(
        name=config.name,
        num_samples=config.num_samples,
        max_tokens=config.max_tokens,
        logprobs=config.logprobs,
        model=config.model,
        base_url=_base_url(config.url),
        api_key_env=None,
        max_in_flight=MAX_IN_FLIGHT,
        timeout_s=TIMEOUT_S,
        usd_per_million_tokens=(0.0, 0.0),
    )


def _base_url(url: str) -> str:
    url = url.rstrip("/")
    return url if url.endswith("/v1") else f"{url}/v1"


def run_groups(configs: Sequence[GeneratorConfig]) -> list[tuple[GeneratorConfig, ...]]:
    """Generators in groups that run one after another.

    A server to be started needs the whole machine, so each is a group of its own, after all others.
    """
    others = tuple(config for config in configs if not _is_to_start(config))
    return [*([others] if others else []), *((config,) for config in configs if _is_to_start(config))]


def _is_to_start(config: GeneratorConfig) -> TypeGuard[VllmGenerator]:
    return isinstance(config, VllmGenerator) and config.url is None


def check_server(config: GeneratorConfig) -> None:
    """Check before a server is started that vLLM is installed. Raises ResourceError if it is not."""
    if _is_to_start(config):
        _python(config)


@contextlib.contextmanager
def running(config: GeneratorConfig, *, host: str) -> Iterator[GeneratorConfig]:
    """Start the server of a generator that needs one, and yield the generator with its ``url`` once the server answers.

    The server and all its processes end with the context. Other generators are yielded unchanged.

    Args:
        config: any generator.
        host: address of the server.

    Raises:
        ResourceError: vLLM is missing, or the server exits or does not answer within ``STARTUP_S``.
    """
    if not _is_to_start(config):
        yield config
        return
    port = free_port(host)
    is_embedded = config.model.startswith(PREFIX)
    source = str(embedded_path(config.model.removeprefix(PREFIX))) if is_embedded else config.model
    command = [_python(config), "-m", "vllm.entrypoints.openai.api_server", "--model", source]
    command += ["--served-model-name", config.model, "--host", host, "--port", str(port)]
    with tempfile.NamedTemporaryFile(mode="w+b", prefix="raydebm-vllm-", suffix=".log") as log:
        server = subprocess.Popen(  # safe: the command is from the operator's recipe
            [sys.executable, "-I", "-c", _WITH_PARENT, *command, *_flags(config)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            url = f"http://{host}:{port}"
            _wait_until_up(server, url, config, log)
            yield config.model_copy(update={"url": url})
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = server.wait(_DYING_S)
                _LOG.warning(
                    "the vLLM server of %s ended with status %d; its log:\n%s", config.name, status, _tail(log)
                )
        finally:
            _end(server)


def _python(config: VllmGenerator) -> str:
    if config.python is not None:
        if (path := shutil.which(config.python)) is not None:
            return path
        raise ResourceError(
            f"generator {config.name!r}: {config.python!r} is not a program; set `python` to a Python with "
            "vLLM, or `url` to a server that already runs"
        )
    if importlib.util.find_spec("vllm") is not None:
        return sys.executable
    raise ResourceError(
        f"generator {config.name!r}: vLLM is not installed here; install the extra raydebm[vllm], or vLLM in a "
        "separate environment and set `python` to its Python, or set the generator's `url` to a running server"
    )


def _flags(config: VllmGenerator) -> list[str]:
    """vLLM's engine arguments as options: ``max_model_len: 512`` becomes ``--max-model-len 512``."""
    flags = list[str]()
    for name, value in config.engine_kwargs.items():
        option = name.replace("_", "-")
        if isinstance(value, bool):
            flags.append(f"--{option}" if value else f"--no-{option}")
        else:
            flags += [f"--{option}", value if isinstance(value, str) else json.dumps(value)]
    return flags


def _wait_until_up(server: subprocess.Popen[bytes], url: str, config: VllmGenerator, log: IO[bytes]) -> None:
    deadline = time.monotonic() + STARTUP_S
    while not _answers(url):
        status = server.poll()
        if status is not None or time.monotonic() >= deadline:
            what = f"did not answer within {STARTUP_S:g} s"
            if status is not None:
                what = f"ended with status {status} before it answered"
            raise ResourceError(
                f"generator {config.name!r}: the vLLM server of {config.model!r} {what}; its log:\n{_tail(log)}"
            )
        time.sleep(0.2)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as reply:  # safe: the URL is of a child process
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _tail(log: IO[bytes]) -> str:
    """Last lines with errors, which may be far from the log's end; without errors, the log's last lines."""
    lines = Path(log.name).read_text(encoding="utf-8", errors="replace").splitlines()
    errors = [line for line in lines if _ERROR.search(line)]
    return "\n".join((errors or lines)[-_LOG_LINES:])


def _end(server: subprocess.Popen[bytes]) -> None:
    """End the server's session, including processes that it started, such as its engine."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(server.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(_STOP_S)


def free_port(host: str) -> int:
    """A free port of this machine. Another process may take it at any time."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
