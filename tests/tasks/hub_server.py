"""A hub of data sets on this machine: redirects to a store of files, ETags, ranges, refusals, broken connections."""

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COMMIT = "c" * 40
CONVERTED = "refs/convert/parquet"


class HubServer:
    """``repositories``: name -> revision -> {path: bytes}; ``gated``: names that need ``token``; ``requests``: (method,
    path, Range header) as they came; ``breaks``: how many downloads still break off in the middle."""

    def __init__(self):
        self.repositories = {}
        self.gated = set()
        self.token = "hf_right"
        self.requests = []
        self.breaks = 0
        handler = type("Handler", (_Handler,), {"hub": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def address(self):
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def store(self):
        """Where contents lie: another host than the hub's, as far as a client can tell."""
        return f"http://localhost:{self._server.server_port}/store"

    def downloads(self):
        """Paths of the files whose content was sent, with the ranges asked for."""
        return [(path, wanted) for method, path, wanted in self.requests if method == "GET" and "/store/" in path]

    def close(self):
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    hub: HubServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def do_HEAD(self):
        self._serve(with_body=False)

    def do_GET(self):
        self._serve(with_body=True)

    def _serve(self, *, with_body):
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append((self.command, path, self.headers.get("Range")))
        if path.startswith("/store/"):
            self._send_file(path.removeprefix("/store/"), with_body=with_body)
            return
        api = path.startswith("/api/")
        parts = path.removeprefix("/api").removeprefix("/datasets/").split("/")
        name, rest = "/".join(parts[:2]), "/".join(parts[2:])
        revisions = self.hub.repositories.get(name)
        if name in self.hub.gated and self.headers.get("Authorization") != f"Bearer {self.hub.token}":
            self._answer({"error": "Access to this data set is restricted."}, 401, {"X-Error-Code": "GatedRepo"})
        elif revisions is None:
            self._answer({"error": "Repository not found"}, 404, {"X-Error-Code": "RepoNotFound"})
        elif api:
            kind, _, revision = rest.partition("/")
            self._describe(name, revision or "main", revisions, as_tree=kind == "tree")
        else:
            self._redirect(name, rest.removeprefix("resolve/"), revisions)

    def _describe(self, name, revision, revisions, *, as_tree):
        revision = _named(revision, revisions)
        if revision not in revisions:
            self._answer({"error": "Revision not found"}, 404, {"X-Error-Code": "RevisionNotFound"})
            return
        contents = revisions[revision]
        if as_tree:
            self._answer(
                [
                    {"type": "file", "path": path, "size": len(contents[path]), "oid": "0" * 40}
                    for path in sorted(contents)
                ]
            )
            return
        files = [{"rfilename": path} for path in sorted(contents)]
        self._answer({"id": name, "sha": _commit(revision), "siblings": files, "private": False, "tags": []})

    def _redirect(self, name, rest, revisions):
        """As the hub does for large files: the address of the content, with its ETag and size on this answer."""
        for revision, files in revisions.items():
            for prefix in (revision, _commit(revision)):
                path = rest.removeprefix(f"{prefix}/")
                if path != rest and path in files:
                    content = files[path]
                    headers = {
                        "Location": f"{self.hub.store}/{name}/{revision}/{path}",
                        "X-Repo-Commit": _commit(revision),
                        "X-Linked-Etag": f'"{hashlib.sha256(content).hexdigest()}"',
                        "X-Linked-Size": str(len(content)),
                    }
                    self._answer({}, 302, headers)
                    return
        self._answer({"error": "Entry not found"}, 404, {"X-Error-Code": "EntryNotFound"})

    def _send_file(self, where, *, with_body):
        name, rest = "/".join(where.split("/")[:2]), "/".join(where.split("/")[2:])
        revision = next(revision for revision in self.hub.repositories[name] if rest.startswith(f"{revision}/"))
        content = self.hub.repositories[name][revision][rest.removeprefix(f"{revision}/")]
        start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").split("-")[0])
        body = content[start:]
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if not with_body:
            return
        if self.hub.breaks and not rest.endswith("README.md"):
            self.hub.breaks -= 1
            self.wfile.write(body[: len(body) // 2])
            self.close_connection = True
            return
        self.wfile.write(body)

    def _answer(self, value, status=200, headers=None):
        body = json.dumps(value).encode()
        self.send_response(status)
        for name, content in (headers or {}).items():
            self.send_header(name, content)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _named(revision, revisions):
    return next((name for name in revisions if revision in (name, _commit(name))), revision)


def _commit(revision):
    return COMMIT if revision == "main" else hashlib.sha1(revision.encode()).hexdigest()
