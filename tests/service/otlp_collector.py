"""A small OTLP/HTTP receiver: keeps the spans that arrive."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace


class Collector(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        self.bodies = []
        """All that has arrived, as it came."""
        super().__init__(("127.0.0.1", 0), _Receiving)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def spans(self, trace_id):
        """Those of one trace that have arrived, in any order."""
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        return [
            SimpleNamespace(name=span.name, span_id=span.span_id.hex(), parent_id=span.parent_span_id.hex())
            for body in list(self.bodies)
            for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans
            for of_scope in of_resource.scope_spans
            for span in of_scope.spans
            if span.trace_id.hex() == trace_id
        ]

    def close(self):
        self.shutdown()
        self.server_close()


class _Receiving(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/v1/traces":
            self.server.bodies.append(body)
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args):
        pass
