"""Build the Serve application of a run directory, and start it.

``serve run serve_config.yaml`` calls ``build``; the ``raydebm serve`` command and the demo call ``start_local``.
"""

import errno
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import ray
import yaml
from ray import serve
from ray.exceptions import GetTimeoutError, RayActorError, RayError
from ray.serve._private.constants import SERVE_CONTROLLER_NAME, SERVE_NAMESPACE
from ray.serve.config import HTTPOptions
from ray.serve.context import _disconnect, _get_global_client
from ray.serve.exceptions import RayServeException
from ray.serve.schema import ApplicationStatus, DeploymentStatusOverview, LoggingConfig, ProxyStatus, ServeStatus

from raydebm.errors import RaydebmError, ResourceError, in_one_line, last_line
from raydebm.generators import check_keys
from raydebm.pipeline.ray.session import start_here
from raydebm.run.addresses import is_packaged, local_copy
from raydebm.run.directory import RunDir
from raydebm.service.ray.deployments import (
    BaselineDeployment,
    ConstraintDeployment,
    GeneratorDeployment,
    ScorerDeployment,
)
from raydebm.service.ray.ingress import TriageIngress
from raydebm.service.ray.proxy import PROXY_MIDDLEWARES, PROXY_SETTING
from raydebm.service.settings import AppArgs, load_gateway, parse_args, request_timeout_s

log = logging.getLogger(__name__)

APP_NAME = "raydebm"
INGRESS = TriageIngress.__name__
MAX_QUEUED = 256
PROXY_TIMEOUT_S = 120.0
"""Longest start of Serve's HTTP proxy once the application runs: normally seconds, more after a replacement."""

T = TypeVar("T")


def build(args: dict[str, Any]) -> serve.Application:
    """Build the application for Serve, which calls this in a task of its controller.

    Raises:
        RayServeException: the arguments or a run directory are wrong. ``serve run`` of the file has been ended. With
            any other exception Serve would print the traceback three times, and ``serve run FILE`` would hang.
    """
    try:
        return application_of(parse_args(args))
    except RaydebmError as error:
        message = in_one_line(str(error), limit=2000)
        end_serve_run(args, message, import_path=f"{__name__}:{build.__name__}")
        raise RayServeException(message) from None


def end_serve_run(args: Mapping[str, Any], message: str, *, import_path: str) -> None:
    """End the ``serve run FILE`` commands of this node that wait for an application which cannot be built.

    Serve leaves such a command asleep until Ctrl-C. Each one gets the message on its stderr and SIGHUP, which ends it
    at once: on SIGTERM Ray dumps a stack, and on SIGINT it ends all of Serve with exit code 0. A command that ignores
    SIGHUP (``nohup``) is killed. Commands with other arguments of the application go on.
    """
    if not ray.is_initialized():
        return  # not in a task of Serve's controller
    untyped: Any = ray
    here = untyped.util.get_node_ip_address()
    for job in untyped._private.state.jobs():
        process = Path("/proc") / str(job["DriverPid"])
        if job["IsDead"] or job["DriverIPAddress"] != here:
            continue
        with suppress(OSError, ValueError, yaml.YAMLError):  # it has ended or is another user's, or a file is not YAML
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


