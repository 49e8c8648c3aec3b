"""Limits and results of programs."""

from dataclasses import dataclass
from enum import StrEnum

MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one run of a program, or one call of a function."""

    cpu_s: float = 4.0
    """CPU time, which does not depend on how busy the machine is."""
    wall_s: float = 12.0
    """Wall-clock time, which bounds programs that sleep or wait."""
    memory_bytes: int = 1024 * MIB
    """Address space of the process."""
    output_bytes: int = 16 * MIB
    """Bytes of stdout, or of a call's result."""
    disk_bytes: int = 16 * MIB
    """Size of the working directory, which is in memory and initially empty, and of each file."""
    num_threads: int = 16
    """Number of threads after the first. The system call filter refuses new processes."""


class Status(StrEnum):
    OK = "ok"
    """The program ended with exit code 0, or the call returned."""
    RUNTIME_ERROR = "runtime_error"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    OUTPUT_LIMIT = "output_limit"
    SYNTAX_ERROR = "syntax_error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Result of a program on one input, or of one call of a function."""

    status: Status
    stdout: bytes = b""
    """Output of a program, at most ``Limits.output_bytes``."""
    value: object = None
    """Returned value of a call with status OK: plain data, or an ``inside.values.Opaque`` in place of other data."""
    detail: str = ""
    """Short reason for a status other than OK."""
