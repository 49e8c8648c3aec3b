"""Sandbox for untrusted Python programs, with limits on time, memory, output, disk, processes, network and files.

bubblewrap gives every sandbox its own namespaces (processes, network, mounts, IPC, host name), an almost empty
read-only file system and no capabilities. Resource limits bound usage, and a filter refuses unneeded system calls
(without libseccomp it is missing). Without bubblewrap, programs are not run.

Right answers never enter a program's sandbox: it returns output or values, and the caller compares them outside.
"""

from collections.abc import Sequence
from functools import cache

from raydebm.errors import ResourceError
from raydebm.tasks.sandbox.isolation import Start, isolated_starts
from raydebm.tasks.sandbox.program_limits import Limits, Result, Status
from raydebm.tasks.sandbox.session import Session

__all__ = ["Limits", "Result", "Sandbox", "Session", "Status"]


class Sandbox:
    """Factory of sandboxed processes, with the limits and packages of their programs.

    Args:
        limits: default limits of each program.
        packages: packages that programs may import in addition to the standard library, if installed.

    Raises:
        ResourceError: programs cannot be isolated on this machine.
    """

    def __init__(self, limits: Limits | None = None, *, packages: Sequence[str] = ()) -> None:
        self.limits = limits or Limits()
        self._packages = tuple(packages)
        self._start = _best_start()

    def session(self) -> Session:
        """Start a sandbox for one program and its inputs. Close it, or use it as a context manager. ResourceError if it
        does not start."""
        return Session(self._start, self.limits, packages=self._packages)

    def unused(self, session: Session | None) -> Session:
        """The session; a new one in its place if it is None, is closed, or has files of an earlier program."""
        if session is not None and not session.is_used:
            return session
        if session is not None:
            session.close()
        return self.session()


@cache
def _best_start() -> Start:
    reasons = []
    for start in isolated_starts():
        try:
            Session(start, Limits()).close()
        except ResourceError as error:
            reasons.append(str(error))
        else:
            return start
    why = "; ".join(reasons) or "bubblewrap (bwrap) is not installed"
    raise ResourceError(
        f"untrusted programs cannot be isolated on this machine: {why}. Install bubblewrap and allow user namespaces, "
        "or start the container with more rights (docs/sandbox.md)"
    )
