"""Structured logs: one JSON object per line, with the request id and without secrets.

Environment: RAYDEBM_LOG_LEVEL (default ``INFO``). Further keys of a line are passed as
``log.info("message", extra={"facts": {...}})``.
"""

import json
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

from raydebm import tracing
from raydebm.errors import ConfigError, without_credentials

REQUEST_ID: ContextVar[str] = ContextVar("raydebm_request_id", default="")
"""Id of the current request; set by the ``access.Guard`` middleware, and inherited by tasks and threads."""

_SECRETS = (
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=*-]{6,}"), r"\1 ***"),
    (
        re.compile(
            r"(?i)(?<![A-Za-z0-9])((?:api[-_]?)?key|token|secret|password)(\"?'?\s*[=:]\s*\"?'?)[^\s\"'&,;]{6,}"
        ),
        r"\1\2***",
    ),
    (re.compile(r"\b(?:sk|pk|hf|gsk|xai|ghp|AIza)[-_]?[A-Za-z0-9_*-]{16,}"), "***"),
)


def redact(text: str) -> str:
    """The text without anything that looks like a credential. Endpoints quote keys in their error messages."""
    for pattern, instead in _SECRETS:
        text = pattern.sub(instead, text)
    return without_credentials(text)


class JsonLines(logging.Formatter):
    """Format a line as ``{"time", "level", "logger", "message", "request_id", "trace_id", ...facts, "error"}``.
    ``trace_id`` needs tracing, ``error`` an exception."""

    def __init__(self, request_id: Callable[[], str]) -> None:
        super().__init__()
        self._request_id = request_id

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as a line of JSON."""
        facts = getattr(record, "facts", {})
        line: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "request_id": self._request_id(),
        }
        if (trace_id := tracing.trace_id()) is not None:
            line["trace_id"] = trace_id
        line |= facts
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        # Lone surrogates and other unprintables are escaped, so that the line can be written in any encoding.
        return json.dumps({k: redact(v) if isinstance(v, str) else v for k, v in line.items()}, default=str)


def log_level(environ: Mapping[str, str] = os.environ, *, default: str) -> str:
    """Level of log lines from the environment. Raises ConfigError for an unknown one."""
    level = environ.get("RAYDEBM_LOG_LEVEL") or default
    if level.upper() not in logging.getLevelNamesMapping():
        raise ConfigError(f"RAYDEBM_LOG_LEVEL {level!r} is not a level; use DEBUG, INFO, WARNING, ERROR or CRITICAL")
    return level.upper()


def configure_logs(request_id: Callable[[], str] = REQUEST_ID.get, environ: Mapping[str, str] = os.environ) -> None:
    """Send the package's log lines to standard error, with the id of the current request, if any. Does nothing if
    logging is already configured."""
    level = log_level(environ, default="INFO")
    logger = logging.getLogger("raydebm")
    if logger.handlers or logging.getLogger().handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(request_id))
    logger.addHandler(handler)
    logger.setLevel(level)
