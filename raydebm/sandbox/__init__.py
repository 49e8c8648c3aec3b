"""Untrusted Python programs, run with limits on time, memory, output, disk, processes, network and files.

bubblewrap gives every sandbox its own namespaces (processes, network, mounts, IPC, host name), an almost empty
read-only file system and no capabilities; resource limits bound what a program uses; a filter refuses system calls
that it has no need of. Without bubblewrap nothing runs, unless the user allows that (``RAYDEBM_ALLOW_UNSANDBOXED=1``).

A right answer is never inside: programs give output or values, and the process that asked compares them outside.
"""

import os
from collections.abc import Sequence
from functools import cache

from raydebm.errors import ResourceError
from raydebm.sandbox.isolation import UNSANDBOXED, Start, isolated_starts
from raydebm.sandbox.program_limits import CallResult, Limits, RunResult, Status
from raydebm.sandbox.session import Session

__all__ = [
    "ALLOW_UNSANDBOXED",
    "CallResult",
    "Limits",
    "RunResult",
    "Sandbox",
    "Session",
    "Status",
]

ALLOW_UNSANDBOXED = "RAYDEBM_ALLOW_UNSANDBOXED"
"""Environment variable; ``1`` runs untrusted programs even where they cannot be isolated."""


class Sandbox:
    """Starts sandboxes.

    Args:
        limits: of every program, where a call gives none of its own.
        packages: names of installed packages that programs may import in addition to the standard library.
        allow_unsandboxed: None: what the environment variable RAYDEBM_ALLOW_UNSANDBOXED says.

    Raises:
        ResourceError: programs cannot be isolated on this machine, and running them so is not allowed.
    """

    def __init__(
        self, limits: Limits | None = None, *, packages: Sequence[str] = (), allow_unsandboxed: bool | None = None
    ) -> None:
        self.limits = limits or Limits()
        self._packages = tuple(packages)
        if allow_unsandboxed is None:
            allow_unsandboxed = os.environ.get(ALLOW_UNSANDBOXED, "") == "1"
        self._start = _best_start(allow_unsandboxed)

    def session(self) -> Session:
        """A new sandbox, for one program and its inputs; close it, or use it as a context manager.

        Raises:
            ResourceError: it does not start.
        """
        return Session(self._start, self.limits, packages=self._packages)

    def run(self, source: str, stdin: bytes = b"", *, limits: Limits | None = None) -> RunResult:
        """Run one program with one input in a sandbox of its own.

        Raises:
            ResourceError: the sandbox does not start.
        """
        with self.session() as session:
            return session.run(source, stdin, limits=limits)

    @property
    def isolated(self) -> bool:
        """Whether programs have namespaces of their own, and cannot read the user's files."""
        return self._start.own_namespaces


@cache
def _best_start(allow_unsandboxed: bool) -> Start:
    reasons = []
    for start in isolated_starts():
        try:
            Session(start, Limits()).close()
        except ResourceError as error:
            reasons.append(str(error))
        else:
            return start
    if allow_unsandboxed:
        return UNSANDBOXED
    why = "; ".join(reasons) or "bubblewrap (bwrap) is not installed"
    raise ResourceError(
        f"untrusted programs cannot be isolated on this machine: {why}. Install bubblewrap and allow user namespaces "
        f"(or start the container with more rights), or set {ALLOW_UNSANDBOXED}=1 to run them without isolation"
    )
