"""The HTTP deployment: the routes, the service behind them, and its metrics."""

import asyncio
import gc
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fastapi import FastAPI
from pydantic import ValidationError
from ray import serve
from ray.serve.handle import DeploymentHandle
from ray.util.metrics import Counter, Gauge, Histogram
from starlette.types import Receive, Scope, Send

from raydebm import tracing
from raydebm.errors import ConfigError, RaydebmError
from raydebm.records import GC_THRESHOLD
from raydebm.service.access import Intake, load_keyring
from raydebm.service.core import Meter, TriageService
from raydebm.service.logs import configure_logs, redact
from raydebm.service.ray.handles import HandleBackend
from raydebm.service.routes.application import create_app
from raydebm.service.routes.stored import claim_monitor
from raydebm.service.settings import AppArgs, Bundle, load_gateway
from raydebm.service.store.record import DecisionWriter

log = logging.getLogger(__name__)


CHANGEABLE = (
    "policy",
    "checkpoint",
    "policies",
    "further_runs",
    "limits",
    "allowed_hosts",
    "max_deadline_s",
    "max_body_bytes",
)
"""Application arguments that the ingress deployment's ``user_config`` may replace, each as a whole."""
REVISION = "revision"
"""Key whose value is only compared: a new one reloads everything, such as a changed policy file of the same name."""


def changed_args(args: AppArgs, user_config: Mapping[str, Any]) -> AppArgs:
    """The application's arguments under a ``user_config``. Raises ConfigError for a key that cannot be changed while
    the service runs, and for a wrong value."""
    for key in user_config:
        if key not in (*CHANGEABLE, REVISION):
            raise ConfigError(
                f"user_config key {key!r} cannot be changed while the service runs; it can take "
                f"{', '.join((*CHANGEABLE, REVISION))}. Everything else belongs in `args`, which starts new replicas"
            )
    changes = {key: value for key, value in user_config.items() if key != REVISION}
    try:
        return AppArgs.model_validate({**args.model_dump(by_alias=True, exclude_unset=True), **changes})
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"user_config: {where}: {first['msg']}") from error


def check_same_evidence(running: Bundle, wanted: Bundle) -> None:
    """Raise ConfigError if the first run has other baselines as evidence, which replicas load only at their start."""
    if wanted.recipe.evidence != running.recipe.evidence:
        raise ConfigError(
            f"recipe.json of the run (recipe {wanted.recipe.name!r}) counts other baselines as evidence than the "
            "service was started with; deploy with changed `args` to start them"
        )


class Exchangeable:
    """An ASGI application that can be replaced while requests run. Serve reads its ``router`` and its ``routes``, whose
    patterns label Serve's metrics."""

    def __init__(self, app: FastAPI) -> None:
        self.app = app

    def __getattr__(self, name: str) -> Any:
        return getattr(self.app, name)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)


