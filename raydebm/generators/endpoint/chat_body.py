"""The body of a chat completion, as OpenAI-compatible endpoints take it."""

import json
from collections.abc import Sequence
from typing import Any

from raydebm.config import EndpointGenerator
from raydebm.generators.endpoint.prompt_cache import hinted
from raydebm.records import GenerationRequest


def chat_body(config: EndpointGenerator, requests: Sequence[GenerationRequest], *, logprobs: bool) -> dict[str, Any]:
    """What is sent for requests that differ in seed and sample number alone; several become ``n``.

    Args:
        config: the endpoint's.
        requests: at least one.
        logprobs: whether log-probabilities are asked for.
    """
    request = requests[0]
    sampling = request.sampling
    body: dict[str, Any] = {
        "model": config.model,
        "messages": [dict(message) for message in request.messages],
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_tokens": sampling.max_tokens,
    }
    body |= {"seed": request.seed} if len(requests) == 1 else {"n": len(requests)}
    if sampling.stop:
        body["stop"] = list(sampling.stop)
    if logprobs:
        body["logprobs"] = True
    if request.response_format is not None:
        body["response_format"] = json.loads(request.response_format)
    return hinted(body, config) | config.extra_body
