"""Writing to the path of an option: where that cannot be done, a ConfigError names the option."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from raydebm.errors import ConfigError


@contextmanager
def writing(path: str | Path, *, option: str = "--out") -> Iterator[None]:
    """A block that writes to the path of an option.

    Raises:
        ConfigError: nothing can be written there; the message names the option.
    """
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{option} {str(path)!r} cannot be written: {error}; give another path") from error
