"""Keys of endpoints, on their way from the environment to a header."""

import os
from dataclasses import dataclass

from raydebm.config import EndpointGenerator
from raydebm.errors import MissingKeyError


@dataclass(frozen=True, slots=True)
class Secret:
    """An API key on its way to another process. Shows itself only when asked."""

    value: str | None

    def __repr__(self) -> str:
        return "Secret(***)"


def key_of(config: EndpointGenerator) -> Secret:
    """The endpoint's key, from the environment; ``Secret(None)`` for endpoints without one.

    Raises:
        MissingKeyError: the environment variable is not set.
    """
    if config.api_key_env is None:
        return Secret(None)
    value = os.environ.get(config.api_key_env)
    if not value:
        raise MissingKeyError(config.name, config.api_key_env)
    return Secret(value)
