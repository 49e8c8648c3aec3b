"""A hub of data sets on this machine: descriptions, redirects to a store of files, ETags, refusals."""

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COMMIT = "c" * 40
CONVERTED = "refs/convert/parquet"


class HubServer:
    """``repositories``: name -> revision -> {path: bytes}; ``requests``: paths as they came."""

    def __init__(self):
        self.repositories = {}
        self.requests = []
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

    def close(self):
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    hub: HubServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        raw = urlsplit(self.path).path
        path = unquote(raw)
        self.hub.requests.append(path)
        if raw.startswith("/store/"):
            owner, name, revision, file = raw.removeprefix("/store/").split("/", 3)
            content = self.hub.repositories[f"{owner}/{name}"][unquote(revision)][file]
            self._answer(content, headers={"ETag": f'"{hashlib.sha256(content).hexdigest()}"'})
            return
        parts = path.removeprefix("/api").removeprefix("/datasets/").split("/")
        name, rest = "/".join(parts[:2]), "/".join(parts[2:])
        revisions = self.hub.repositories.get(name)
        if revisions is None:
            self._refuse("RepoNotFound")
        elif path.startswith("/api/"):
            kind, _, revision = rest.partition("/")
            self._describe(name, revision or "main", revisions, as_tree=kind == "tree")
        else:
            self._redirect(name, rest.removeprefix("resolve/"), revisions)

    def _describe(self, name, revision, revisions, *, as_tree):
        revision = next((known for known in revisions if revision in (known, _commit(known))), None)
        if revision is None:
            self._refuse("RevisionNotFound")
            return
        sizes = {path: len(content) for path, content in sorted(revisions[revision].items())}
        tree = [{"type": "file", "path": path, "size": size, "oid": "0" * 40} for path, size in sizes.items()]
        files = [{"rfilename": path} for path in sizes]
        described = {"id": name, "sha": _commit(revision), "siblings": files, "private": False, "tags": []}
        self._answer(json.dumps(tree if as_tree else described).encode())

    def _redirect(self, name, rest, revisions):
        """As the hub does for large files: the address of the content, with its ETag and size on this answer."""
        for revision, files in revisions.items():
            for prefix in (revision, _commit(revision)):
                path = rest.removeprefix(f"{prefix}/")
                if path != rest and path in files:
                    headers = {
                        "Location": f"{self.hub.store}/{name}/{revision.replace('/', '%2F')}/{path}",
                        "X-Repo-Commit": _commit(revision),
                        "X-Linked-Etag": f'"{hashlib.sha256(files[path]).hexdigest()}"',
                        "X-Linked-Size": str(len(files[path])),
                    }
                    self._answer(b"", 302, headers)
                    return
        self._refuse("EntryNotFound")

    def _refuse(self, code):
        self._answer(b"{}", 404, {"X-Error-Code": code})

    def _answer(self, body, status=200, headers=None):
        self.send_response(status)
        for name, content in (headers or {}).items():
            self.send_header(name, content)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _commit(revision):
    return COMMIT if revision == "main" else hashlib.sha1(revision.encode()).hexdigest()
