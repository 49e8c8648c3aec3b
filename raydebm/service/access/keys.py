"""API keys of the service's clients. Only their SHA-256 is kept: keys are long and random, so a fast hash is enough.

A keys file (YAML or JSON) looks like this; ``printf %s "$KEY" | sha256sum`` gives the hash of a key that ``openssl rand
-hex 32`` made::

    keys:
      - {name: team-a, sha256: 9f86d0..., per_day: {usd: 5.0}, reports_as: [audit]}

Without a file, RAYDEBM_API_KEYS holds the keys themselves: ``team-a=KEY1,team-b=KEY2``. The file is read again when it
changes. Messages of this module never contain a key or a hash.
"""

import hashlib
import hmac
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from raydebm.errors import ConfigError
from raydebm.service.spending import Ceilings
from raydebm.user_files import RepeatedKeyError, parsed_yaml

log = logging.getLogger(__name__)

ENVIRONMENT = "RAYDEBM_API_KEYS"
MIN_KEY_CHARS = 16
LOOK_EVERY_S = 5.0
"""Interval of looking at the file, in seconds. A removed key stops working within it."""


class ApiKey(BaseModel):
    """One client. The name appears in logs and metrics."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    name: str = Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")
    sha256: Annotated[str, AfterValidator(str.lower)] = Field(pattern=r"^[0-9a-fA-F]{64}$", repr=False)
    per_day: Ceilings | None = None
    """Spending per UTC day. Default: the service's ``key_per_day``."""
    decisions: bool = True
    """Permission to read stored decisions, that is, the problems and answers of all clients."""
    reports_as: tuple[Annotated[str, Field(min_length=1, max_length=100)], ...] | None = ()
    """Reporter names reserved for this key and others that list them; null allows every name that is not reserved."""


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    keys: list[ApiKey] = Field(min_length=1)


class Keyring:
    """The clients' keys. Those of a file are read again when it changes; an unreadable or missing file leaves the last
    good keys in force."""

    def __init__(
        self, keys: Sequence[ApiKey] = (), *, path: str | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Args:
            keys: the keys, without a file.
            path: the keys file.
            clock: time in seconds, for ``LOOK_EVERY_S``. The file is looked at only when a key is checked.

        Raises:
            ConfigError: the file cannot be used, or two keys have the same name or the same hash.
        """
        self._path, self._clock = path, clock
        self._stamp, self._looked_at = None if path is None else _stamp(path), clock()
        self._keys = _different(keys if path is None else _from_file(path))
        self.refusal: str | None = None
        """Error of the current file if it is not in use, else None."""

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def reserved_names(self) -> frozenset[str]:
        """Reporter names that only some keys may use."""
        return frozenset(name for key in self._keys for name in key.reports_as or ())

    def owner(self, authorization: str | None) -> ApiKey | None:
        """Owner of the key in an ``Authorization: Bearer ...`` header, or None.

        Takes constant time over keys and over near misses. Reads a changed file first.
        """
        if self._path is not None and self._clock() - self._looked_at >= LOOK_EVERY_S:
            self._looked_at = self._clock()
            self._read_again(self._path)
        scheme, _, key = (authorization or "").partition(" ")
        given = hashlib.sha256(key.strip().encode("utf-8", "replace")).hexdigest()
        owner = None
        for known in self._keys:
            if hmac.compare_digest(known.sha256, given):
                owner = known
        return owner if scheme.lower() == "bearer" else None

    def _read_again(self, path: str) -> None:
        stamp = _stamp(path)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._keys = _different(_from_file(path))
        except ConfigError as error:
            self.refusal = f"the last good API keys stay in force: {error}"
            log.error("keys refused", extra={"facts": {"reason": str(error)}})
        else:
            self.refusal = None
            log.info("keys read again", extra={"facts": {"keys": len(self._keys)}})


def _stamp(path: str) -> tuple[int, ...]:
    """File identity for change detection. Mounted secrets are exchanged by a link, which changes the inode."""
    try:
        stat = Path(path).stat()
    except OSError:
        return ()
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def load_keyring(path: str | None, environ: Mapping[str, str] = os.environ) -> Keyring | None:
    """Load the keys from a file, else from the environment. Returns None if neither has any: no key is needed.

    Raises:
        ConfigError: the file or the variable is malformed, or two keys have the same name or the same hash.
    """
    if path is not None:
        return Keyring(path=path)
    return Keyring(_from_environment(environ[ENVIRONMENT])) if environ.get(ENVIRONMENT) else None


def _different(keys: Sequence[ApiKey]) -> Sequence[ApiKey]:
    """Check that names and hashes are unique. Raises ConfigError."""
    owners: dict[str, str] = {}
    for key in keys:
        if key.name in owners.values():
            raise ConfigError(f"two API keys have the name {key.name!r}; give each its own")
        other = owners.setdefault(key.sha256, key.name)
        if other != key.name:
            raise ConfigError(f"{other!r} and {key.name!r} have the same API key; give each its own, or remove one")
    return keys


def _from_file(path: str) -> list[ApiKey]:
    try:
        return _File.model_validate(parsed_yaml(Path(path).read_text(encoding="utf-8"))).keys
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"keys file {path!r} cannot be read: {type(error).__name__}") from error
    except RepeatedKeyError as error:
        raise ConfigError(f"keys file {path!r}: a field is given twice, {error.place}; remove one of them") from None
    except yaml.YAMLError:
        raise ConfigError(f"keys file {path!r} is not YAML") from None  # YAML's message quotes the line
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise ConfigError(f"keys file {path!r}: {where}: {first['msg']}") from None


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
        # Environment keys cannot reserve names, so auditors would have no reporter.
        keys.append(ApiKey(name=name, sha256=hashlib.sha256(key.encode()).hexdigest(), reports_as=None))
    return keys
