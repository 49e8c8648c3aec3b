"""The body of a chat completion, as OpenAI-compatible endpoints take it."""

import json
from typing import Any

from raydebm.config import OpenAIGenerator
from raydebm.records import GenerationRequest


def chat_body(config: OpenAIGenerator, request: GenerationRequest, *, logprobs: bool) -> dict[str, Any]:
    """Render a request for an endpoint, with log-probabilities where they are wanted."""
    sampling = request.sampling
    body: dict[str, Any] = {
        "model": config.model,
        "messages": [dict(message) for message in request.messages],
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_tokens": sampling.max_tokens,
        "seed": request.seed,
    }
    if sampling.stop:
        body["stop"] = list(sampling.stop)
    if logprobs:
        body["logprobs"] = True
    if request.response_format is not None:
        body["response_format"] = json.loads(request.response_format)
    return body | config.extra_body
