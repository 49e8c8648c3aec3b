"""One sandbox: a process that handles one request after another, watched from outside."""

import json
import os
import resource
import secrets
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Self

from raydebm.errors import ResourceError
from raydebm.tasks.child import arrived, written
from raydebm.tasks.sandbox.inside.frames import LENGTHS, frame
from raydebm.tasks.sandbox.inside.values import decode, encode
from raydebm.tasks.sandbox.isolation import OWN, Start, command, next_uid
from raydebm.tasks.sandbox.program_limits import Limits, Result, Status
from raydebm.tasks.sandbox.syscalls import filter_program

_START_S = 60.0
_GRACE_S = 5.0
"""Seconds after a request's own limit, which is enforced inside, until the whole sandbox is killed from outside."""
_NUM_CALLS = 1000
_NUM_DESCRIPTORS = 64
_LOST = "the sandbox was lost"

Frame = tuple[dict[str, Any], bytes]


class _LostError(Exception):
    """The process in the sandbox ended, or did not answer in time."""

    def __init__(self, message: str, status: Status = Status.RUNTIME_ERROR) -> None:
        super().__init__(message)
        self.result = Result(status=status, detail=message)


class Session:
    """A started sandbox. Not thread-safe; the kernel ends the sandbox when the thread that started it ends.

    Raises:
        ResourceError: the sandbox does not start; the message has its stderr.
    """

    def __init__(self, start: Start, limits: Limits, *, packages: Sequence[str] = ()) -> None:
        self._start, self._limits = start, limits
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the session
        self._process = subprocess.Popen(
            command(start, limits, packages),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={},
            cwd="/",
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._replies = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._requests, False)
        try:
            self._exchange(self._config(), b"", timeout_s=_START_S)
        except _LostError as error:
            self._errors.seek(0)
            said = self._errors.read(2000).decode("utf-8", "replace").strip()
            self.close()
            raise ResourceError(f"the sandbox ({start.name}) does not start: {said or error}") from error

    @property
    def pid(self) -> int:
        """Process id of the ancestor of all processes in the sandbox."""
        return self._process.pid

    def _config(self) -> dict[str, Any]:
        limits = self._limits
        rlimits = {
            "RLIMIT_AS": limits.memory_bytes,
            "RLIMIT_FSIZE": limits.disk_bytes,
            "RLIMIT_STACK": min(limits.memory_bytes, 64 << 20),
            "RLIMIT_NOFILE": _NUM_DESCRIPTORS,
            "RLIMIT_CORE": 0,
            "RLIMIT_MEMLOCK": 0,
            "RLIMIT_MSGQUEUE": 0,
            "RLIMIT_NPROC": limits.num_threads + 3,
        }
        return {
            "uid": next_uid() if self._start.change_user else None,
            "rlimits": {name: _at_most(name, value) for name, value in rlimits.items()},
            "filter": filter_program().hex(),
            "own_paths": [OWN],
        }

    def run(
        self, source: str, stdin: bytes = b"", *, limits: Limits | None = None, prelude: Mapping[str, str] | None = None
    ) -> Result:
        """Run a program in a new process. Do not reuse the session once ``is_used`` is true.

        Args:
            limits: limits of time and output for this run. Memory, disk and threads are limited by the session.
            prelude: modules by the names that the program may use without importing them.
        """
        limits = limits or self._limits
        text = source.encode("utf-8", "surrogatepass")
        header = {"kind": "run", "source_size": len(text), "prelude": dict(prelude or {}), **_watched(limits)}
        try:
            reply, stdout = self._exchange(header, text + stdin, timeout_s=limits.wall_s + _GRACE_S)
        except _LostError as error:
            self.close()
            return error.result
        self.is_used = self.is_used or bool(reply["left_files"])
        status, detail = _ending(reply, limits)
        return Result(status=status, stdout=stdout, detail=detail)

    is_used = False
    """True if a program left files behind, or the sandbox is lost or closed: the next program needs a new one."""

    def open_program(
        self, source: str, *, limits: Limits | None = None, prelude: Mapping[str, str] | None = None
    ) -> Result:
        """Load a program for ``call``. The result has no value."""
        limits = limits or self._limits
        try:
            self._open("serve", [source, dict(prelude or {})], limits)
        except _LostError as error:
            return error.result
        return self._result_of({}, limits)

    def open_test(self, test: str, function: str, *, limits: Limits | None = None) -> None:
        """Load trusted test code, whose calls are answered from outside; ``step`` runs it from call to call.
        ResourceError if the sandbox is lost."""
        try:
            self._open("check", [test, function], limits or self._limits)
        except _LostError as error:
            raise ResourceError(f"test code of function {function!r} cannot be loaded: {error}") from error
        self._test_id = secrets.token_hex(8)
        self._pending = _line({"id": self._test_id})

    def step(self, *, limits: Limits | None = None) -> dict[str, Any]:
        """Run the test code up to its next call (``{"function", "ask": arguments}``) or its end (``{"done": True}`` or
        ``{"failed": reason}``)."""
        pending, self._pending = self._pending, b""
        reply = self._ask(pending, limits or self._limits)
        failed = {"failed": f"the test code gave no answer ({reply[0]['ending']})"}
        return _message(reply, self._test_id) or failed

    def answer(self, value: Any) -> None:
        """Set the result of the pending call, which the next step sends."""
        self._pending = _line({"value": encode(value)})

    def answer_raised(self, reason: str) -> None:
        """Set an exception as the result of the pending call, which the next step sends."""
        self._pending = _line({"raised": reason})

    def call(self, function: str, arguments: Sequence[Any], *, limits: Limits | None = None) -> Result:
        """Call a function of the loaded program (or a method of its class Solution) with plain data.

        The program has ended after a result with status TIMEOUT or OUTPUT_LIMIT.
        """
        return self.call_encoded(function, encode(list(arguments)), limits=limits)

    def call_encoded(self, function: str, arguments: Any, *, limits: Limits | None = None) -> Result:
        """Like ``call``, with arguments encoded by ``inside.values.encode``."""
        return self._result_of({"function": function, "arguments": arguments}, limits or self._limits)

    def _open(self, role: str, arguments: list[Any], limits: Limits) -> None:
        header = {"kind": "open", "role": role, "arguments": arguments, "total_cpu_s": limits.cpu_s * _NUM_CALLS}
        self._exchange(header, b"", timeout_s=limits.wall_s + _GRACE_S)

    def _result_of(self, question: Mapping[str, Any], limits: Limits) -> Result:
        # A random id per request, so that the program cannot forge an answer in advance.
        question_id = secrets.token_hex(16)
        reply = self._ask(_line({"id": question_id, **question}), limits)
        return _call_result(reply, _message(reply, question_id))

    def _ask(self, line: bytes, limits: Limits) -> Frame:
        try:
            return self._exchange({"kind": "ask", **_watched(limits)}, line, timeout_s=limits.wall_s + _GRACE_S)
        except _LostError as error:
            self.close()
            return {"ending": "timeout" if error.result.status is Status.TIMEOUT else "gone"}, b""

    def _exchange(self, header: dict[str, Any], body: bytes, *, timeout_s: float) -> Frame:
        deadline = time.monotonic() + timeout_s
        try:
            if not written(self._requests, frame(header, body), deadline):
                raise _LostError("no answer in time", Status.TIMEOUT)
            head, tail = LENGTHS.unpack(self._read(LENGTHS.size, deadline))
            if head > 1 << 20 or tail > self._limits.output_bytes + (1 << 20):
                raise _LostError(f"{_LOST}: it sent something other than a reply")
            return json.loads(self._read(head, deadline)), self._read(tail, deadline)
        except (OSError, ValueError) as error:
            raise _LostError(f"{_LOST}: {error}") from error

    def _read(self, size: int, deadline: float) -> bytes:
        content = bytearray()
        while len(content) < size:
            part = arrived(self._replies, min(size - len(content), 1 << 20), deadline)
            if part is None:
                raise _LostError("no answer in time", Status.TIMEOUT)
            if not part:
                raise _LostError(f"{_LOST}: the program ended it")
            content += part
        return bytes(content)

    def close(self) -> None:
        """End all processes in the sandbox. May be called twice."""
        self.is_used = True
        if self._process.poll() is None:
            # All processes of a namespace die with its first one, which dies shortly after bubblewrap.
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            deadline = time.monotonic() + _GRACE_S
            with suppress(OSError):  # the pipe closes when every process has ended
                while arrived(self._replies, 1 << 16, deadline):
                    pass
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            with suppress(OSError):  # unsent data for a dead process
                stream.close()  # type: ignore[union-attr]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _watched(limits: Limits) -> dict[str, float]:
    return {"cpu_s": limits.cpu_s, "wall_s": limits.wall_s, "output_bytes": limits.output_bytes}


