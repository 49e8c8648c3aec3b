"""The web pages (to ask, and to read stored decisions) and their static files: plain HTML, CSS and ES modules.

They need no key, are the same for every client and reveal nothing about an installation. The routes of their data need
a key if the service has keys.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, Response
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import Response as StarletteResponse
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from raydebm import __version__

HEADERS: Mapping[str, str] = {
    # No other host and nothing inline: injected markup runs no script.
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "object-src 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # Cached but revalidated each time, so that page and scripts are of one version after an upgrade.
    "Cache-Control": "no-cache",
}
PAGES: Mapping[str, str] = {"/": "ask.html.j2", "/decisions": "decisions.html.j2"}
"""Path -> template. One level deep: addresses inside a page are relative, so that it also works below a prefix."""
FOLDER = Path(str(files("raydebm.service.page").joinpath("static")))


class _Files(StaticFiles):
    """The folder ``static`` with our headers."""

    async def get_response(self, path: str, scope: Scope) -> StarletteResponse:
        response = await super().get_response(path, scope)
        response.headers.update(HEADERS)
        return response


@cache
def page_text(path: str) -> str:
    """A rendered page."""
    environment = Environment(
        loader=PackageLoader("raydebm.service.page"),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(PAGES[path]).render(path=path, version=__version__)


def page_paths() -> frozenset[str]:
    """Paths that the browser needs without a key."""
    return frozenset([*PAGES, *(f"/static/{file.name}" for file in FOLDER.iterdir())])


def page_routes() -> APIRouter:
    """Routes of the pages and their static files, without entries in the OpenAPI document."""
    router = APIRouter(include_in_schema=False)
    for path in PAGES:
        router.add_api_route(path, _answer(page_text(path)), methods=["GET", "HEAD"])
    return router


def _answer(page: str) -> Callable[[], Awaitable[Response]]:
    async def answer() -> Response:
        return HTMLResponse(page, headers=dict(HEADERS))

    return answer


def static_files() -> StaticFiles:
    """The application that answers ``/static``."""
    return _Files(directory=FOLDER)
