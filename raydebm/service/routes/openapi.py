"""Additions to the OpenAPI document: example requests, error bodies, the key.

The examples are requests of the Knights & Knaves task; tests send every one of them.
"""

from functools import cache
from typing import Any

from fastapi import FastAPI

from raydebm.service.core import ROLES
from raydebm.service.routes.bodies import TEXT_PARTS, ErrorBody, model_ids
from raydebm.service.settings import Bundle

_MEANINGS = {
    400: "The request is wrong; `param` names the field.",
    401: "The API key is missing or wrong.",
    404: "Unknown model, task or policy.",
    413: "The body or a text in it is too long.",
    422: "The text is not a problem of the task, or the decision is to abstain and `on_abstain` is `error`.",
    429: "The key is above its limits; `Retry-After` says when to come back.",
    500: "A fault of the service; the log has it under the request id.",
    503: "A part is unavailable, or too many requests are open; `Retry-After` says when to come back.",
    504: "No candidate was sampled, checked and scored within `deadline_ms`, or within the service's own deadline.",
}
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorBody, "description": meaning} for status, meaning in _MEANINGS.items()
}


def describe(app: FastAPI, bundle: Bundle, *, keyed: bool) -> None:
    """Complete the document that FastAPI generates."""
    generated = app.openapi
    app.openapi = cache(lambda: _completed(generated(), bundle, keyed=keyed))  # type: ignore[method-assign]


def _completed(document: dict[str, Any], bundle: Bundle, *, keyed: bool) -> dict[str, Any]:
    document["paths"]["/v1/models/{model_id}"]["get"]["parameters"][0]["schema"]["enum"] = model_ids(bundle)
    schemas = document["components"]["schemas"]
    schemas["ChatMessage"]["properties"]["role"]["enum"] = list(ROLES)
    schemas["ContentPart"]["properties"]["type"]["enum"] = list(TEXT_PARTS)
    for operations in document["paths"].values():
        for operation in operations.values():
            # FastAPI's own form of a validation error is never sent: every error is in OpenAI's.
            operation["responses"].setdefault("422", {"description": _MEANINGS[422]})
            operation["responses"]["422"]["content"] = {
                "application/json": {"schema": {"$ref": "#/components/schemas/ErrorBody"}}
            }
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    if keyed:
        document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"key": []}]
        document["paths"]["/health"]["get"]["security"] = []
    return document


# ---- example requests ------------------------------------------------------------------------------------------------

PUZZLE = (
    "A very special island is inhabited only by knights and knaves. Knights always tell the truth, and knaves always "
    'lie. You meet 2 inhabitants: Ava, and Zoey. Ava said, "Zoey is a knave if and only if Zoey is a knight." '
    '"Ava is a knave," Zoey mentioned. So who is a knight and who is a knave?'
)
RIGHT = '{"Ava": "knave", "Zoey": "knight"}'
WRONG = '{"Ava": "knave", "Zoey": "knave"}'

MODEL = "raydebm/<task>"
"""Placeholder for the first served model, whose name the document shows."""

EXAMPLES: dict[str, dict[str, Any]] = {
    "chat": {
        "model": MODEL,
        "messages": [
            {"role": "system", "content": "Explain your answer in one sentence."},
            {"role": "user", "content": [{"type": "text", "text": PUZZLE}]},
        ],
        "raydebm": {"num_samples": 2, "on_abstain": "best", "return_candidates": True},
    },
    "responses": {"model": MODEL, "input": PUZZLE, "max_output_tokens": 512},
    "triage": {
        "problem": PUZZLE,
        "theta_sigma": 0.4,
        "max_passes": 1,
        "deadline_ms": 60_000,
        "return_candidates": True,
    },
    "score": {"problem": PUZZLE, "candidates": [RIGHT, WRONG]},
    "rerank": {"model": MODEL, "query": PUZZLE, "documents": [{"text": WRONG}, {"text": RIGHT}], "top_n": 1},
    "rewards": {"query": [PUZZLE + RIGHT, PUZZLE + WRONG], "prompts": [PUZZLE, PUZZLE]},
}


def examples_of(route: str, bundle: Bundle) -> dict[str, Any]:
    """Example of a route's body, for its ``openapi_extra``."""
    body = EXAMPLES[route]
    return named_examples({route: body | {"model": model_ids(bundle)[0]} if "model" in body else body})


def named_examples(named: dict[str, Any]) -> dict[str, Any]:
    """Examples of a route's body by title, for its ``openapi_extra``."""
    examples = {name.replace(" ", "-"): {"summary": name, "value": value} for name, value in named.items()}
    return {"requestBody": {"content": {"application/json": {"examples": examples}}}}
