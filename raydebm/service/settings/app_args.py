"""Arguments of the application in ``serve_config.yaml``. Unknown keys are refused."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from raydebm.config.section import problems_in
from raydebm.errors import ConfigError
from raydebm.run.addresses import run_address
from raydebm.service.spending import Ceilings
from raydebm.service.store.writer import RecordsArgs

REQUEST_TIMEOUT_S = 300.0
ANSWER_S = 60.0
"""Extra time for queueing, added to the longest deadline. A deadline starts only after Serve's queue."""


def request_timeout_s(max_deadline_s: float | None) -> float:
    """Seconds until Serve cuts a request off."""
    return max(REQUEST_TIMEOUT_S, (max_deadline_s or 0.0) + ANSWER_S)


class LimitArgs(BaseModel):
    """Limits of one ingress replica. With several replicas, each has these limits for itself."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    keys_file: str | None = None
    """File with hashes of API keys (see ``access.keys``) that every ingress replica can read. Default: the keys in
    RAYDEBM_API_KEYS, else none are required."""
    max_running: int = Field(96, ge=1)
    """Maximum number of requests processed at once. A quarter as many can wait; further ones are answered with 503.
    Both together stay below the ingress deployment's ``max_ongoing_requests``, so that health checks get through."""
    request: Ceilings = Field(default_factory=Ceilings)
    """Maximum spending of one request, in place of the policy's ``max_usd`` and ``budget``."""
    per_day: Ceilings = Field(default_factory=Ceilings)
    """Maximum spending of all clients together per UTC day."""
    key_per_day: Ceilings = Field(default_factory=Ceilings)
    """Maximum spending of each key per UTC day. Overridden by a key's own ``per_day`` in the keys file."""
    ledger_file: str | None = None
    """SQLite file with the spending of each day, on a disk that all ingress replicas share. Default: ledger.sqlite of
    the run directory."""


class RunArgs(BaseModel):
    """Run that the service uses."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    run_dir: Annotated[str, AfterValidator(run_address)]
    """Run directory with recipe.json, scorer/ and calibration/policy.json: a local path that every replica's node can
    read, or a filesystem URL. ``demo``: the finished run in this package."""
    generators: tuple[str, ...] | None = Field(None, min_length=1)
    """Names of the generators to serve. Default: all of the recipe."""
    policy: str | None = None
    """Policy file, or ``"recipe"`` for the recipe's own thresholds. Default: calibration/policy.json of the run."""
    checkpoint: str | None = None
    """Folder or filesystem URL of another ensemble. Default: scorer/ of the run."""


class AppArgs(RunArgs):
    """The ``args`` of the application in ``serve_config.yaml``. Unknown keys are refused."""

    further_runs: tuple[RunArgs, ...] = ()
    """Runs of other tasks to serve at the same address, each as the model ``raydebm/<task>``."""
    device: str = "auto"
    """Device of the scorer: ``auto``, ``cpu``, ``cuda``."""
    max_deadline_s: float | None = Field(240.0, ge=1, allow_inf_nan=False)
    """Longest deadline in seconds from a request's arrival, and the deadline of requests without their own. It must be
    below Serve's ``request_timeout_s``, which ends a request without an answer. Default: only a request's own deadline
    applies."""
    max_body_bytes: int = Field(1_000_000, ge=1_000)
    allowed_hosts: tuple[str, ...] = ()
    """Host names that a service without keys accepts, in addition to localhost and IP addresses (see
    ``access.guard``)."""
    policies: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Named policies: settings of a request by name. ``strict: {theta_sigma: 0.3}`` gives the models
    ``raydebm/<task>@strict``, of every task."""
    limits: LimitArgs = Field(default_factory=LimitArgs)
    records: RecordsArgs | None = Field(default_factory=RecordsArgs)
    """Storage of decisions. Default: they are not stored. With the packaged run, ``folder`` is required."""
    auditors: tuple[str, ...] | None = Field(None, min_length=1)
    """Reporters whose outcomes test the promise, such as an audit of random requests. Default: all."""

    def of_run(self, run: RunArgs) -> "AppArgs":
        """The arguments for another run alone."""
        own = {name: getattr(run, name) for name in RunArgs.model_fields}
        return self.model_copy(update={**own, "further_runs": ()})


def parse_args(given: Mapping[str, Any], *, where: str = "the application's args") -> AppArgs:
    """Raise ConfigError for unknown keys and wrong values, all in one message."""
    try:
        return AppArgs.model_validate(given)
    except ValidationError as error:
        problems = "; ".join(problems_in(error, root=where))
        raise ConfigError(f"{where} do not define a service: {problems}") from error
