"""The web pages: asking, stored decisions, live figures, the API reference. Plain HTML, CSS and ES modules."""

from raydebm.serving.pages.routes import page_paths, page_routes

__all__ = ["page_paths", "page_routes"]
