"""What a program may use, and what became of it."""

from dataclasses import dataclass
from enum import StrEnum

MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one run of a program, or one call of a function, may use."""

    cpu_s: float = 4.0
    """Processor time: the same program gets the same verdict on a busy machine."""
    wall_s: float = 12.0
    """Time on the clock, for programs that sleep or wait."""
    memory_bytes: int = 1024 * MIB
    """Address space of the process."""
    output_bytes: int = 16 * MIB
    """Bytes of stdout, or of a call's result."""
    disk_bytes: int = 16 * MIB
    """The work folder, which is in memory and empty at the start."""
    num_threads: int = 16
    """Threads after the first; new processes are refused altogether where system calls are filtered."""


class Status(StrEnum):
    OK = "ok"
    """It ended by itself with exit code 0, or the call returned."""
    RUNTIME_ERROR = "runtime_error"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    OUTPUT_LIMIT = "output_limit"
    SYNTAX_ERROR = "syntax_error"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What a program did with one input."""

    status: Status
    exit_code: int | None
    """As shells count; negative: the signal that ended it. None when the sandbox itself was lost."""
    stdout: bytes = b""
    """At most ``Limits.output_bytes`` of it."""
    stderr: str = ""
    """Its end."""
    detail: str = ""
    """Why it was not OK, in a few words."""
    wall_s: float = 0.0
    cpu_s: float = 0.0
    peak_memory_bytes: int = 0
    """Resident memory at its highest, with some 10 MiB of the interpreter's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallResult:
    """What one call of a function gave."""

    status: Status
    value: object = None
    """Plain data when the status is OK. What was none is an ``inside.values.Opaque``, which is equal to nothing."""
    detail: str = ""
