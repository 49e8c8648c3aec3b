"""An OpenAI-compatible batch API on a real socket: files in, batches, files out.

The last message of each request, ``"<name>: <behaviour>"``, says what becomes of it; the fields of ``BatchServer`` say
what becomes of batches. Run as a program it serves until it is ended and prints its port.
"""

import argparse
import asyncio
import json
import sys
import threading
import time
from typing import Any

from aiohttp import web
from threaded_server import ThreadedServer


class BatchServer(ThreadedServer):
    def __init__(self, *, port: int = 0) -> None:
        super().__init__(port=port)
        self.ends_as = "completed"
        """What batches become, once they may end; None: they go on."""
        self.num_answered: int | None = None
        """Requests of a batch that are answered before it ends; None: all."""
        self.takes = "batches"
        """Else an HTTP status with which they are refused, or "in silence": they are made and nobody is told."""
        self.lists = True
        self.breaks_downloads = 0
        """So many downloads break off after half of their bytes."""
        self.poll_status: int | None = None
        """With which questions for a batch are answered; None: with the batch."""
        self.files: dict[str, bytes] = {}
        self.batches: dict[str, dict[str, Any]] = {}
        self.most_open = 0

    @property
    def asked(self) -> list[list[str]]:
        """The names of the requests of each batch."""
        return [[_name_of(entry)[0] for entry in self._entries(batch)] for batch in self.batches.values()]

    def app(self) -> web.Application:
        app = web.Application(client_max_size=2**30)
        app.router.add_post("/v1/files", self._upload)
        app.router.add_get("/v1/files/{id}/content", self._download)
        app.router.add_post("/v1/batches", self._create)
        app.router.add_get("/v1/batches", self._list)
        app.router.add_get("/v1/batches/{id}", self._retrieve)
        return app

    async def _upload(self, request: web.Request) -> web.Response:
        form = await request.post()
        assert form["purpose"] == "batch"
        content = form["file"].file.read()
        return web.json_response({"id": self._keep(content), "object": "file", "purpose": "batch"})

    def _keep(self, content: bytes) -> str:
        file_id = f"file-{len(self.files)}"
        self.files[file_id] = content
        return file_id

    async def _download(self, request: web.Request) -> web.StreamResponse:
        content = self.files.get(request.match_info["id"])
        if content is None:
            return web.json_response({"error": {"message": "no such file"}}, status=404)
        if not self.breaks_downloads:
            return web.Response(body=content)
        self.breaks_downloads -= 1
        response = web.StreamResponse(headers={"Content-Length": str(len(content))})
        await response.prepare(request)
        await response.write(content[: len(content) // 2])
        await asyncio.sleep(0.05)
        assert request.transport is not None
        request.transport.abort()
        return response

    async def _create(self, request: web.Request) -> web.Response:
        body = await request.json()
        if self.takes.isdigit():
            return web.json_response({"error": {"message": "not now"}}, status=int(self.takes))
        batch = {
            "id": f"batch_{len(self.batches)}",
            "object": "batch",
            "status": "in_progress",
            "created_at": int(time.time()),
            "output_file_id": None,
            "error_file_id": None,
            "errors": None,
            **body,
        }
        self.batches[batch["id"]] = batch
        self.most_open = max(self.most_open, sum(one["status"] == "in_progress" for one in self.batches.values()))
        if self.takes == "in silence":
            await asyncio.sleep(3600)
        return web.json_response(batch)

    async def _list(self, request: web.Request) -> web.Response:
        """Pages of two, the newest first."""
        if not self.lists:
            return web.json_response({"error": {"message": "no such route"}}, status=404)
        newest = list(reversed(self.batches.values()))
        after = request.query.get("after")
        start = next((place + 1 for place, batch in enumerate(newest) if batch["id"] == after), 0)
        page = newest[start : start + 2]
        return web.json_response({"object": "list", "data": page, "has_more": start + 2 < len(newest)})

    async def _retrieve(self, request: web.Request) -> web.Response:
        if self.poll_status is not None:
            return web.json_response({"error": {"message": "not now"}}, status=self.poll_status)
        batch = self.batches.get(request.match_info["id"])
        if batch is None:
            return web.json_response({"error": {"message": "no such batch"}}, status=404)
        if batch["status"] == "in_progress" and self.ends_as is not None:
            self._end(batch, self.ends_as)
        return web.json_response(batch)

    def _end(self, batch: dict[str, Any], status: str) -> None:
        batch["status"] = status
        if status == "failed":
            batch["errors"] = {"object": "list", "data": [{"code": "token_limit", "message": "Enqueued too much"}]}
            return
        entries = self._entries(batch)
        lines = [_outcome(entry) for entry in entries[: self.num_answered]]
        output = [line for is_output, line in lines if is_output]
        errors = [line for is_output, line in lines if not is_output]
        for entry in [] if self.num_answered is None else entries[self.num_answered :]:
            error = {"code": f"batch_{status}", "message": "The window closed."}
            errors.append(json.dumps({"custom_id": entry["custom_id"], "response": None, "error": error}))
        # Nothing says that results come in the order of the requests.
        batch["output_file_id"] = self._keep(_file(output[::-1])) if any(output) else None
        batch["error_file_id"] = self._keep(_file(errors)) if errors else None

    def _entries(self, batch: dict[str, Any]) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.files[batch["input_file_id"]].splitlines()]


def _file(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _name_of(entry: dict[str, Any]) -> tuple[str, str]:
    name, _, behaviour = entry["body"]["messages"][-1]["content"].partition(": ")
    return name, behaviour


def _outcome(entry: dict[str, Any]) -> tuple[bool, str]:
    """(whether it belongs into the output file, its line or lines)."""
    name, behaviour = _name_of(entry)
    if behaviour == "400":
        return False, _line(entry, 400, {"error": {"message": "messages must not be empty"}})
    if behaviour == "lost":
        return True, ""
    if behaviour == "malformed":
        return True, '{"custom_id": "' + entry["custom_id"]
    text = {"separators": "one\u2028two\x85three", "empty": ""}.get(behaviour, f"answer to {name}")
    body = {
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 20},
    }
    line = _line(entry, 200, body)
    return True, f"{line}\n{line}" if behaviour == "twice" else line


def _line(entry: dict[str, Any], status: int, body: dict[str, Any]) -> str:
    response = {"status_code": status, "request_id": "r", "body": body}
    return json.dumps({"custom_id": entry["custom_id"], "response": response, "error": None}, ensure_ascii=False)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    with BatchServer(port=parser.parse_args().port) as server:
        sys.stdout.write(f"{server.port}\n")
        sys.stdout.flush()
        threading.Event().wait()
