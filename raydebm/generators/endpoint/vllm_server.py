"""A vLLM server is an OpenAI-compatible endpoint without a key. Starting one is up to ``distributed.vllm``."""

from raydebm.config import OpenAIGenerator, VllmGenerator
from raydebm.errors import ResourceError


def endpoint_of(config: VllmGenerator) -> OpenAIGenerator:
    """The endpoint behind a ``vllm`` generator whose ``url`` is known.

    Raises:
        ResourceError: no server is known.
    """
    if config.url is None:
        raise ResourceError(
            f"generator {config.name!r}: no vLLM server is running for {config.model!r}; set the generator's `url`, "
            "or run it in a job on a cluster with GPUs and the extra raydebm[vllm], which starts one"
        )
    return OpenAIGenerator(
        name=config.name,
        num_samples=config.num_samples,
        max_tokens=config.max_tokens,
        logprobs=config.logprobs,
        model=config.model,
        base_url=_base_url(config.url),
        replica_urls=tuple(map(_base_url, config.replica_urls)),
        api_key_env=None,
        max_in_flight=config.max_in_flight,
        timeout_s=config.timeout_s,
        usd_per_million_prompt_tokens=0.0,
        usd_per_million_completion_tokens=0.0,
    )


def _base_url(url: str) -> str:
    url = url.rstrip("/")
    return url if url.endswith("/v1") else f"{url}/v1"
