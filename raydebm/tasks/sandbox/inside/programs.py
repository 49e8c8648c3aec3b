"""Child side: limits, the system call filter, and three ways to run a program.

``run_main`` runs a program as ``__main__``, ``serve`` answers calls of its functions, and ``check`` runs trusted test
code whose calls are answered from outside. Apart from its output, a child communicates over its own channel.
"""

import builtins
import fcntl
import json
import os
import resource
import signal
import sys
import types
from typing import Any

from .frames import write_all
from .values import decode, encode

CHANNEL, QUESTIONS = 3, 4
"""Descriptors of a child: messages to the zygote, and requests from it."""
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 1, 38, 22, 2

_NOT_COMPILED = (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError)


def enter_child(config: dict[str, Any], descriptors: list[int], *, cpu_s: float) -> None:
    """Set up descriptors (numbered in order), limits and filter. The process is not trusted afterwards."""
    apart = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, len(descriptors)) for descriptor in descriptors]
    for target, source in enumerate(apart):
        os.dup2(source, target)
    os.closerange(len(descriptors), 1 << 16)
    os.setpgid(0, 0)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    for name, (soft, hard) in config["rlimits"].items():
        resource.setrlimit(getattr(resource, name), (soft, hard))
    resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_s) + 2, int(cpu_s) + 3))
    sys.stdin = _stream(0, "r", errors="strict")
    sys.stdout = _stream(1, "w", errors="strict")
    sys.stderr = _stream(2, "w", errors="replace")
    # Usually defined by the module site, without which this interpreter runs.
    vars(builtins).update(exit=sys.exit, quit=sys.exit)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    _filter_system_calls(config["filter"])


def _stream(descriptor: int, mode: str, *, errors: str) -> Any:
    return open(descriptor, mode, encoding="utf-8", errors=errors, closefd=False)


def _prctl(option: int, first: Any, second: Any = 0) -> None:
    """Call prctl. End the child if the kernel refuses, because it must not run without its limits."""
    import ctypes

    arguments = [ctypes.c_ulong(value) if isinstance(value, int) else value for value in (first, second, 0, 0)]
    if ctypes.CDLL(None).prctl(option, *arguments) != 0:
        os._exit(99)


def _filter_system_calls(program: str) -> None:
    if not program:
        return
    import ctypes

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p)]

    code = bytes.fromhex(program)
    buffer = ctypes.create_string_buffer(code, len(code))
    argument = Program(len(code) // 8, ctypes.cast(buffer, ctypes.c_void_p))
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(argument))


def _say(message: dict[str, Any]) -> None:
    write_all(CHANNEL, json.dumps(message).encode() + b"\n")


def _names(code: types.CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names(constant)
    return names


def _module(source: str, name: str, *, prelude: dict[str, str]) -> tuple[types.CodeType, types.ModuleType]:
    """The compiled source, and a module with those names of the prelude that the source uses."""
    code = compile(source, "solution.py", "exec", dont_inherit=True)
    module = types.ModuleType(name)
    for used in sorted(_names(code) & prelude.keys()):
        origin = prelude[used]
        try:
            imported_module = __import__(origin)
        except ImportError:
            continue
        setattr(module, used, imported_module if used == origin else getattr(imported_module, used, imported_module))
    sys.modules[name] = module
    _leave_room_for_recursion()
    sys.argv = ["solution.py"]
    return code, module


def _leave_room_for_recursion() -> None:
    frame, depth = sys._getframe(), 0
    while frame.f_back is not None:
        frame, depth = frame.f_back, depth + 1
    sys.setrecursionlimit(sys.getrecursionlimit() + depth)


def _describe(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"[:500]
    except Exception:  # noqa: BLE001 - the program's own exception may fail to convert to text
        return type(error).__name__


def _print_traceback(error: BaseException) -> None:
    import traceback

    last = error.__traceback__
    while last is not None and last.tb_frame.f_code.co_filename != "solution.py":
        last = last.tb_next
    try:
        traceback.print_exception(type(error), error, last, limit=20)
    except Exception:  # noqa: BLE001 - likewise
        sys.stderr.write(_describe(error) + "\n")


def run_main(source: str, *, prelude: dict[str, str]) -> int:
    """Run a program as ``__main__`` and return its exit code."""
    try:
        code, module = _module(source, "__main__", prelude=prelude)
    except _NOT_COMPILED as error:
        _say({"syntax": _describe(error)})
        return 1
    try:
        exec(code, module.__dict__)
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return (error.code or 0) & 0xFF
        sys.stderr.write(f"{error.code}\n")
        return 1
    except MemoryError as error:
        _say({"memory": _describe(error)})
        return 1
    except BaseException as error:  # noqa: BLE001 - every ending of untrusted code is an answer here
        _print_traceback(error)
        return 1
    return 0


def serve(source: str, prelude: dict[str, str]) -> int:
    """Load a program and answer calls of its functions: ``{"id", "function", "arguments"}`` in, ``{"id", ...}`` out.
    Return the exit code."""
    with open(QUESTIONS, encoding="utf-8") as questions:
        opening = json.loads(questions.readline())
        owner, failure = _load(source, prelude=prelude)
        _say({"id": opening["id"], **failure})
        if failure:
            return 1
        for line in questions:
            request = json.loads(line)
            _say({"id": request["id"], **_call(owner, request["function"], request["arguments"])})
    return 0


def _load(source: str, *, prelude: dict[str, str]) -> tuple[Any, dict[str, Any]]:
    """(owner of the program's functions: its module, or an instance of its class Solution; error of loading it)."""
    try:
        code, module = _module(source, "solution", prelude=prelude)
    except _NOT_COMPILED as error:
        return None, {"syntax": _describe(error)}
    try:
        exec(code, module.__dict__)
        return (module.Solution() if hasattr(module, "Solution") else module), {}
    except MemoryError as error:
        return None, {"memory": _describe(error)}
    except BaseException as error:  # noqa: BLE001 - every ending of untrusted code is an answer here
        return None, {"raised": _describe(error)}


def _call(owner: Any, function: str, arguments: Any) -> dict[str, Any]:
    try:
        return {"value": encode(getattr(owner, function)(*decode(arguments)))}
    except MemoryError as error:
        return {"memory": _describe(error)}
    except BaseException as error:  # noqa: BLE001 - likewise
        return {"raised": _describe(error)}


def check(test: str, function: str) -> int:
    """Run trusted test code and return the exit code. Calls of the tested function and of undefined names are answered
    from outside: ``{"id", "function", "ask": arguments}`` out, ``{"value"}`` or ``{"raised"}`` in."""
    with open(QUESTIONS, encoding="utf-8") as replies:
        opening = json.loads(replies.readline())

        def elsewhere(name: str) -> Any:
            def called(*arguments: Any) -> Any:
                _say({"id": opening["id"], "function": name, "ask": encode(list(arguments))})
                reply = json.loads(replies.readline())
                if "value" in reply:
                    return decode(reply["value"])
                raise RuntimeError(reply["raised"])

            return called

        try:
            names = types.ModuleType("__main__").__dict__
            code = compile(test, "test.py", "exec")
            undefined = _names(code) - names.keys() - vars(builtins).keys()
            names.update({name: elsewhere(name) for name in undefined | {function}})
            exec(code, names)
        except BaseException as error:  # noqa: BLE001 - an AssertionError, or any other failure of the test code
            _say({"id": opening["id"], "failed": _describe(error)})
            return 1
        _say({"id": opening["id"], "done": True})
    return 0
