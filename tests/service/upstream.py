"""An endpoint over real sockets whose models are slow, hang or fail, and that remembers what it was sent."""

import contextlib
import json
import sys
import threading
import time
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MODELS = ("prompt", "endpoint", "gated", "hanging", "broken")
LATE_S = 0.2
TEXT = 'Ava contradicts herself, so Zoey is right. {"Ava": "knave", "Zoey": "knight"}'
"""What a model says that says anything: the solution of the tests' puzzle."""


class Upstream(ThreadingHTTPServer):
    """Models do as they are called: ``gated`` answers once ``gate`` is open, ``hanging`` never, ``late`` after
    ``LATE_S``, ``broken`` fails; ``prompt`` and ``endpoint`` answer at once."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self):
        self.gate, self._closing = threading.Event(), threading.Event()
        self._lock, self._sent, self._waiting = threading.Lock(), [], defaultdict(set)
        super().__init__(("127.0.0.1", 0), _Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    @property
    def is_closing(self):
        return self._closing.is_set()

    def arrived(self, model):
        with self._lock:
            self._sent.append(model)

    def sent_to(self, model):
        """The requests that one model has had."""
        with self._lock:
            return [name for name in self._sent if name == model]

    def waiting_for(self, model):
        """The addresses of clients that hold a request open which is never answered."""
        with self._lock:
            return set(self._waiting[model])

    @contextlib.contextmanager
    def holding(self, model, client):
        with self._lock:
            self._waiting[model].add(client)
        try:
            yield
        finally:
            with self._lock:
                self._waiting[model].discard(client)

    def handle_error(self, request, client_address):
        """Clients are killed; that is no error of the endpoint."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def close(self):
        self._closing.set()
        self.gate.set()
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        model = body["model"]
        self.server.arrived(model)
        if model == "broken":
            self.send_error(500)
        elif model == "hanging":
            self._hang(model)
        else:
            if model == "gated":
                self.server.gate.wait(600)
            if model == "late":
                time.sleep(LATE_S)
            self._complete()

    def _complete(self):
        choice = {"index": 0, "message": {"role": "assistant", "content": TEXT}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
        content = json.dumps({"id": "x", "object": "chat.completion", "choices": [choice], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _hang(self, model):
        """Until the client goes away."""
        self.connection.settimeout(0.1)
        with self.server.holding(model, self.client_address):
            while not self.server.is_closing:
                with contextlib.suppress(TimeoutError):
                    if self.connection.recv(1) == b"":
                        break
        self.close_connection = True

    def log_message(self, *args):
        pass
