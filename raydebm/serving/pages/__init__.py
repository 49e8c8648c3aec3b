"""The web pages of the service: asking, stored decisions, live figures. Plain HTML, CSS and ES modules."""

from raydebm.serving.pages.routes import page_paths, page_routes

__all__ = ["page_paths", "page_routes"]
