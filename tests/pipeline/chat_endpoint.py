"""An OpenAI-compatible endpoint on a port of its own, whose answers a test writes."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def chat_endpoint(answer, **usage):
    """Its address. ``answer(headers, body)`` gives the text of a reply, and ``usage`` stands in every reply; without a
    text the server fails."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            text = answer(self.headers, body)
            message = {"role": "assistant", "content": text}
            choice = {"index": 0, "finish_reason": "stop", "message": message}
            reply = {"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
            content = json.dumps(reply | ({"usage": usage} if usage else {})).encode()
            self.send_response(500 if text is None else 200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    server.server_close()
