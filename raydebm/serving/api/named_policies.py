"""Settings of one request: its body, over the named policy of its model id, over the calibrated policy."""

from typing import Any

from pydantic import ValidationError

from raydebm.errors import ServiceError
from raydebm.serving.api.schema.request_bodies import ChatOverrides
from raydebm.serving.settings.bundle import Bundle
from raydebm.serving.settings.overrides import Overrides


def merged_overrides(bundle: Bundle, body: Overrides | None, *, policy: str | None = None) -> ChatOverrides:
    """Return one set of overrides.

    Args:
        bundle: the named policies.
        body: the request's body; fields that are no overrides, such as a problem, are left aside.
        policy: policy of the model id.

    Raises:
        ServiceError: 400 for values that contradict each other, 404 for an unknown policy.
    """
    fields = set(ChatOverrides.model_fields)
    # Typed clients send what they leave out as null; it must not lift the limits of a named policy.
    from_body = (
        {} if body is None else body.model_dump(by_alias=True, exclude_unset=True, exclude_none=True, include=fields)
    )
    name = from_body.get("policy") or policy
    settings: dict[str, Any] = {}
    if name is not None:
        if name not in bundle.profiles:
            known = ", ".join(bundle.profiles) or "none"
            raise ServiceError(f"policy {name!r} is not served here; served: {known}", 404, "unknown_policy", "policy")
        profile = bundle.profiles[name].model_dump(by_alias=True, exclude_none=True, exclude_unset=True)
        settings = {**profile, "policy": name}
    try:
        return ChatOverrides.model_validate({**settings, **from_body})
    except ValidationError as error:
        fault = error.errors(include_input=False)[0]
        field = str(fault["loc"][0]) if fault["loc"] else ""
        raise ServiceError(f"{field}: {fault['msg']}", 400, "bad_override", field or None) from error