def application_of(args: AppArgs) -> serve.Application:
    """Make the application graph, with defaults for one machine that ``serve_config.yaml`` overrides by deployment.
    Raises RaydebmError if a run directory is incomplete or wrong, or adapters cannot be read."""
    from raydebm.scorer.checkpoint import read_ensemble

    bundle = load_gateway(args)
    for run in bundle.runs:
        with local_copy(run.checkpoint) as folder:
            read_ensemble(folder)  # every file except the backbone's
    evidence = bundle.recipe.evidence
    # The type of the run's energies, on which its policy was fitted; with another checkpoint, what the device prefers.
    scoring_type = "auto" if args.checkpoint is not None else RunDir(args.run_dir).scoring_type("auto")
    # The ingress mostly waits, and its health checks queue behind its work. With a user_config, even an empty one,
    # Serve calls its ``reconfigure`` at the start.
    ingress = _deployment(TriageIngress, max_ongoing_requests=512).options(user_config={})
    application: serve.Application = ingress.bind(
        bundle,
        _deployment(GeneratorDeployment, max_ongoing_requests=256).bind(
            bundle.generator_configs(), args.run_dir, bundle.source
        ),
        _deployment(ScorerDeployment, max_ongoing_requests=256).bind(bundle.checkpoint, args.device, scoring_type),
        _deployment(ConstraintDeployment).bind(),
        _deployment(BaselineDeployment).bind(evidence, args.run_dir) if evidence else None,
    )
    return application


def _deployment(kind: type, *, max_ongoing_requests: int = 64) -> Any:
    """A deployment named after its class. It takes a tenth of a CPU, so that the whole graph fits on one core."""
    return serve.deployment(
        name=kind.__name__,
        max_ongoing_requests=max_ongoing_requests,
        max_queued_requests=MAX_QUEUED,  # without a bound, memory grows until the node fails
        ray_actor_options={"num_cpus": 0.1},
    )(kind)


def check_port(host: str, port: int) -> None:
    """Raise ResourceError if the port is in use, or the host is not an address of this machine."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except (OSError, UnicodeError) as error:
            number, why = getattr(error, "errno", None), getattr(error, "strerror", None) or error
            if number == errno.EADDRINUSE:
                words = "is in use; choose another port (`--port`), or end the program that listens there"
            elif isinstance(error, socket.gaierror | UnicodeError) or number == errno.EADDRNOTAVAIL:
                words = f"cannot be used ({why}); give an address of this machine (`--host`)"
            else:
                words = f"cannot be used ({why}); choose another port (`--port`)"
            raise ResourceError(f"{host}:{port} {words}") from error


def start_local(args: AppArgs, *, host: str = "127.0.0.1", port: int = 8000, name: str = APP_NAME) -> str:
    """Start the application on this process's Ray. Returns its base URL once it answers. Raises ResourceError if the
    port is in use, or a deployment could not start; the message quotes the deployment."""
    application = application_of(args)
    check_port(host, port)
    if serve.status().proxies:  # its host and port are fixed; ours would be ignored
        raise ResourceError(
            "Serve is already running on this Ray; end it with `serve shutdown`, or add the application with "
            "`serve deploy serve_config.yaml`"
        )
    http = HTTPOptions(host=host, port=port, request_timeout_s=request_timeout_s(args.max_deadline_s))
    plain = LoggingConfig(enable_access_log=False)  # the ingress writes a line for each request
    try:
        started(lambda: serve.start(http_options=http, logging_config=plain))
        serve.run(application, name=name, route_prefix="/", logging_config=plain)
        deadline = time.monotonic() + PROXY_TIMEOUT_S
        while not is_listening(serve.status()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"Serve's HTTP proxy is not ready after {PROXY_TIMEOUT_S:g} s")
            time.sleep(0.2)
    except (RuntimeError, RayActorError, TimeoutError) as error:
        reason = "" if (known := serve.status().applications.get(name)) is None else failures(known.deployments)
        reason = reason or f"{last_line(str(error))}; if this machine is busy, try again"
        stop_serve()  # or the port would stay taken by a service without an application
        raise ResourceError(f"the service could not start: {reason}") from error
    except KeyboardInterrupt as stop:
        _finish(stop, args, name)  # the ingress answers before ``serve.run`` returns
        raise
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def started(start: Callable[[], T]) -> T:
    """Call a function that starts Serve, and retry it once while Serve's HTTP proxies are still starting.

    On a busy machine a proxy may miss its time to report ready. Serve replaces it, but the call waits for the first one
    and raises. The controller exists all the same, and a second call connects to it.
    """
    try:
        return start()
    except (RayActorError, GetTimeoutError):
        return start()


def is_listening(status: ServeStatus) -> bool:
    """True if every HTTP proxy accepts requests."""
    return bool(status.proxies) and all(proxy == ProxyStatus.HEALTHY for proxy in status.proxies.values())


def failures(deployments: Mapping[str, DeploymentStatusOverview]) -> str:
    """Errors of the failed deployments' replicas."""
    return "; ".join(
        f"{name}: {last_line(overview.message)}"
        for name, overview in deployments.items()
        if overview.status.value in ("DEPLOY_FAILED", "UNHEALTHY") and overview.message.strip()
    )


