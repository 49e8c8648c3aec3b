"""Results of the service: JSON objects with attribute access. Energies: lower is better."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


class ServiceError(Exception):
    """The service refused a request, failed, or could not be reached.

    ``status`` is the HTTP status (502 for a broken stream or an unexpected answer, 503 for a failed connection, 504
    after a timeout), ``code`` a stable name such as ``"model_not_found"``, ``param`` the wrong field of the request.
    """

    def __init__(self, message: str, status: int, code: str, param: str | None = None) -> None:
        super().__init__(message, status, code, param)
        self.message, self.status, self.code, self.param = message, status, code, param

    def __str__(self) -> str:
        return self.message


class Result(Mapping[str, Any]):
    """A JSON object of a response: ``result.reason`` is ``result["reason"]``, and nested objects are results.

    It contains every field that the service sends, including those of a newer service. docs/service.md explains them.
    """

    _required: tuple[str, ...] = ()

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self.raw = raw
        for name in self._required:
            raw[name]

    def __getitem__(self, name: str) -> Any:
        return _wrapped(self.raw[name])

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and name in self.raw:
            return self[name]
        raise AttributeError(f"{type(self).__name__} has no {name!r}")

    def __iter__(self) -> Iterator[str]:
        return iter(self.raw)

    def __len__(self) -> int:
        return len(self.raw)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.raw!r})"


def _wrapped(value: Any) -> Any:
    if isinstance(value, list):
        return [_wrapped(each) for each in value]
    return Result(value) if isinstance(value, Mapping) else value


class TriageResult(Result):
    """One decision: ``decision`` (accept or abstain), ``reason``, ``answer``, ``text``, ``confidence``, ``record_id``
    and more. An abstention is a result, not an error."""

    _required = ("decision", "reason", "request_id", "answer")

    @property
    def accepted(self) -> bool:
        return bool(self.raw["decision"] == "accept")


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A progress event of a request."""

    event: str
    """``start``, ``pass``, ``candidate``, ``scored``, ``wave`` or ``decision`` (docs/service.md, Progress)."""
    facts: Mapping[str, Any] = field(default_factory=dict)
