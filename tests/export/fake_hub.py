"""A small hub on this machine: makes repositories, takes commits, and hands out what was committed."""

import base64
import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COMMIT = "c" * 40


class FakeHub:
    """``repositories``: (kind, name) -> {"private": bool, "files": {path: bytes}}; ``tokens``: of the requests made;
    ``refused``: nobody may make repositories."""

    def __init__(self):
        self.refused = False
        self.repositories = {}
        self.tokens = set()
        handler = type("Handler", (_Handler,), {"hub": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def address(self):
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self):
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub

    def log_message(self, *arguments):
        pass

    def do_POST(self):
        self.hub.tokens.add(self.headers.get("Authorization"))
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        kind, name, rest = self._parts()
        if rest == "repos/create" and self.hub.refused:
            self._answer({"error": "You have no right to do that."}, status=403)
        elif rest == "repos/create":
            wanted = json.loads(body)
            key = (wanted.get("type", "model"), f"{wanted['organization']}/{wanted['name']}")
            private = wanted.get("private", wanted.get("visibility") == "private")
            self.hub.repositories.setdefault(key, {"private": private, "files": {}})
            self._answer({"url": f"{self.hub.address}/{key[1]}", "name": key[1]})
        elif rest == "validate-yaml":
            self._answer({"errors": [], "warnings": []})
        elif rest.startswith("preupload/"):
            files = [
                {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False, "oid": None}
                for file in json.loads(body)["files"]
            ]
            self._answer({"files": files})
        elif rest.startswith("commit/"):
            for line in body.decode().splitlines():
                entry = json.loads(line)
                if entry["key"] == "file":
                    content = base64.b64decode(entry["value"]["content"])
                    self.hub.repositories[kind, name]["files"][entry["value"]["path"]] = content
            self._answer({"commitUrl": f"{self.hub.address}/{name}/commit/{COMMIT}", "commitOid": COMMIT})
        else:
            self._refuse()

    def do_GET(self):
        self.hub.tokens.add(self.headers.get("Authorization"))
        kind, name, rest = self._parts()
        files = self.hub.repositories.get((kind, name), {}).get("files")
        if files is None:
            self._refuse()
        elif rest.startswith("resolve/"):
            self._send_file(files[rest.split("/", 2)[2]])
        elif rest.startswith("tree/"):
            self._answer([{"type": "file", "path": path, "size": len(files[path]), "oid": "0" * 40} for path in files])
        else:
            self._answer({"id": name, "sha": COMMIT, "siblings": [{"rfilename": path} for path in files]})

    do_HEAD = do_GET  # noqa: N815

    def _parts(self):
        """(kind, repository, rest) of an API address; of a file's, (kind, repository, ``resolve/...``)."""
        path = unquote(urlsplit(self.path).path).strip("/")
        if not path.startswith("api/"):
            owner, name, rest = path.split("/", 2)
            return "model", f"{owner}/{name}", rest
        parts = path.removeprefix("api/").split("/", 3)
        if parts[0] not in ("models", "datasets"):
            return "", "", "/".join(parts)
        return parts[0].removesuffix("s"), "/".join(parts[1:3]), parts[3] if len(parts) > 3 else ""

    def _send_file(self, content):
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", f'"{hashlib.sha1(content).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def _answer(self, value, status=200):
        content = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _refuse(self):
        self.send_response(404)
        self.send_header("X-Error-Code", "RepoNotFound")
        self.send_header("Content-Length", "0")
        self.end_headers()
