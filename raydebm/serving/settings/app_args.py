"""Arguments of the application in ``serve_config.yaml``. Unknown keys are refused."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from raydebm.config.section import problems_in
from raydebm.decisions.writer import RecordsArgs
from raydebm.errors import ConfigError
from raydebm.run.addresses import run_address
from raydebm.serving.spending.ledger import Ceilings

REQUEST_TIMEOUT_S = 300.0
ANSWER_S = 60.0
"""Extra time for queueing, added to the longest deadline. A deadline starts only after Serve's queue."""


def request_timeout_s(max_deadline_s: float | None) -> float:
    """Seconds until Serve cuts a request off."""
    return max(REQUEST_TIMEOUT_S, (max_deadline_s or 0.0) + ANSWER_S)


class LimitArgs(BaseModel):
    """How much one ingress replica takes on. With several replicas each has these limits for itself."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    keys_file: str | None = None
    """API keys as hashes (see ``access.keys``), a file that every ingress replica can read; None: RAYDEBM_API_KEYS,
    else no keys are asked for."""
    max_running: int = Field(96, ge=1)
    """Requests that are worked on at once. A quarter as many wait, and the next one is answered 503. Both together stay
    below the ingress deployment's ``max_ongoing_requests``, so that health checks get through."""
    request: Ceilings = Field(default_factory=Ceilings)
    """What one request may spend at most, in place of the policy's ``max_usd`` and ``budget``."""
    per_day: Ceilings = Field(default_factory=Ceilings)
    """What everybody together may spend on one UTC day."""
    key_per_day: Ceilings = Field(default_factory=Ceilings)
    """What each key may spend on one UTC day; a key's own ``per_day`` in the file goes before it."""
    ledger_file: str | None = None
    """SQLite file in which the days' spending is counted, on a disk of the ingress replicas' node. Default:
    ledger.sqlite of the run directory."""


class RunArgs(BaseModel):
    """One run that the service answers from."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    run_dir: Annotated[str, AfterValidator(run_address)]
    """Holds recipe.json, scorer/ and calibration/policy.json: a local path that every replica's node can read, or a
    filesystem URL. ``demo``: the finished run in this package."""
    generators: tuple[str, ...] | None = Field(None, min_length=1)
    """A subset of the recipe's generators; None: all of them."""
    policy: str | None = None
    """None: calibration/policy.json of the run; ``"recipe"``: the recipe's own thresholds; else a policy file."""
    checkpoint: str | None = None
    """None: scorer/ of the run; else another ensemble's folder or filesystem URL."""


class AppArgs(RunArgs):
    """The ``args`` of the application in ``serve_config.yaml``. Unknown keys are refused."""

    further_runs: tuple[RunArgs, ...] = ()
    """Runs of other tasks behind the same address: ``raydebm/<task>`` each."""
    device: str = "auto"
    """Device of the scorer: ``auto``, ``cpu``, ``cuda``."""
    max_deadline_s: float | None = Field(240.0, ge=1, allow_inf_nan=False)
    """Seconds from its arrival within which every request is decided: the deadline of one that gives none, and the
    longest that one may give. It stays below Serve's ``request_timeout_s``, which cuts a request off without an answer.
    None: no request has a deadline but its own."""
    max_body_bytes: int = Field(1_000_000, ge=1_000)
    allowed_hosts: tuple[str, ...] = ()
    """Names under which a service without keys answers, next to localhost and addresses (see ``access.hosts``)."""
    policies: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Named policies: settings of a request by name. ``strict: {theta_sigma: 0.3}`` gives the models
    ``raydebm/<task>@strict``, of every task."""
    limits: LimitArgs = Field(default_factory=LimitArgs)
    records: RecordsArgs | None = Field(default_factory=RecordsArgs)
    """How decisions are stored; None: they are not. Those of the packaged run need a ``folder``."""
    auditors: tuple[str, ...] | None = Field(None, min_length=1)
    """Reporters whose outcomes are held against the promise, such as an audit of random requests; None: all."""

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
        raise ConfigError(f"{where} make no service: {problems}") from error
