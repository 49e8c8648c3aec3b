"""Processes that tests end, seen from outside."""

import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from raydebm.run.directory import RunDir


def is_running(pid: int) -> bool:
    """False for a process that has gone or that only waits for its parent to notice."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "XZ"
    except (FileNotFoundError, ProcessLookupError):
        return False


def processes_below(root: int) -> dict[int, str]:
    """Command lines of the processes below one, by process id."""
    parents, commands = {}, {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text().rpartition(")")[2].split()
            commands[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        parents[int(entry.name)] = int(stat[1])
    below, found = {root}, {}
    while more := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= more
        found.update({pid: commands[pid] for pid in more if is_running(pid)})
    return found


def nodes_below(root: int) -> list[int]:
    """The raylets of Ray's nodes below a process; not the head's, because its cluster ends with it."""
    found = processes_below(root).items()
    return [pid for pid, command in found if "/raylet/raylet " in command and " --head" not in command]


def kill_all(pids: Iterable[int]) -> None:
    """Those that are there still: children end with their parents."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def end_marked(*marks: str) -> None:
    """End every process with one of these texts in its command line or its first environment, and those that it leaves
    meanwhile. Dead processes have neither."""

    def is_marked(process: Path) -> bool:
        with suppress(OSError):
            text = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
            return any(mark.encode() in text for mark in marks)
        return False

    while left := [int(process.name) for process in Path("/proc").glob("[0-9]*") if is_marked(process)]:
        kill_all(left)
        time.sleep(0.2)


def kill_node(raylet: int) -> None:
    """A raylet and all that runs below it end at once, as when a machine loses its power."""
    kill_all([raylet, *processes_below(raylet)])


def _journals(run: RunDir) -> list[Path]:
    return [*Path(run.uri("candidates", "journal")).glob("*.jsonl")]


def journal_pids(run: RunDir) -> set[int]:
    """Process ids of the generating workers."""
    return {int(file.name.split("-")[1]) for file in _journals(run)}


def num_journaled(run: RunDir) -> int:
    """Replies in the run's journals."""
    return sum(file.read_bytes().count(b"\n") for file in _journals(run))
