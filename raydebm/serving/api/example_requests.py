"""Example requests of every route, for the OpenAPI document. They are of the Knights & Knaves task; tests send each."""

from typing import Any

from raydebm.serving.api.model_ids import model_ids
from raydebm.serving.settings.bundle import Bundle

PUZZLE = (
    "A very special island is inhabited only by knights and knaves. Knights always tell the truth, and knaves always "
    'lie. You meet 2 inhabitants: Ava, and Zoey. Ava said, "Zoey is a knave if and only if Zoey is a knight." '
    '"Ava is a knave," Zoey mentioned. So who is a knight and who is a knave?'
)
RIGHT = '{"Ava": "knave", "Zoey": "knight"}'
WRONG = '{"Ava": "knave", "Zoey": "knave"}'

MODEL = "raydebm/<task>"
"""Stands for the first served model, which the document names."""

EXAMPLES: dict[str, dict[str, Any]] = {
    "chat": {
        "plain": {"model": MODEL, "messages": [{"role": "user", "content": PUZZLE}]},
        "with settings": {
            "model": MODEL,
            "messages": [
                {"role": "system", "content": "Explain your answer in one sentence."},
                {"role": "user", "content": [{"type": "text", "text": PUZZLE}]},
            ],
            "max_completion_tokens": 512,
            "seed": 3,
            "n": 2,
            "raydebm": {"num_samples": 2, "on_abstain": "best", "return_candidates": True},
        },
        "stream": {
            "model": MODEL,
            "messages": [{"role": "user", "content": PUZZLE}],
            "stream": True,
            "stream_options": {"include_usage": True},
        },
    },
    "responses": {
        "text": {"model": MODEL, "input": PUZZLE},
        "conversation": {
            "model": MODEL,
            "instructions": "Explain your answer in one sentence.",
            "input": [{"role": "user", "content": [{"type": "input_text", "text": PUZZLE}]}],
            "max_output_tokens": 512,
        },
    },
    "triage": {
        "text": {"problem": PUZZLE},
        "with settings": {"problem": PUZZLE, "theta_sigma": 0.4, "max_passes": 1, "return_candidates": True},
        "with limits": {"problem": PUZZLE, "deadline_ms": 60_000, "budget": 8},
        "as events": {"problem": PUZZLE, "stream": True, "return_candidates": True},
    },
    "score": {
        "candidates of a problem": {"problem": PUZZLE, "candidates": [RIGHT, WRONG]},
        "vLLM's shape": {"text_1": PUZZLE, "text_2": [RIGHT, WRONG]},
    },
    "rerank": {
        "texts": {"model": MODEL, "query": PUZZLE, "documents": [WRONG, RIGHT], "top_n": 1},
        "objects": {"query": PUZZLE, "documents": [{"text": WRONG}, {"text": RIGHT}], "return_documents": True},
    },
    "rewards": {"two responses": {"query": [PUZZLE + RIGHT, PUZZLE + WRONG], "prompts": [PUZZLE, PUZZLE]}},
}


def examples_of(route: str, bundle: Bundle) -> dict[str, Any]:
    """The examples of a route's body, for its ``openapi_extra``."""
    model = {"model": model_ids(bundle)[0]}
    return named_examples({name: body | model if "model" in body else body for name, body in EXAMPLES[route].items()})


def named_examples(named: dict[str, Any]) -> dict[str, Any]:
    """Examples of a route's body by what they show, for its ``openapi_extra``."""
    examples = {name.replace(" ", "-"): {"summary": name, "value": value} for name, value in named.items()}
    return {"requestBody": {"content": {"application/json": {"examples": examples}}}}
