"""Shutdown of a service started by this process: stop admitting, finish open requests, then end Serve."""

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import ray
import yaml
from ray import serve
from ray.exceptions import RayActorError, RayError
from ray.serve._private.constants import SERVE_CONTROLLER_NAME, SERVE_NAMESPACE
from ray.serve.context import _disconnect, _get_global_client
from ray.serve.exceptions import RayServeException

log = logging.getLogger(__name__)

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
POLL_S = 0.25
ANSWER_TIMEOUT_S = 10.0
"""Longest time for the ingress replicas to report their open requests."""
QUIET_POLLS = 3
"""Idle polls before the service ends: the proxy still sends the last bytes of the last answer."""


STOP_TIMEOUT_S = 60.0
STOP_PAUSE_S = 1.0


def stop_serve(*, limit_s: float = STOP_TIMEOUT_S) -> None:
    """End Serve on this Ray and wait until its controller is gone. Its proxies end first, which cuts off open requests.

    ``serve.shutdown`` waits for a call that is never answered, because the controller ends first, and Ray prints it as
    a failed task. This sends the call and polls the controller's name until it is free.
    """
    client: Any = _get_global_client(raise_if_no_controller_running=False)
    if client is None:
        return
    client.shutdown_cached_handles()
    with suppress(RayActorError):
        ray.get(client._controller.graceful_shutdown.remote(wait=False), timeout=limit_s)
    deadline = time.monotonic() + limit_s
    while _is_running() and time.monotonic() < deadline:
        time.sleep(POLL_S)
    if _is_running():
        log.warning("Serve did not end within %g s; see the controller's log", limit_s)
    forget: Any = _disconnect
    forget()


def _is_running() -> bool:
    try:
        ray.get_actor(SERVE_CONTROLLER_NAME, namespace=SERVE_NAMESPACE)
    except ValueError:
        return False
    return True


@contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Raise KeyboardInterrupt in the main thread on SIGINT and on SIGTERM, whatever the previous handlers.

    A shell script's ``&`` makes a program ignore SIGINT, and Ray's own handler of SIGTERM ends the cluster at once. Has
    no effect outside the main thread, where Python sets no handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _interrupt) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt(signal.Signals(number).name)


def drain(count_open: Callable[[], int], *, limit_s: float) -> int:
    """Wait until no request is open. Returns the number still open at the limit."""
    deadline, num_quiet = time.monotonic() + limit_s, 0
    while True:
        num_open = count_open()
        num_quiet = 0 if num_open else num_quiet + 1
        if num_quiet == QUIET_POLLS or time.monotonic() >= deadline:
            return num_open
        time.sleep(POLL_S)


def close_application(name: str, ingress: str) -> Callable[[], int]:
    """A counter for ``drain``: closes every ingress replica of an application and sums up their open requests."""
    handle = serve.get_deployment_handle(ingress, name)
    known_by = time.monotonic() + ANSWER_TIMEOUT_S

    def count_open() -> int:
        try:
            return sum(handle.broadcast("close").results(timeout_s=ANSWER_TIMEOUT_S))
        except (RayError, RayServeException, TimeoutError) as error:
            # A new handle does not know its replicas yet: an empty list does not mean that there are none.
            if not handle.running_replicas_populated() and time.monotonic() < known_by:
                return 1
            # A replica that is gone has no open requests; one that is too busy to answer has some.
            log.warning("an ingress replica did not report its open requests: %s", error)
            return 1 if isinstance(error, TimeoutError) else 0

    return count_open


def end_serve_run(args: Mapping[str, Any], message: str, *, import_path: str) -> None:
    """End the ``serve run FILE`` commands of this node that wait for an application which cannot be built.

    Serve leaves such a command asleep until Ctrl-C. Each one gets the message on its stderr and SIGHUP, which ends it
    at once: on SIGTERM Ray dumps a stack, and on SIGINT it ends all of Serve with exit code 0. A command that ignores
    SIGHUP (``nohup``) is killed.

    Args:
        args: the application's arguments; commands with others go on.
    """
    if not ray.is_initialized():
        return  # no task of Serve's controller
    untyped: Any = ray
    here = untyped.util.get_node_ip_address()
    for job in untyped._private.state.jobs():
        process = Path("/proc") / str(job["DriverPid"])
        if job["IsDead"] or job["DriverIPAddress"] != here:
            continue
        with suppress(OSError, ValueError, yaml.YAMLError):  # it has ended, is another user's, or runs no such file
            if not _waits_for(process, import_path, args):
                continue
            with suppress(OSError), (process / "fd" / "2").open("a") as stderr:
                stderr.write(f"raydebm: error: {message}\n")
            for number in (signal.SIGHUP, signal.SIGKILL):
                os.kill(int(process.name), number)
                time.sleep(STOP_PAUSE_S)


def _waits_for(process: Path, import_path: str, args: Mapping[str, Any]) -> bool:
    words = (process / "cmdline").read_text().split("\0")
    if "run" not in words or not any(Path(word).name == "serve" for word in words[: words.index("run")]):
        return False
    folder = (process / "cwd").readlink()
    files = [folder / word for word in words[words.index("run") + 1 :] if word.endswith((".yaml", ".yml", ".json"))]
    trees = [yaml.safe_load(file.read_text(encoding="utf-8")) for file in files if file.is_file()]
    return any(
        application.get("import_path") == import_path and application.get("args", {}) == args
        for tree in trees
        for application in tree.get("applications", ())
    )
