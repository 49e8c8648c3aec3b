"""The web pages (asking, and stored decisions) and their static files: plain HTML, CSS and ES modules.

They need no key, are the same for every client and reveal nothing about an installation; their data routes ask for a
key if the service does.
"""

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

from fastapi import APIRouter, Request
from fastapi.responses import Response
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.exceptions import HTTPException

from raydebm import __version__

CONTENT_SECURITY_POLICY = (
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
)
"""Allow no other host and nothing inline: injected markup runs no script."""
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # Cached but revalidated each time, so that page and scripts are of one version after an upgrade.
    "Cache-Control": "no-cache",
}
PAGES: Mapping[str, str] = {"/": "ask.html.j2", "/decisions": "decisions.html.j2"}
"""Path -> template. One level deep: addresses inside a page are relative, so that it also works below a prefix."""
MEDIA_TYPES: Mapping[str, str] = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class WebFile:
    """One file and its headers."""

    content: bytes
    media_type: str
    etag: str = field(init=False)
    """Digest of the content, equal on every replica."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "etag", f'"{hashlib.sha256(self.content).hexdigest()[:24]}"')

    def answer(self, request: Request) -> Response:
        """The file, or 304 if the browser has this content."""
        headers = {**HEADERS, "ETag": self.etag}
        known = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
        if self.etag in known or "*" in known:
            return Response(status_code=304, headers=headers)
        return Response(self.content, media_type=self.media_type, headers=headers)


@cache
def static_files() -> Mapping[str, WebFile]:
    """Files of ``static/`` by name."""
    folder = files("raydebm.service.page").joinpath("static")
    return {
        entry.name: WebFile(entry.read_bytes(), MEDIA_TYPES[suffix])
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name)
        for suffix in MEDIA_TYPES
        if entry.name.endswith(suffix)
    }


@cache
def page_file(template: str, path: str) -> WebFile:
    """Render a page once."""
    environment = Environment(
        loader=PackageLoader("raydebm.service.page"),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    text = environment.get_template(template).render(path=path, version=__version__)
    return WebFile(text.encode(), "text/html; charset=utf-8")


def page_paths() -> frozenset[str]:
    """Paths that the browser needs without a key."""
    return frozenset([*PAGES, *(f"/static/{name}" for name in static_files())])


def page_routes() -> APIRouter:
    """Routes of the pages and their static files, without entries in the OpenAPI document."""
    router = APIRouter(include_in_schema=False)
    for path, template in PAGES.items():
        router.add_api_route(path, _answer(page_file(template, path)), methods=["GET", "HEAD"])

    @router.api_route("/static/{name}", methods=["GET", "HEAD"])
    async def static(name: str, request: Request) -> Response:
        file = static_files().get(name)
        if file is None:
            raise HTTPException(404, f"there is no file {name!r}")
        return file.answer(request)

    return router


def _answer(page: WebFile) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        return page.answer(request)

    return answer