def _at_most(name: str, value: int) -> tuple[int, int]:
    """(soft, hard) value of a resource limit, at most this process's hard limit."""
    _, hard = resource.getrlimit(getattr(resource, name))
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    return value, value


def _line(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _message(reply: Frame, question_id: str) -> dict[str, Any] | None:
    """The child's answer to this request, or None."""
    try:
        message = json.loads(reply[1])
        return message if isinstance(message, dict) and message.get("id") == question_id else None
    except (ValueError, RecursionError):
        return None


def _call_result(reply: Frame, message: dict[str, Any] | None) -> Result:
    header = reply[0]
    if header["ending"] in (Status.TIMEOUT, Status.OUTPUT_LIMIT):
        return Result(status=Status(header["ending"]), detail="no answer within the limit")
    if message is None:
        ended = f"exit code {header['exit_code']}" if "exit_code" in header else "it wrote something else"
        return Result(status=Status.RUNTIME_ERROR, detail=f"the program gave no answer: {ended}")
    for name, status in (("memory", Status.MEMORY), ("syntax", Status.SYNTAX_ERROR), ("raised", Status.RUNTIME_ERROR)):
        if name in message:
            return Result(status=status, detail=str(message[name])[:500])
    try:
        return Result(status=Status.OK, value=decode(message.get("value")))
    except (ValueError, TypeError, LookupError, RecursionError, AttributeError) as error:
        return Result(status=Status.RUNTIME_ERROR, detail=f"the answer is not a plain value: {error!r}"[:500])


def _ending(reply: Mapping[str, Any], limits: Limits) -> tuple[Status, str]:
    exit_code = reply["exit_code"]
    if reply["ending"] == "output_limit":
        return Status.OUTPUT_LIMIT, f"more than {limits.output_bytes} bytes of output"
    if reply["ending"] == "timeout" or exit_code == -signal.SIGXCPU:
        return Status.TIMEOUT, f"more than {limits.cpu_s:g} s of CPU or {limits.wall_s:g} s in all"
    if exit_code == 0:
        return Status.OK, ""
    note = _note(reply["note"])
    if "syntax" in note:
        return Status.SYNTAX_ERROR, note["syntax"]
    if "memory" in note:
        return Status.MEMORY, note["memory"]
    lines = [line for line in reply["stderr"].splitlines() if line.strip()]
    reason = lines[-1][:500] if lines else "nothing on stderr"
    ended = f"signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"
    near_limit = reply["peak_memory_bytes"] > 0.9 * limits.memory_bytes
    return (Status.MEMORY if near_limit and exit_code < 0 else Status.RUNTIME_ERROR), f"{ended}: {reason}"


def _note(text: str) -> dict[str, str]:
    """Last message of the child. A program that writes one itself can only choose how it fails."""
    try:
        note = json.loads(text.strip().rpartition("\n")[2])
    except (ValueError, RecursionError):
        return {}
    return {name: str(value)[:500] for name, value in note.items()} if isinstance(note, dict) else {}
