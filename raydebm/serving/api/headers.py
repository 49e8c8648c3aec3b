"""Which settings a request runs under: header > body > the named policy of its model id > the calibrated default.

Headers are ``X-RayDEBM-<Field>`` with the fields of ``ChatOverrides``, such as ``X-RayDEBM-Theta-Sigma: 0.5`` and
``X-RayDEBM-Generators: a, b``. They serve clients that cannot send extra fields, and gateways that must have the last
word.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from raydebm.errors import ServiceError
from raydebm.serving.api.schema.request_bodies import ChatOverrides
from raydebm.serving.settings.bundle import Bundle
from raydebm.serving.settings.overrides import HEADER_PREFIX, Overrides

HEADERS: dict[str, str] = {
    HEADER_PREFIX + (field.alias or name).replace("_", "-"): field.alias or name
    for name, field in ChatOverrides.model_fields.items()
}
"""Header name in lower case, and the field that it sets."""
_LISTS = ("generators", "waves")


def merged_overrides(
    bundle: Bundle, body: Overrides | None, *, headers: Mapping[str, str], policy: str | None = None
) -> ChatOverrides:
    """One set of overrides.

    Args:
        bundle: knows the named policies.
        body: what the request's body says; fields that are no overrides (such as a problem) are left aside.
        headers: all of the request's headers.
        policy: of the model id.

    Raises:
        ServiceError: 400 for a header that is unknown or has a bad value, 404 for an unknown policy.
    """
    from_headers = _from_headers(headers)
    fields = set(ChatOverrides.model_fields)
    # Typed clients send what they leave out as null; it must not lift the limits of a named policy.
    from_body = (
        {} if body is None else body.model_dump(by_alias=True, exclude_unset=True, exclude_none=True, include=fields)
    )
    name = from_headers.get("policy") or from_body.get("policy") or policy
    try:
        return ChatOverrides.model_validate({**_profile(bundle, name), **from_body, **from_headers})
    except ValidationError as error:
        fault = error.errors(include_input=False)[0]
        field = str(fault["loc"][0]) if fault["loc"] else ""
        param = next((header for header, sets in HEADERS.items() if sets == field and field in from_headers), field)
        raise ServiceError(f"{param}: {fault['msg']}", 400, "bad_override", param or None) from error


def _from_headers(headers: Mapping[str, str]) -> dict[str, Any]:
    overrides: dict[str, Any] = {}
    for header, value in headers.items():
        name = header.lower()
        if not name.startswith(HEADER_PREFIX):
            continue
        if name not in HEADERS:
            message = f"header {header!r} is not known; known: {', '.join(HEADERS)}"
            raise ServiceError(message, 400, "bad_override", header)
        field = HEADERS[name]
        overrides[field] = [part.strip() for part in value.split(",") if part.strip()] if field in _LISTS else value
    return overrides


def _profile(bundle: Bundle, name: str | None) -> dict[str, Any]:
    if name is None:
        return {}
    if name not in bundle.profiles:
        known = ", ".join(bundle.profiles) or "none"
        raise ServiceError(f"policy {name!r} is not served here; served: {known}", 404, "unknown_policy", "policy")
    return {**bundle.profiles[name].model_dump(by_alias=True, exclude_none=True, exclude_unset=True), "policy": name}
