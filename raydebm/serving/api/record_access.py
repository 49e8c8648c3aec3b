"""Who may see stored decisions, for records hold what users wrote, and who may report outcomes by which name."""

from collections.abc import Collection
from typing import Any

from fastapi import Request

from raydebm.errors import ServiceError
from raydebm.serving.api.schema.chat_bodies import ErrorBody

NOT_ALLOWED: dict[int | str, dict[str, Any]] = {
    403: {"model": ErrorBody, "description": "The key may not see stored decisions."},
}


def may_see_decisions(request: Request) -> None:
    """Raises ServiceError 403 for a key that may not see stored decisions."""
    if not getattr(request.state, "may_see_decisions", True):
        raise ServiceError("this key may not see stored decisions (`decisions: false`)", 403, "not_allowed")


def check_reporter(request: Request, name: str, watched: Collection[str]) -> None:
    """Check that the caller may report by this name. Without keys, and with those of the environment, anyone may.

    Args:
        request: of the report.
        name: what it gives as ``by``.
        watched: names whose reports are bet on (``watch.by``).

    Raises:
        ServiceError: 403, the name is watched or reserved, and the key does not list it.
    """
    own: Collection[str] | None = getattr(request.state, "reports_as", None)
    if own is None or name in own:
        return
    if name in watched or name in request.state.reserved_names:
        message = (
            f"outcomes are reported by {name!r} under keys only that list this name in `reports_as` of the keys file; "
            "use such a key, or another name"
        )
        raise ServiceError(message, 403, "not_allowed", "by")
