"""A small OTLP/HTTP receiver: parses what arrives and keeps the spans."""

import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class ReceivedSpan:
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: int
    is_error: bool
    attributes: dict = field(hash=False)
    resource: dict = field(hash=False)


class Collector(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        self._lock, self._spans, self._bodies = threading.Lock(), [], []
        super().__init__(("127.0.0.1", 0), _Receiving)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def bodies(self):
        """All that has arrived, as it came."""
        with self._lock:
            return list(self._bodies)

    def take(self, body):
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        spans = [
            _span(span, _values(of_resource.resource.attributes))
            for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans
            for of_scope in of_resource.scope_spans
            for span in of_scope.spans
        ]
        with self._lock:
            self._bodies.append(body)
            self._spans.extend(spans)

    def spans(self, trace_id):
        """Those of one trace that have arrived, in any order."""
        with self._lock:
            return [span for span in self._spans if span.trace_id == trace_id]

    def close(self):
        self.shutdown()
        self.server_close()


class _Receiving(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/v1/traces":
            self.server.take(body)
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args):
        pass


def _span(span, resource):
    return ReceivedSpan(
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        kind=span.kind,
        is_error=span.status.code == 2,
        attributes=_values(span.attributes),
        resource=resource,
    )


def _values(attributes):
    return {attribute.key: getattr(attribute.value, attribute.value.WhichOneof("value")) for attribute in attributes}
