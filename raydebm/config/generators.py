"""Recipe section ``generators``: the sources of candidates."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from raydebm.config.section import MAX_SAMPLES, PathName, SampleCount, Section
from raydebm.errors import without_credentials

OPENROUTER_URL = "https://openrouter.ai/api/v1"


def _distinct(urls: tuple[str, ...]) -> tuple[str, ...]:
    if repeated := [url for url in dict.fromkeys(urls) if urls.count(url) > 1]:
        raise ValueError(f"{without_credentials(repeated[0])!r} is listed twice; list each server once")
    return urls


Usd = Annotated[float, Field(ge=0)]
ServerUrls = Annotated[tuple[str, ...], AfterValidator(_distinct)]


class GeneratorBase(Section):
    model_config = ConfigDict(hide_input_in_errors=True)  # addresses may have passwords

    name: PathName
    """Name in reports and records."""
    num_samples: int | None = Field(None, ge=0, le=MAX_SAMPLES)
    """Overrides generation.num_samples for this generator."""


class LiveGenerator(GeneratorBase):
    max_tokens: int | None = Field(None, ge=1)
    """Overrides generation.max_tokens for this generator."""


class ServedGenerator(LiveGenerator):
    logprobs: bool = False
    """Store the mean log-probability of each answer's tokens, and that of the least likely tenth of them. Both are
    evidence (docs/decision.md). A request that an endpoint refuses because of them is repeated without them."""


class OpenAIGenerator(ServedGenerator):
    """Any OpenAI-compatible endpoint: OpenRouter, a vLLM server, OpenAI itself."""

    kind: Literal["openai"] = "openai"
    """Kind of generator: an endpoint."""
    model: str
    """The model's name at the endpoint."""
    base_url: str = OPENROUTER_URL
    """Base URL, including ``/v1``."""
    replica_urls: ServerUrls = ()
    """Base URLs of further servers of the same model, with the same key. The least busy server gets the request; if
    that server cannot be reached or answers 502 or 503, another one gets the request at once."""
    api_key_env: str | None = "OPENROUTER_API_KEY"
    """Environment variable that contains the key; null for endpoints without a key."""
    usd_per_million_tokens: tuple[Usd, Usd] | None = None
    """Prices of prompt and completion tokens, for estimates and budgets where the endpoint reports no cost."""
    headers: dict[str, str] = {}
    """Extra HTTP headers of every request."""
    extra_body: dict[str, Any] = {}
    """Extra fields of every request's body."""
    max_in_flight: int = Field(64, ge=1)
    """Maximum number of open requests of one process (``generation.num_processes``) or replica of the service."""
    requests_per_minute: float | None = Field(None, gt=0)
    """Maximum number of requests per minute by one process, spread evenly. Default: no limit."""
    timeout_s: float = Field(120.0, gt=0)
    """Timeout of one attempt. An attempt that times out may be billed anyway, so it is retried at most once, and not at
    all under a limit in US dollars, unless its prices are 0."""
    max_retries: int = Field(6, ge=0)
    """Retries after the first attempt, with growing pauses; permanent errors are not retried. Where timeouts are not
    retried, neither are replies that may be billed: broken off, not JSON, or HTTP 502 or 504."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """The base URLs of all servers."""
        return (self.base_url, *self.replica_urls)

    @model_validator(mode="after")
    def _has_no_password(self) -> "OpenAIGenerator":
        if any(url != without_credentials(url) for url in self.addresses):
            raise ValueError(
                f"generator {self.name!r} has a user in its address, which errors would show; name the environment "
                "variable of a key in api_key_env, or let a proxy add the password"
            )
        return self


class TransformersGenerator(LiveGenerator):
    """A causal LM that runs locally: on the first visible GPU in bfloat16, else on the CPU."""

    kind: Literal["transformers"] = "transformers"
    """Kind of generator: a local model."""
    model: str
    """Folder, hub name, or ``embedded:<name>``."""
    batch_size: int = Field(64, ge=1)
    """Number of prompts in a batch."""


class VllmGenerator(ServedGenerator):
    """A running vLLM server, or a server started on the machine that runs the command.

    A started server uses the GPUs of that machine (``engine_kwargs: {tensor_parallel_size: 2}`` for several); without a
    GPU, it needs vLLM's CPU build. Started servers run one after the other, after all other generators. A server gets
    at most 256 requests at once, each with a timeout of 10 minutes."""

    kind: Literal["vllm"] = "vllm"
    """Kind of generator: a vLLM server."""
    model: str
    """Hub name or folder."""
    url: str | None = None
    """URL of a running vLLM server. Default: one is started."""
    engine_kwargs: dict[str, Any] = {}
    """Arguments of vLLM's engine."""
    python: str | None = None
    """Python of the environment whose vLLM is started. Default: this environment."""


class RecordedGenerator(GeneratorBase):
    """One model of a recorded pool; it replies from the file and generates nothing."""

    kind: Literal["recorded"] = "recorded"
    """Kind of generator: a recorded pool."""
    pool: str
    """A pool: raydebm's Parquet, a folder that holds ``candidates.parquet``, or JSON lines with problem_id, model, text
    (docs/recorded_pools.md)."""
    model: str
    """The model's name in the pool."""
    text_fields: tuple[str, ...] = Field(("text",), min_length=1)
    """For JSON lines: fields that may hold the answer. The first one with a value counts; lists and objects become
    JSON."""


GeneratorConfig = Annotated[
    OpenAIGenerator | TransformersGenerator | VllmGenerator | RecordedGenerator,
    Field(discriminator="kind"),
]


def _with_server(config: GeneratorBase) -> GeneratorBase:
    if isinstance(config, VllmGenerator) and config.url is None:
        raise ValueError(
            f"{config.name!r} needs the `url` of a running vLLM server, because one is started only for the recipe's "
            "generators"
        )
    return config


AskedGenerator = Annotated[
    OpenAIGenerator | TransformersGenerator | VllmGenerator, Field(discriminator="kind"), AfterValidator(_with_server)
]
"""A model in addition to the recipe's generators, such as a judge."""


class GenerationConfig(Section):
    """Paper: 4 generators x 8 candidates, T=0.7, top-p 0.95, one request per candidate."""

    num_samples: SampleCount = 8
    """Candidates per generator and problem."""
    temperature: float = Field(0.7, ge=0)
    """Sampling temperature; the greedy sample uses 0."""
    top_p: float = Field(0.95, gt=0, le=1)
    """Probability mass of nucleus sampling."""
    max_tokens: int | None = Field(None, ge=1)
    """Maximum tokens per candidate. Default: the task's."""
    greedy: bool = True
    """Add one sample at temperature 0 per generator, the greedy baseline. Recorded pools are not asked for one."""
    max_usd: float | None = Field(None, gt=0)
    """Stop sending requests when the run has cost this much: candidates, later passes, judges and rewriting together. A
    failed request counts with its billed cost, one that timed out with its maximum cost."""
    num_in_flight: int = Field(256, ge=1)
    """Maximum number of open requests of one process, over all endpoints."""
    num_processes: int = Field(1, ge=1)
    """Maximum number of processes for all endpoints together, and as many again for all local models together."""
    max_failed_frac: float = Field(0.5, gt=0, le=1)
    """Stop the run when a larger share of its requests failed; completed requests are kept."""
    waves: tuple[SampleCount, ...] | None = Field(None, min_length=1)
    """Sizes of the waves in which each problem is sampled, over all generators; the last size repeats. Sampling ends
    when the remaining candidates could hardly change the vote (docs/decision.md). Default: all candidates at once."""
