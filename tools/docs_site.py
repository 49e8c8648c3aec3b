"""Hook of the documentation site: links from a page to files outside ``docs/`` go to the repository."""

import posixpath
import re
from typing import Any

LINK = re.compile(r"\]\((?P<target>\.\./[^)#\s]+|\.\./)(?P<anchor>#[^)]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """The text of a page with its links replaced. mkdocs calls this function for each page."""
    folder = posixpath.dirname(page.file.src_uri)

    def linked(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join("docs", folder, match["target"]))
        if path.startswith("docs/"):
            return match[0]
        return f"]({config.repo_url}/blob/main/{path}{match['anchor'] or ''})"

    return LINK.sub(linked, markdown)
