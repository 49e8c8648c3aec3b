"""Recipe section ``generators``: who writes candidates."""

from typing import Annotated, Any, Literal

from pydantic import Field

from raydebm.config.section import Section

OPENROUTER_URL = "https://openrouter.ai/api/v1"


class GeneratorBase(Section):
    name: str
    num_samples: int | None = Field(None, ge=0)
    """Overrides generation.num_samples for this generator."""
    max_tokens: int | None = Field(None, ge=1)


class OpenAIGenerator(GeneratorBase):
    """Any OpenAI-compatible endpoint: OpenRouter, a vLLM server, OpenAI itself."""

    kind: Literal["openai"] = "openai"
    model: str
    base_url: str = OPENROUTER_URL
    api_key_env: str | None = "OPENROUTER_API_KEY"
    """None for endpoints without a key."""
    max_in_flight: int = Field(64, ge=1)
    requests_per_minute: float | None = Field(None, gt=0)
    timeout_s: float = Field(120.0, gt=0)
    max_retries: int = Field(6, ge=0)
    usd_per_million_prompt_tokens: float | None = Field(None, ge=0)
    usd_per_million_completion_tokens: float | None = Field(None, ge=0)
    headers: dict[str, str] = {}
    extra_body: dict[str, Any] = {}


class TransformersGenerator(GeneratorBase):
    """A causal LM in this process: a local folder, a hub name, or ``embedded:<name>``."""

    kind: Literal["transformers"] = "transformers"
    model: str
    device: str = "auto"
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    batch_size: int = Field(64, ge=1)


class VllmGenerator(GeneratorBase):
    """vLLM started on the cluster's GPUs through ray.serve.llm, then spoken to like any endpoint."""

    kind: Literal["vllm"] = "vllm"
    model: str
    url: str | None = None
    """A vLLM server that already runs; None: start one."""
    tensor_parallel: int = Field(1, ge=1)
    accelerator_type: str | None = None
    engine_kwargs: dict[str, Any] = {}
    max_in_flight: int = Field(256, ge=1)
    timeout_s: float = Field(600.0, gt=0)


class RecordedGenerator(GeneratorBase):
    """One model of a recorded pool; answers from the file and never generates."""

    kind: Literal["recorded"] = "recorded"
    pool: str
    """A pool file: raydebm's Parquet, or JSON lines with problem_id, model, text."""
    model: str
    """The model's name in the pool."""
    text_fields: tuple[str, ...] = Field(("text",), min_length=1)
    """Of JSON lines: where the answer stands. The first field that has one counts; lists and objects become JSON."""


GeneratorConfig = Annotated[
    OpenAIGenerator | TransformersGenerator | VllmGenerator | RecordedGenerator, Field(discriminator="kind")
]
