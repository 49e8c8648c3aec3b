"""API keys of the service's clients. Only their SHA-256 is kept: keys are long and random, so a fast hash is enough.

A keys file (YAML or JSON) looks like this; ``printf %s "$KEY" | sha256sum`` gives the hash of a key that
``openssl rand -hex 32`` made::

    keys:
      - {name: team-a, sha256: 9f86d0..., per_day: {usd: 5.0}, reports_as: [audit]}

Without a file, RAYDEBM_API_KEYS holds the keys themselves: ``team-a=KEY1,team-b=KEY2``.
A file is read again when it changes (``WatchedKeyring``).
No message of this module contains a key or a hash.
"""

import hashlib
import hmac
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from raydebm.errors import ConfigError
from raydebm.serving.spending.ledger import DayCeilings
from raydebm.user_files import RepeatedKeyError, parsed_yaml

log = logging.getLogger(__name__)

ENVIRONMENT = "RAYDEBM_API_KEYS"
MIN_KEY_CHARS = 16
LOOK_EVERY_S = 5.0
"""A key that is taken out of the file works for so long at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """One client. The name is for logs and metrics."""

    name: str
    sha256: str = field(repr=False)
    per_day: DayCeilings | None = None
    """What it may spend on one UTC day; None: the service's ``key_per_day``."""
    decisions: bool = True
    """Whether it may see stored decisions: everybody's problems and answers."""
    reports_as: tuple[str, ...] | None = ()
    """Names that outcomes are reported by under this key, and under no other that does not list them too; None: it may
    use every name."""


class Keyring:
    """Knows who may call."""

    def __init__(self, keys: Sequence[ApiKey]) -> None:
        self._keys = tuple(keys)

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def reserved_names(self) -> frozenset[str]:
        """Names that outcomes are reported by under some keys only."""
        return frozenset(name for key in self._keys for name in key.reports_as or ())

    def owner(self, authorization: str | None) -> ApiKey | None:
        """The key that an ``Authorization: Bearer ...`` header holds, or None.

        Takes as long for the first key as for the last, and for a near miss as for nonsense.
        """
        scheme, _, key = (authorization or "").partition(" ")
        given = hashlib.sha256(key.strip().encode("utf-8", "replace")).hexdigest()
        owner = None
        for known in self._keys:
            if hmac.compare_digest(known.sha256, given):
                owner = known
        return owner if scheme.lower() == "bearer" else None


class WatchedKeyring(Keyring):
    """The keys of a file, as it is now. A file that turns bad, or goes away, leaves the last good keys in force."""

    def __init__(self, path: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        """
        Args:
            clock: seconds; the file is looked at every ``LOOK_EVERY_S`` at most, when somebody asks.

        Raises:
            ConfigError: as ``load_keyring``.
        """
        self._path, self._clock = path, clock
        self._stamp, self._looked_at = _stamp(path), clock()
        super().__init__(_different(_from_file(path)))
        self.refusal: str | None = None
        """Why the file as it is now is not used; None when it is."""

    def owner(self, authorization: str | None) -> ApiKey | None:
        """See ``Keyring.owner``; looks first whether the file has changed."""
        self._look()
        return super().owner(authorization)

    def _look(self) -> None:
        now = self._clock()
        if now - self._looked_at < LOOK_EVERY_S:
            return
        self._looked_at = now
        stamp = _stamp(self._path)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._keys = tuple(_different(_from_file(self._path)))
        except ConfigError as error:
            self.refusal = f"the last good API keys stay in force: {error}"
            log.error("keys refused", extra={"facts": {"reason": str(error)}})
        else:
            self.refusal = None
            log.info("keys read again", extra={"facts": {"keys": len(self._keys)}})


def _stamp(path: str) -> tuple[int, ...]:
    """Differs when the file's content may differ; mounted secrets are exchanged by a link, which gives a new inode."""
    try:
        stat = Path(path).stat()
    except OSError:
        return ()
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    name: str = Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")
    sha256: str = Field(pattern=r"^[0-9a-fA-F]{64}$")
    per_day: DayCeilings | None = None
    decisions: bool = True
    reports_as: tuple[Annotated[str, Field(min_length=1, max_length=100)], ...] = ()


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    keys: list[_Entry] = Field(min_length=1)


def load_keyring(path: str | None, environ: Mapping[str, str] = os.environ) -> Keyring | None:
    """The keys of a file (watched), else of the environment; None when there are none, and anyone may call.

    Raises:
        ConfigError: the file or the variable is not as described, or two keys have the same name or the same hash.
    """
    if path is not None:
        return WatchedKeyring(path)
    if environ.get(ENVIRONMENT):
        return Keyring(_different(_from_environment(environ[ENVIRONMENT])))
    return None


def _different(keys: Sequence[ApiKey]) -> Sequence[ApiKey]:
    """The keys. Raises ConfigError where two have the same name, or are the same key, which has one owner."""
    names: set[str] = set()
    owners: dict[str, str] = {}
    for key in keys:
        if key.name in names:
            raise ConfigError(f"two API keys have the name {key.name!r}; give each its own")
        names.add(key.name)
        other = owners.setdefault(key.sha256, key.name)
        if other != key.name:
            raise ConfigError(f"{other!r} and {key.name!r} have the same API key; give each its own, or remove one")
    return keys


def _from_file(path: str) -> list[ApiKey]:
    try:
        read = _File.model_validate(parsed_yaml(Path(path).read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"keys file {path!r} cannot be read: {type(error).__name__}") from error
    except RepeatedKeyError as error:
        raise ConfigError(f"keys file {path!r}: a field stands twice, {error.place}; remove one of them") from None
    except yaml.YAMLError:
        raise ConfigError(f"keys file {path!r} is not YAML") from None  # YAML's message quotes the line
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise ConfigError(f"keys file {path!r}: {where}: {first['msg']}") from None
    return [ApiKey(**dict(entry) | {"sha256": entry.sha256.lower()}) for entry in read.keys]


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
        # Nothing could be reserved for one of them, so a watch by name would have no reporter.
        keys.append(ApiKey(name=name, sha256=hashlib.sha256(key.encode()).hexdigest(), reports_as=None))
    return keys
