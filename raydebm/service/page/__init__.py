"""The web pages: asking, and stored decisions. Plain HTML, CSS and ES modules."""

from raydebm.service.page.files import page_paths, page_routes

__all__ = ["page_paths", "page_routes"]
