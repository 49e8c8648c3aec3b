"""The process inside the sandbox that forks one child per request.

It runs only trusted code and forks before untrusted code is loaded, which takes about a millisecond where a new
interpreter takes ten. Requests arrive on standard input and replies leave on standard output, in the format of
``frames``. A child has access to neither.

A sandbox that runs untrusted programs does not contain the right answers, because results are compared outside.
Therefore a child gains nothing by taking over this process.
"""

import contextlib
import gc
import os
import resource
import signal
import sys
from typing import Any, NoReturn

from .frames import frame, read_frame, write_all
from .programs import check, enter_child, run_main, serve
from .watching import STDERR_TAIL, Clock, ProgramWatch, await_line

_PR_SET_DUMPABLE = 4


class _EndOfChildError(Exception):
    """Leave the zygote's loop in a child, so that it ends like any Python program: threads, atexit, flushing."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code


class Zygote:
    def __init__(self, config: dict[str, Any], requests: int, replies: int) -> None:
        self._config, self._requests, self._replies = config, requests, replies
        self._child: tuple[int, int, int] | None = None
        """The loaded program: process id, descriptor of requests, descriptor of answers."""

    def serve(self) -> None:
        """Answer requests until the host closes the pipe."""
        while True:
            try:
                header, body = read_frame(self._requests)
            except EOFError:
                return
            if header["kind"] == "run":
                reply = self._run(header, body)
            elif header["kind"] == "open":
                reply = self._open(header)
            else:
                reply = self._ask(header, body)
            write_all(self._replies, frame(*reply))

    def _run(self, header: dict[str, Any], body: bytes) -> tuple[dict[str, Any], bytes]:
        source, stdin = body[: header["source_size"]], body[header["source_size"] :]
        given = os.memfd_create("stdin")
        write_all(given, stdin)
        os.lseek(given, 0, os.SEEK_SET)
        pipes = [os.pipe() for _ in range(3)]
        pid = os.fork()
        if pid == 0:
            enter_child(self._config, [given, *(writing for _, writing in pipes)], cpu_s=header["cpu_s"])
            raise _EndOfChildError(run_main(source.decode("utf-8", "surrogatepass"), prelude=header["prelude"]))
        os.close(given)
        for _, writing in pipes:
            os.close(writing)
        watch = ProgramWatch(pid, [reading for reading, _ in pipes], header)
        ending = watch.wait()
        wait_status, usage = self._end_child(pid)
        watch.drain()
        for reading, _ in pipes:
            os.close(reading)
        stdout, stderr, notes = watch.contents
        if ending == "exited" and len(stdout) > header["output_bytes"]:
            ending = "output_limit"
        reply = {
            "ending": ending,
            "exit_code": os.waitstatus_to_exitcode(wait_status),
            "stderr": bytes(stderr[-STDERR_TAIL:]).decode("utf-8", "replace"),
            "note": bytes(notes[:STDERR_TAIL]).decode("utf-8", "replace"),
            "peak_memory_bytes": usage.ru_maxrss * 1024,
            "left_files": bool(os.listdir(".")),
        }
        return reply, bytes(stdout[: header["output_bytes"]])

    def _end_child(self, pid: int) -> tuple[int, resource.struct_rusage]:
        """Kill a child and all of its descendants."""
        _kill(pid)
        _, wait_status, usage = os.wait4(pid, 0)
        _kill(-1)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        return wait_status, usage

    def _open(self, header: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        questions, answers = os.pipe(), os.pipe()
        pid = os.fork()
        if pid == 0:
            null = os.open(os.devnull, os.O_RDWR)
            enter_child(self._config, [null, null, null, answers[1], questions[0]], cpu_s=header["total_cpu_s"])
            raise _EndOfChildError((serve if header["role"] == "serve" else check)(*header["arguments"]))
        os.close(questions[0])
        os.close(answers[1])
        self._child = (pid, questions[1], answers[0])
        return {"ending": "opened"}, b""

    def _ask(self, header: dict[str, Any], body: bytes) -> tuple[dict[str, Any], bytes]:
        """Pass a line to the child, and return its reply."""
        if self._child is None:
            return {"ending": "gone"}, b""
        pid, questions, answers = self._child
        reply = bytearray()
        clock = Clock(pid, header)
        try:
            write_all(questions, body)
            ending = await_line(answers, clock, header["output_bytes"], reply)
        except OSError:
            ending = "gone"
        if ending == "line":
            return {"ending": ending}, bytes(reply)
        wait_status, _ = self._end_child(pid)
        os.close(questions)
        os.close(answers)
        self._child = None
        exit_code = os.waitstatus_to_exitcode(wait_status)
        return {"ending": ending, "exit_code": exit_code}, b""


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def _harden(config: dict[str, Any]) -> None:
    """Change to the requested user id, if any, and protect this process's memory from its children."""
    if config["uid"] is not None:
        os.setgroups([])
        os.setresgid(config["uid"], config["uid"], config["uid"])
        os.setresuid(config["uid"], config["uid"], config["uid"])
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def main() -> NoReturn:
    """Serve requests from standard input until it is closed, one forked child per program."""
    requests, replies = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    config, _ = read_frame(requests)
    sys.path[:] = [path for path in sys.path if path not in config["own_paths"]]
    _harden(config)
    write_all(replies, frame({"ready": True}))
    gc.freeze()
    try:
        Zygote(config, requests, replies).serve()
    except _EndOfChildError as ending:
        exit_code = ending.exit_code
        del ending
        sys.exit(exit_code)
    sys.exit(0)
