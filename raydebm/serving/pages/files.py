"""What the browser loads: rendered templates and static files, with the headers that keep them safe and fresh.

The content is the same for everybody and says nothing about an installation; the pages get everything else from the
data routes, which ask for a key where the service does.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

from fastapi import Request
from fastapi.responses import Response
from jinja2 import Environment, PackageLoader, StrictUndefined

from raydebm import __version__

CONTENT_SECURITY_POLICY = (
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
)
"""Nothing from another host, and nothing inline: a text that became markup would still run no script."""
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # Stored, but asked for again each time, so that page and scripts are of one version after an upgrade.
    "Cache-Control": "no-cache",
}
MEDIA_TYPES: Mapping[str, str] = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class WebFile:
    """One file as it is sent."""

    content: bytes
    media_type: str
    etag: str = field(init=False)
    """A digest of the content, so that it is the same on every replica."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "etag", f'"{hashlib.sha256(self.content).hexdigest()[:24]}"')

    def answer(self, request: Request) -> Response:
        """The file, or 304 where the browser has this content already."""
        headers = {**HEADERS, "ETag": self.etag}
        known = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
        if self.etag in known or "*" in known:
            return Response(status_code=304, headers=headers)
        return Response(self.content, media_type=self.media_type, headers=headers)


@cache
def static_files() -> Mapping[str, WebFile]:
    """Every file of ``static/`` by its name."""
    folder = files("raydebm.serving.pages").joinpath("static")
    return {
        entry.name: WebFile(entry.read_bytes(), MEDIA_TYPES[suffix])
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name)
        for suffix in MEDIA_TYPES
        if entry.name.endswith(suffix)
    }


@cache
def page_file(template: str, path: str) -> WebFile:
    """A page, rendered once.

    Args:
        template: its file in ``templates/``.
        path: where it is served, such as ``/decisions``; the navigation marks it as the current one.
    """
    environment = Environment(
        loader=PackageLoader("raydebm.serving.pages"),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    text = environment.get_template(template).render(path=path, version=__version__)
    return WebFile(text.encode(), "text/html; charset=utf-8")