def serve_until_interrupted(args: AppArgs, *, host: str = "127.0.0.1", port: int = 8000) -> None:
    """Start the application and serve until SIGINT or SIGTERM, or until it stops running.

    On a signal it stops admitting, finishes open requests, and shuts down; a second signal ends it at once. Uses this
    process's Ray, else RAY_ADDRESS, else starts a small one. Raises RaydebmError if it cannot start (see
    ``start_local``), and when it stops by itself.
    """
    check_port(host, port)  # before Ray starts, because that takes seconds
    if not ray.is_initialized():
        for run in load_gateway(args).runs:
            check_keys(run.generator_configs())  # replicas of our own Ray see this environment
        _connect()
    with interrupted_by_signals(), suppress(KeyboardInterrupt):
        url = start_local(args, host=host, port=port)
        if is_packaged(args.run_dir) and args.records is not None and args.records.folder is None:
            log.info("the run that ships with raydebm is served; to store decisions, set `records.folder`")
        log.info("raydebm answers at %s", url)
        try:
            while True:
                time.sleep(2)
                status = serve.status().applications.get(APP_NAME)
                if status is None or status.status in {ApplicationStatus.DEPLOY_FAILED, ApplicationStatus.NOT_STARTED}:
                    stop_serve()
                    reason = (status and failures(status.deployments)) or "it was deleted"
                    raise ResourceError(f"the service at {url} has stopped: {reason}")
        except KeyboardInterrupt as stop:
            _finish(stop, args, APP_NAME)


def _finish(stop: KeyboardInterrupt, args: AppArgs, name: str) -> None:
    """Finish open requests, if the ingress has started, and end Serve."""
    try:
        application = serve.status().applications.get(name)
        ingress = None if application is None else application.deployments.get(INGRESS)
        if ingress is None or not any(state == "RUNNING" for state in ingress.replica_states):
            return
        log.warning("%s: new requests are refused, running ones finish; a second signal ends the service at once", stop)
        if num_open := drain(close_application(name, INGRESS), limit_s=request_timeout_s(args.max_deadline_s)):
            log.warning("%d requests are cut off", num_open)
    finally:
        stop_serve()


def _connect() -> None:
    """Connect to RAY_ADDRESS, else start Ray here. With fewer logical CPUs than the graph and Serve's own actors need,
    Serve hangs silently, so Ray gets at least 4."""
    if os.environ.get("RAY_ADDRESS"):
        try:
            ray.init()
        except (ConnectionError, RuntimeError) as error:
            raise ResourceError(
                f"no Ray answers at RAY_ADDRESS={os.environ['RAY_ADDRESS']!r}: {error}; start it, or unset RAY_ADDRESS"
            ) from error
        return
    num_cpus = max(4, os.cpu_count() or 1)
    os.environ.setdefault(PROXY_SETTING, PROXY_MIDDLEWARES)  # read by the process of Serve's proxy, our grandchild
    start_here(
        num_cpus=num_cpus,
        logging_level=logging.WARNING,
        remedy="Try again where the machine is busy, or start Ray yourself (`ray start --head`) and set RAY_ADDRESS",
    )


# ---- shutdown -------------------------------------------------------------------------------------------------------

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
    before = {number: signal.signal(number, _interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
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
