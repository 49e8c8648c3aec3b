"""Under which names a service without keys answers: a guard against DNS rebinding.

A page at ``evil.example`` may point that name to 127.0.0.1; to a browser the service is then of the same origin as the
page, which may read everything. But the browser still sends the name as ``Host``. An address cannot be rebound, so
requests by address are answered.
"""

import ipaddress
from collections.abc import Collection, Iterable

from raydebm.errors import ServiceError

LOCALHOST = "localhost"


def check_host(headers: Iterable[tuple[bytes, bytes]], allowed: Collection[str]) -> None:
    """Refuse a request that was sent to a name which is neither localhost nor allowed.

    Args:
        headers: of the request, names in lower case, as ASGI has them.
        allowed: host names in lower case, without ports.

    Raises:
        ServiceError: 403; also without ``Host``, and with more than one.
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
