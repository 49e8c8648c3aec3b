"""Model ids: ``raydebm/<task>`` and ``raydebm/<task>@<policy>``."""

from typing import Any

from raydebm.errors import ServiceError
from raydebm.serving.settings.bundle import Bundle

MODEL_PREFIX = "raydebm/"


def model_ids(bundle: Bundle) -> list[str]:
    """Every id that ``GET /v1/models`` lists: the calibrated policy first, then the named ones."""
    names = [MODEL_PREFIX + name for name in bundle.tasks]
    return names + [f"{name}@{policy}" for policy in bundle.profiles for name in names]


def parse_model(bundle: Bundle, model: str) -> tuple[str, str | None]:
    """Task and named policy of a model id.

    Raises:
        ServiceError: 404 for an id that is not served.
    """
    if model not in model_ids(bundle):
        names = ", ".join(model_ids(bundle))
        raise ServiceError(f"model {model!r} is not served here; served: {names}", 404, "model_not_found", "model")
    task_name, _, policy = model.removeprefix(MODEL_PREFIX).partition("@")
    return task_name, policy or None


def model_body(bundle: Bundle, model: str) -> dict[str, Any]:
    """``GET /v1/models/{id}``. Raises ServiceError 404."""
    task_name, policy = parse_model(bundle, model)
    return {
        "id": model,
        "object": "model",
        "created": 0,
        "owned_by": "raydebm",
        "raydebm": {"tasks": [task_name], "policy": policy, "versions": dict(bundle.of(task_name).versions)},
    }


def models_body(bundle: Bundle) -> dict[str, Any]:
    """``GET /v1/models``."""
    return {"object": "list", "data": [model_body(bundle, name) for name in model_ids(bundle)]}
