"""Where the pages are served. They need no key; the data routes that they call do."""

from collections.abc import Awaitable, Callable, Mapping

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from raydebm.serving.pages.files import page_file, static_files

PAGES: Mapping[str, str] = {
    "/": "ask.html.j2",
    "/decisions": "decisions.html.j2",
    "/review": "review.html.j2",
}
"""Path -> template. One level deep, all of them: every address inside a page is relative, so that the service also
works below a path prefix."""


def page_paths() -> frozenset[str]:
    """Every path that the browser needs before it has a key."""
    return frozenset([*PAGES, *(f"/static/{name}" for name in static_files())])


def page_routes() -> APIRouter:
    """The pages and their static files; left out of the OpenAPI document, which is about data."""
    router = APIRouter(include_in_schema=False)
    for path, template in PAGES.items():
        router.add_api_route(path, _page(template, path), methods=["GET", "HEAD"])

    @router.api_route("/static/{name}", methods=["GET", "HEAD"])
    async def static(name: str, request: Request) -> Response:
        file = static_files().get(name)
        if file is None:
            raise HTTPException(404, f"there is no file {name!r}")
        return file.answer(request)

    return router


def _page(template: str, path: str) -> Callable[[Request], Awaitable[Response]]:
    page = page_file(template, path)

    async def answer(request: Request) -> Response:
        return page.answer(request)

    return answer
