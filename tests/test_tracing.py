"""Spans: nothing where nobody traces; names, numbers and parents where somebody does, and no message of an error."""

import asyncio
import logging

import pytest

from raydebm import tracing

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
HEADERS = {"traceparent": f"00-{TRACE}-{PARENT}-01"}


def test_without_an_endpoint_nothing_is_traced():
    assert tracing.start_tracing("ingress", environ={}) is False
    with tracing.span("triage") as span:
        span.set({"raydebm.task": "gsm8k"})
        span.fail("Broken")
        assert (tracing.outgoing(), tracing.trace_id()) == ({}, None)


def test_the_sdks_own_switch_turns_it_off():
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_SDK_DISABLED": "true"}
    assert tracing.start_tracing("ingress", environ=environ) is False


def test_a_missing_package_is_said_once_and_ends_nothing(monkeypatch, caplog):
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with caplog.at_level(logging.WARNING):
        started = tracing.start_tracing("ingress", environ={"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"})
    assert started is False
    assert "raydebm[otel]" in caplog.text


def test_a_span_goes_on_from_the_headers_of_another_process(ended_spans):
    with tracing.span("generator", {"raydebm.generator": "ada", "raydebm.cost_usd": None}, parent=HEADERS):
        sent = tracing.outgoing()["traceparent"]
        assert tracing.trace_id() == TRACE
    (span,) = ended_spans()
    assert format(span.parent.span_id, "016x") == PARENT
    assert dict(span.attributes) == {"raydebm.generator": "ada"}
    assert sent == f"00-{TRACE}-{span.context.span_id:016x}-01"


@pytest.mark.parametrize("bad", ["", "00-xyz-1-01", "00-" + "0" * 32 + "-" + "0" * 16 + "-01"])
def test_headers_that_are_no_headers_begin_a_new_trace(ended_spans, bad):
    with tracing.span("triage", parent={"traceparent": bad}):
        pass
    assert ended_spans()[0].parent is None


def test_spans_nest_through_tasks_and_threads(ended_spans):
    def in_thread():
        with tracing.span("inner"):
            pass

    async def work():
        with tracing.span("outer"):
            await asyncio.create_task(asyncio.to_thread(in_thread))

    asyncio.run(work())
    inner, outer = ended_spans()
    assert (inner.name, inner.parent.span_id) == ("inner", outer.context.span_id)


def test_of_an_exception_the_type_is_kept_and_not_the_message(ended_spans):
    with pytest.raises(ValueError, match="secret"), tracing.span("check"):
        raise ValueError("a secret of the problem")
    (span,) = ended_spans()
    assert span.attributes["error.type"] == "ValueError"
    assert span.status.is_ok is False
    assert "secret" not in span.to_json()


def test_what_is_cancelled_is_no_error(ended_spans):
    async def work():
        with tracing.span("generate"):
            await asyncio.Event().wait()

    async def cancel():
        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(cancel())
    (span,) = ended_spans()
    assert span.attributes["raydebm.cancelled"] is True
    assert span.status.is_ok or span.status.is_unset


def test_a_span_of_work_that_is_over_lies_in_the_past(ended_spans):
    with tracing.span("generator"):
        tracing.past_span("candidate", {"raydebm.sample": 1}, seconds=2.5, failed="no_answer")
    candidate, generator = ended_spans()
    assert candidate.parent.span_id == generator.context.span_id
    assert candidate.end_time - candidate.start_time == 2_500_000_000
    assert candidate.attributes["error.type"] == "no_answer"
