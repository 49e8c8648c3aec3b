"""Who may see stored decisions: records hold what users wrote."""

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
