"""Host names of a service without keys: a guard against DNS rebinding.

A page at ``evil.example`` can point that name to 127.0.0.1; the browser then treats the service as the page's own
origin, and the page can read everything. The browser still sends the name as ``Host``, so unknown names are refused.
Addresses cannot be rebound, so requests by address are answered.
"""

import ipaddress
from collections.abc import Collection, Iterable

from raydebm.errors import ServiceError

LOCALHOST = "localhost"


def check_host(headers: Iterable[tuple[bytes, bytes]], allowed: Collection[str]) -> None:
    """Refuse a request whose ``Host`` is neither localhost, an address nor an allowed name.

    Args:
        headers: ASGI headers, with names in lower case.
        allowed: host names in lower case, without ports.

    Raises:
        ServiceError: 403; also for a missing or repeated ``Host``.
    """
    values = [value.decode("latin-1") for name, value in headers if name == b"host"]
    host = _without_port(values[0]) if len(values) == 1 else ""
    if not (host in allowed or host == LOCALHOST or host.endswith(f".{LOCALHOST}") or _is_address(host)):
        raise ServiceError(
            f"this service has no API keys and does not answer as {host!r}; ask it at localhost or by its address, "
            "name the host in allowed_hosts, or give it keys",
            403,
            "unknown_host",
        )


def _without_port(value: str) -> str:
    """``[::1]:8000`` -> ``::1``, ``LocalHost.:8000`` -> ``localhost``."""
    value = value.strip().lower()
    if value.startswith("["):
        return value[1:].partition("]")[0]
    return value.rpartition(":")[0].rstrip(".") if ":" in value else value.rstrip(".")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
