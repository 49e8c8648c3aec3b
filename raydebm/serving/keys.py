"""API keys of the service's clients. Only their SHA-256 is kept: keys are long and random, so a fast hash is enough.

A keys file (YAML or JSON) looks like this; ``printf %s "$KEY" | sha256sum`` gives the hash of a key that
``openssl rand -hex 32`` made::

    keys:
      - {name: team-a, sha256: 9f86d0..., requests_per_minute: 600, max_concurrent: 16}

Without a file, RAYDEBM_API_KEYS holds the keys themselves: ``team-a=KEY1,team-b=KEY2``.
No message of this module contains a key or a hash.
"""

import hashlib
import hmac
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from raydebm.errors import ConfigError

ENVIRONMENT = "RAYDEBM_API_KEYS"
MIN_KEY_CHARS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """One client. The name is for logs and metrics."""

    name: str
    sha256: str = field(repr=False)
    requests_per_minute: float | None = None
    """None: the service's default."""
    max_concurrent: int | None = None


class Keyring:
    """Knows who may call."""

    def __init__(self, keys: Sequence[ApiKey]) -> None:
        self._keys = tuple(keys)

    def __len__(self) -> int:
        return len(self._keys)

    def owner(self, authorization: str | None) -> ApiKey | None:
        """The key that an ``Authorization: Bearer ...`` header holds, or None.

        Takes as long for the first key as for the last, and for a near miss as for nonsense.
        """
        scheme, _, key = (authorization or "").partition(" ")
        given = hashlib.sha256(key.strip().encode("utf-8", "replace")).hexdigest()
        found = None
        for known in self._keys:
            if hmac.compare_digest(known.sha256, given):
                found = known
        return found if scheme.lower() == "bearer" else None


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    name: str = Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")
    sha256: str = Field(pattern=r"^[0-9a-fA-F]{64}$")
    requests_per_minute: float | None = Field(None, gt=0)
    max_concurrent: int | None = Field(None, ge=1)


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    keys: list[_Entry] = Field(min_length=1)


def load_keyring(path: str | None, environ: Mapping[str, str] = os.environ) -> Keyring | None:
    """The keys of a file, else of the environment; None when there are none, and anyone may call.

    Raises:
        ConfigError: the file or the variable is not as described, or two keys have the same name.
    """
    if path is not None:
        keys = _from_file(path)
    elif environ.get(ENVIRONMENT):
        keys = _from_environment(environ[ENVIRONMENT])
    else:
        return None
    names = [key.name for key in keys]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"two API keys have the name {name!r}; give each its own")
    return Keyring(keys)


def _from_file(path: str) -> list[ApiKey]:
    try:
        read = _File.model_validate(yaml.safe_load(Path(path).read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"keys file {path!r} cannot be read: {type(error).__name__}") from error
    except yaml.YAMLError:
        raise ConfigError(f"keys file {path!r} is not YAML") from None  # YAML's message quotes the line
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise ConfigError(f"keys file {path!r}: {where}: {first['msg']}") from None
    return [ApiKey(**entry.model_dump() | {"sha256": entry.sha256.lower()}) for entry in read.keys]


def _from_environment(text: str) -> list[ApiKey]:
    keys = []
    for index, part in enumerate(part.strip() for part in text.split(",") if part.strip()):
        name, separator, key = part.partition("=")
        if not separator:
            name, key = f"key-{index}", part
        if len(key) < MIN_KEY_CHARS:
            raise ConfigError(
                f"{ENVIRONMENT}: key number {index + 1} is shorter than {MIN_KEY_CHARS} characters; "
                "make one with `openssl rand -hex 32`"
            )
        keys.append(ApiKey(name=name, sha256=hashlib.sha256(key.encode()).hexdigest()))
    return keys
