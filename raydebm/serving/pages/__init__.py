"""The web pages: asking, and stored decisions with their review. Plain HTML, CSS and ES modules."""

from raydebm.serving.pages.routes import page_paths, page_routes

__all__ = ["page_paths", "page_routes"]
