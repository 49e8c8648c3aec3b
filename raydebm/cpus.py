"""Number of CPUs that this process may use, often fewer than the machine has.

``os.cpu_count`` ignores the scheduler's affinity and a container's quota, and threads beyond either wait for each
other.
"""

import math
import os
from pathlib import Path

CGROUP_V2 = Path("/sys/fs/cgroup/cpu.max")
CGROUP_V1 = Path("/sys/fs/cgroup/cpu")


def usable_cpus(*, v2: Path = CGROUP_V2, v1: Path = CGROUP_V1) -> int:
    """CPUs of the process's affinity mask, limited by its container's quota (rounded up); at least 1.

    Args:
        v2: ``cpu.max`` of control groups, version 2.
        v1: the folder of ``cpu.cfs_quota_us`` and ``cpu.cfs_period_us``, version 1.
    """
    quota = _quota(_words(v2)) or _quota([*_words(v1 / "cpu.cfs_quota_us"), *_words(v1 / "cpu.cfs_period_us")])
    affinity = len(os.sched_getaffinity(0))
    return affinity if quota is None else max(1, min(affinity, math.ceil(quota)))


def _words(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="ascii").split()
    except OSError:
        return []


def _quota(words: list[str]) -> float | None:
    """CPUs of a quota and its period in microseconds; None without a quota (``max`` or -1) or a file."""
    try:
        time_us, period_us = map(int, words)
    except ValueError:
        return None
    return time_us / period_us if time_us > 0 and period_us > 0 else None


def free_cpus() -> int:
    """Usable CPUs minus the load of the last minute; at least 1.

    The threads of a matrix product wait for the slowest of them. Next to other processes, one thread too many makes the
    product several times slower; one too few costs only its share.
    """
    load = min(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    return max(1, round(usable_cpus() * (1.0 - load)))
