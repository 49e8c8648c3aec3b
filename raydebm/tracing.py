"""Trace spans of requests through OpenTelemetry: enabled by an OTLP endpoint, at no cost otherwise.

In:   OTEL_EXPORTER_OTLP_ENDPOINT (or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT) and OpenTelemetry's other variables.
Out:  spans over OTLP/HTTP; the W3C ``traceparent`` header for the next service.
Independent of: Ray, HTTP servers, requests.

A span contains names, counts and numbers. It never contains texts of problems and candidates, keys, or messages of
exceptions; of an exception, only the type is recorded.
"""

import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span as OtelSpan
    from opentelemetry.trace import Tracer

__all__ = [
    "Attributes",
    "Span",
    "flush_tracing",
    "is_tracing",
    "outgoing",
    "past_span",
    "span",
    "start_tracing",
    "trace_id",
]

log = logging.getLogger(__name__)

Kind = Literal["internal", "server", "client"]
Value: TypeAlias = str | bool | int | float
Attributes: TypeAlias = Mapping[str, Value | None]
"""Attributes of a span. None values are left out."""
Carrier: TypeAlias = Mapping[str, str]
"""W3C headers of a span in lower case, small enough to send with every call."""

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
SERVICE_NAME = "raydebm"
FLUSH_MS = 5_000

_provider: "TracerProvider | None" = None
_tracer: "Tracer | None" = None


class Span:
    """Span of a piece of work. Records nothing without tracing."""

    __slots__ = ("_span",)

    def __init__(self, span: "OtelSpan | None" = None) -> None:
        self._span = span

    def set(self, attributes: Attributes) -> None:
        """Set attributes; None values are left out."""
        if self._span is not None:
            self._span.set_attributes({name: value for name, value in attributes.items() if value is not None})

    def rename(self, name: str) -> None:
        """Change the name of the span."""
        if self._span is not None:
            self._span.update_name(name)

    def fail(self, kind: str) -> None:
        """Mark the work as failed.

        Args:
            kind: a short, stable word, such as the type of an exception; never its message.
        """
        if self._span is not None:
            from opentelemetry.trace import Status, StatusCode

            self._span.set_attribute("error.type", kind)
            self._span.set_status(Status(StatusCode.ERROR))


NOTHING = Span()


def start_tracing(component: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Send this process's spans to the endpoint of the environment. Returns False if it has none, or if
    OpenTelemetry is disabled or not installed.

    An existing provider of the process is used unchanged. A provider created here is private, because libraries with
    built-in tracing would otherwise send data that raydebm withholds, such as query strings and messages of exceptions.

    OpenTelemetry's own variables apply: OTEL_SERVICE_NAME (``raydebm``), OTEL_RESOURCE_ATTRIBUTES, OTEL_TRACES_SAMPLER,
    OTEL_EXPORTER_OTLP_HEADERS, OTEL_BSP_SCHEDULE_DELAY, OTEL_SDK_DISABLED.

    Args:
        component: ``service.component`` of the OpenTelemetry resource, such as ``proxy``.
        environ: environment with the endpoint.
    """
    global _provider, _tracer
    if _tracer is not None:
        return True
    if not any(environ.get(name) for name in ENDPOINTS) or environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        log.warning("no traces are sent: %s; install the extra raydebm[otel], or unset %s", error, ENDPOINTS[1])
        return False
    provider = trace.get_tracer_provider()
    if not isinstance(provider, TracerProvider):
        name = environ.get("OTEL_SERVICE_NAME") or SERVICE_NAME
        resource = Resource.create({"service.name": name, "service.component": component})
        provider = TracerProvider(resource=resource)
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    _provider, _tracer = provider, provider.get_tracer("raydebm")
    return True


def is_tracing() -> bool:
    """True if OpenTelemetry is configured in this process."""
    return _tracer is not None


def flush_tracing() -> None:
    """Send buffered spans before the process ends."""
    if _provider is not None:
        _provider.force_flush(FLUSH_MS)


@contextmanager
def span(
    name: str,
    attributes: Attributes | None = None,
    *,
    parent: Carrier | None = None,
    kind: Kind = "internal",
) -> Iterator[Span]:
    """Span around a piece of work, and parent of the spans inside it.

    Do not use it across the ``yield`` of a generator: a context cannot be left from another task.

    Args:
        name: constant name of the kind of work; variable parts are attributes.
        attributes: numbers and names, never texts.
        parent: headers of the caller in another process. Default: the surrounding span.
        kind: role of the span: work in this process, a request received, or a request sent.
    """
    if _tracer is None:
        yield NOTHING
        return
    import asyncio

    from opentelemetry.trace import SpanKind

    with _tracer.start_as_current_span(
        name,
        context=_context(parent),
        kind=SpanKind[kind.upper()],
        record_exception=False,
        set_status_on_exception=False,
    ) as started:
        made = Span(started)
        made.set(attributes or {})
        try:
            yield made
        except asyncio.CancelledError:
            made.set({"raydebm.cancelled": True})
            raise
        except Exception as error:
            made.fail(type(error).__name__)
            raise


def past_span(name: str, attributes: Attributes, *, seconds: float, failed: str | None = None) -> None:
    """Record a span of work that has just ended and could not be wrapped.

    Args:
        seconds: duration of the work.
        failed: kind of failure, as in ``Span.fail``. Default: the work succeeded.
    """
    if _tracer is None:
        return
    now = time.time_ns()
    started = _tracer.start_span(name, start_time=now - int(1e9 * seconds))
    made = Span(started)
    made.set(attributes)
    if failed is not None:
        made.fail(failed)
    started.end(now)


def _context(parent: Carrier | None) -> "Context | None":
    if not parent:
        return None
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract(parent)


def outgoing() -> dict[str, str]:
    """``traceparent`` (and ``tracestate``) of the current span, for the next process; {} without tracing."""
    if _tracer is None:
        return {}
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    headers: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(headers)
    return headers


def trace_id() -> str | None:
    """Trace id of the current span as 32 hexadecimal digits; None without a span."""
    if _tracer is None:
        return None
    from opentelemetry import trace

    context = trace.get_current_span().get_span_context()
    return trace.format_trace_id(context.trace_id) if context.is_valid else None