@serve.ingress()
class TriageIngress:
    """Run the triage loop. Each replica is cheap, because it has neither a model nor a provider key."""

    def __init__(
        self,
        bundle: Bundle,
        generator: DeploymentHandle[Any],
        scorer: DeploymentHandle[Any],
        constraint: DeploymentHandle[Any],
        baselines: DeploymentHandle[Any] | None = None,
    ) -> None:
        configure_logs()
        gc.set_threshold(GC_THRESHOLD)
        tracing.start_tracing("ingress")
        self._args, self._meter, self._intake = bundle.args, RayMeter(), Intake()
        records = bundle.records
        self._records = None if records is None or records.folder is None else DecisionWriter(records.folder, records)
        self._backend = HandleBackend(generator, scorer, constraint, baselines, bundle)
        self._keyring = load_keyring(bundle.args.limits.keys_file)
        claims = claim_monitor(bundle, self._meter)
        if claims is not None:
            claims.look()  # before the first answer, because stored outcomes may have suspended a guarantee
        self._service = TriageService(
            bundle, self._backend, meter=self._meter, records=self._records, claims=claims, notices=self._notices
        )
        self._refusal: str | None = None
        self._reloading: asyncio.Task[None] | None = None
        self._app: Exchangeable | None = None
        self._changing = asyncio.Lock()
        self._wanted: Mapping[str, Any] | None = None
        """The newest ``user_config``. None before Serve's first call."""

    def __serve_build_asgi_app__(self) -> Exchangeable:
        """Called by Serve when a replica starts; the routes need this replica's handles."""
        return self._show()

    async def reconfigure(self, user_config: Mapping[str, Any] | None) -> None:
        """Called by Serve at the start and when ``user_config`` changes, without ending the replica.

        At the start the replica waits until the configuration is applied, and an invalid one stops the start with a
        RaydebmError. A later one is applied in the background, because Serve sends a replica no requests until this
        method returns, and ends the replica if it raises.
        """
        wanted = dict(user_config or {})
        before, self._wanted = self._wanted, wanted
        if before is None:
            for run in self._service.bundle.others.values():
                await self._backend.load(run)  # an error here stops the start of the service
            if wanted:
                await self._change()
        elif wanted != before:  # Serve also calls when a replica's rank changes
            if self._reloading is not None:
                self._reloading.cancel()  # only the newest configuration counts
            self._reloading = asyncio.create_task(self._try_change())

    async def _try_change(self) -> None:
        try:
            await self._change()
        except Exception as error:
            # Whatever is wrong with the new settings, the running service goes on.
            is_ours = isinstance(error, RaydebmError)
            words = str(error) if is_ours else type(error).__name__
            self._refusal = f"the last change was refused, and nothing was changed: {words}"
            self._meter.count("reloads", outcome="refused")
            log.error("change refused", exc_info=not is_ours, extra={"facts": {"reason": words}})
        else:
            self._refusal = None
            self._meter.count("reloads", outcome="applied")
            log.info("changed", extra={"facts": {"versions": dict(self._service.bundle.versions)}})

    async def _change(self) -> None:
        """Read, check and load the newest configuration, then switch to it at once. One change at a time."""
        async with self._changing:
            running, args = self._service.bundle, changed_args(self._args, self._wanted or {})
            bundle = await asyncio.to_thread(load_gateway, args)
            check_same_evidence(running, bundle)
            keyring = await asyncio.to_thread(load_keyring, args.limits.keys_file)
            known = {(run.checkpoint_ref, run.source) for run in running.runs}
            for run in bundle.runs:
                if (run.checkpoint_ref, run.source) not in known:
                    await self._backend.load(run)
            backend = self._backend.serving(bundle)
            claims = claim_monitor(bundle, self._meter)
            if claims is not None:
                await asyncio.to_thread(claims.take_over, self._service.claims)
                await asyncio.to_thread(claims.look)
            self._service = replace(self._service, bundle=bundle, backend=backend, claims=claims)
            self._keyring = keyring
            self._show()

    def _show(self) -> Exchangeable:
        """Use the current service's application for every request from now on."""
        app = create_app(self._service, keyring=self._keyring, intake=self._intake)
        if self._app is None:
            self._app = Exchangeable(app)
        self._app.app = app
        return self._app

    async def close(self) -> int:
        """Refuse new requests. Returns the number of open ones (see ``app.drain``)."""
        self._intake.is_closed = True
        return self._intake.num_open

    def _notices(self) -> list[str]:
        of_keys = None if self._keyring is None else self._keyring.refusal
        # ``/health`` needs no key, and storage errors may contain credentials in an address.
        of_claims = [] if self._service.claims is None else self._service.claims.reasons()
        return [redact(reason) for reason in (self._refusal, of_keys, *of_claims) if reason is not None]

    def __del__(self) -> None:
        """Called by Serve after the last request of a replica that is being stopped."""
        records = getattr(self, "_records", None)  # absent when the replica could not start
        if records is not None:
            records.close()
        tracing.flush_tracing()


SECONDS: list[float] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300]
SIGMAS: list[float] = [0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.5, 2, 3, 5]


class RayMeter(Meter):
    """The meter of an ingress replica: Prometheus metrics, which Ray exports on every node's metrics port, prefixed
    ``ray_``. Labels have few values: tasks, generators, routes; never a problem, a key or a request."""

    def __init__(self) -> None:
        def counter(name: str, description: str, *labels: str) -> Counter:
            return Counter(f"raydebm_{name}", description, labels)

        self._counters = {
            "requests": counter("requests", "HTTP requests", "route", "status"),
            "decisions": counter("decisions", "Decisions, by author of the answer", "task", "decision", "generator"),
            "failures": counter("failures", "Triages without a decision", "task", "status", "code"),
            "candidates": counter("candidates", "Candidates sampled", "generator", "outcome"),
            "tokens": counter("tokens", "Tokens of candidates", "generator", "kind"),
            "cost_usd": counter("cost_usd", "Cost of candidates in US dollars", "generator"),
            "outcomes": counter("outcomes", "Reported outcomes", "task", "decision", "outcome"),
            "reloads": counter("reloads", "Changes of policy, adapters or limits", "outcome"),
        }
        self._histograms = {
            "request_seconds": Histogram("raydebm_request_seconds", "Duration of HTTP requests", SECONDS, ("route",)),
            "sigma": Histogram("raydebm_sigma", "Sigma of the selected candidate", SIGMAS, ("task",)),
        }
        self._gauges = {
            "requests_waiting": Gauge("raydebm_requests_waiting", "Requests waiting in an ingress replica"),
            "claim_suspended": Gauge("raydebm_claim_suspended", "1 if a guarantee is suspended", ("policy",)),
        }

    def count(self, name: str, amount: float = 1.0, **labels: str) -> None:
        self._counters[name].inc(amount, labels)

    def observe(self, name: str, value: float, **labels: str) -> None:
        self._histograms[name].observe(value, labels)

    def set(self, name: str, value: float, **labels: str) -> None:
        self._gauges[name].set(value, labels)
