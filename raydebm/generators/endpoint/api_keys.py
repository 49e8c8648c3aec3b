"""API keys of endpoints, from the environment to the request header."""

import base64
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from raydebm.config import OpenAIGenerator
from raydebm.errors import MissingKeyError, without_credentials

_ADDRESS = re.compile(r"(?P<scheme>[^/]*//)(?:(?P<user>[^/?#]*)@)?(?P<rest>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Secret:
    """An API key that is safe to pass between processes: its repr hides it."""

    value: str | None

    def __repr__(self) -> str:
        return "Secret(***)"


def key_of(config: OpenAIGenerator) -> Secret:
    """The endpoint's key from the environment; ``Secret(None)`` for endpoints without one.

    Raises:
        MissingKeyError: the environment variable is not set.
    """
    if config.api_key_env is None:
        return Secret(None)
    value = os.environ.get(config.api_key_env)
    if not value:
        raise MissingKeyError(config.name, config.api_key_env)
    return Secret(value)


def address_and_headers(base_url: str, api_key: str | None, headers: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """URL and headers for requests.

    User and password in the URL become a header, because HTTP clients refuse URL credentials next to an Authorization
    header, and error messages show URLs.

    Args:
        base_url: ``base_url`` of the recipe, perhaps with user and password.
        api_key: key to send unless the URL has a user.
        headers: further headers.
    """
    found = _ADDRESS.fullmatch(base_url)
    if found is None or found["user"] is None:
        return base_url, dict(headers) | ({"Authorization": f"Bearer {api_key}"} if api_key else {})
    return found["scheme"] + found["rest"], dict(headers) | {"Authorization": f"Basic {_basic_token(found['user'])}"}


def without_secrets(text: str, config: OpenAIGenerator, key: str | None) -> str:
    """A text with the key and passwords in URLs masked, also where an endpoint repeats them."""
    users = [found["user"] for url in config.addresses if (found := _ADDRESS.fullmatch(url)) and found["user"]]
    passwords = [password for user in users if (password := user.partition(":")[2])]
    text = without_credentials(text)
    for secret in (key, *map(_basic_token, users), *passwords, *map(unquote, passwords)):
        if secret:
            text = text.replace(secret, "***")
    return text


def _basic_token(user: str) -> str:
    name, _, password = user.partition(":")
    return base64.b64encode(f"{unquote(name)}:{unquote(password)}".encode()).decode()
