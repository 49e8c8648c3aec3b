"""User modules that add tasks, terms of evidence and selectors.

Modules are named in the environment variable ``RAYDEBM_EXTENSIONS`` (importable names, separated by commas or spaces),
or by entry points of the group ``raydebm.extensions``. Each process imports them once, before it looks up a task that
is not built in, a term or the selectors of a report.
"""

import os
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

from raydebm.errors import ConfigError

VARIABLE = "RAYDEBM_EXTENSIONS"
GROUP = "raydebm.extensions"


@cache
def load_extensions() -> tuple[str, ...]:
    """Import every named module. Returns the names.

    Raises:
        ConfigError: a module cannot be imported; the message names it and its origin.
    """
    sources = _sources()
    for name, source in sources.items():
        try:
            import_module(name)
        except Exception as error:
            raise ConfigError(
                f"extension {name!r}, named by {source}, cannot be imported: {error!r}; is its folder in PYTHONPATH?"
            ) from error
    return tuple(sources)


def extension_files() -> dict[str, Path]:
    """The file of each named module, or the folder of a package, by name. Of a module within a package only the
    package is imported; missing modules are omitted."""
    files = {}
    for name in _sources():
        try:
            spec = find_spec(name)
        except (ImportError, ValueError):
            continue
        if spec is not None and spec.origin is not None:
            file = Path(spec.origin)
            files[name] = file.parent if file.name == "__init__.py" else file
    return files


def _sources() -> dict[str, str]:
    """Origin of each module's name."""
    sources = {point.value: f"the entry point {point.name!r} of {GROUP}" for point in entry_points(group=GROUP)}
    return sources | dict.fromkeys(os.environ.get(VARIABLE, "").replace(",", " ").split(), VARIABLE)
