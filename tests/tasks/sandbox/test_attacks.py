"""Hostile programs: each one is contained, has the right status, and leaves the worker able to go on."""

import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from raydebm.errors import ResourceError
from raydebm.tasks.sandbox import Session, Status
from raydebm.tasks.sandbox.isolation import isolated_starts

RUNTIME_ERROR, TIMEOUT, MEMORY = Status.RUNTIME_ERROR, Status.TIMEOUT, Status.MEMORY
OUTPUT_LIMIT, OK = Status.OUTPUT_LIMIT, Status.OK

LIBC = "import ctypes, os, sys\nlibc = ctypes.CDLL(None, use_errno=True)\n"

ATTACKS = {
    # processes
    "fork bomb": ("import os\nwhile True: os.fork()", RUNTIME_ERROR),
    "double fork": ("import os\nif os.fork() == 0:\n os.setsid()\n os.fork()", RUNTIME_ERROR),
    "daemon by subprocess": (
        "import subprocess\nsubprocess.Popen(['sleep', '99'], start_new_session=True)",
        RUNTIME_ERROR,
    ),
    "shell": ("import os\nos.execv('/bin/sh', ['sh', '-c', 'id'])", RUNTIME_ERROR),
    "spawn": ("import os\nos.posix_spawn('/bin/true', ['true'], {})", RUNTIME_ERROR),
    "multiprocessing": (
        "import multiprocessing\nmultiprocessing.Process(target=print).start()",
        RUNTIME_ERROR,
    ),
    "clone without a thread": (
        LIBC + "sys.exit(libc.syscall(56, 17, 0, 0, 0, 0) < 0)",
        RUNTIME_ERROR,
    ),
    "thread bomb": (
        "import threading, time\nthreading.stack_size(32768)\n"
        "for _ in range(10**4): threading.Thread(target=time.sleep, args=(9,), daemon=True).start()",
        RUNTIME_ERROR,
    ),
    "interpreter again": ("import os, sys\nos.execv(sys.executable, [sys.executable, '-c', '1'])", RUNTIME_ERROR),
    # signals
    "kill everything": ("import os\nos.kill(-1, 9)", RUNTIME_ERROR),
    "kill the parent": ("import os\nos.kill(os.getppid(), 9)", RUNTIME_ERROR),
    "stop the parent": ("import os, signal\nos.kill(os.getppid(), signal.SIGSTOP)", RUNTIME_ERROR),
    "kill the group": ("import os\nos.killpg(0, 9)", RUNTIME_ERROR),
    "pidfd signal": ("import os, signal\nsignal.pidfd_send_signal(os.pidfd_open(os.getppid()), 9)", RUNTIME_ERROR),
    "ignored SIGTERM": (
        "import signal\nfor s in (15, 2, 1): signal.signal(s, signal.SIG_IGN)\nwhile True: pass",
        TIMEOUT,
    ),
    "ignored SIGXCPU": ("import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass", TIMEOUT),
    # time
    "sleep": ("import time\ntime.sleep(60)", TIMEOUT),
    "wait for a child": ("import signal\nsignal.pause()", TIMEOUT),
    "huge power": ("print(9 ** 9 ** 9)", TIMEOUT),
    "huge integer as text": ("print(len(str(7 ** 10_000_000)))", TIMEOUT),
    "catastrophic pattern": ("import re\nre.match('(a+)+$', 'a' * 60 + 'b')", TIMEOUT),
    "endless at exit": ("import atexit\ndef f():\n while True: pass\natexit.register(f)", TIMEOUT),
    "endless thread": (
        "import threading, time\nthreading.Thread(target=lambda: time.sleep(60)).start()",
        TIMEOUT,
    ),
    "exception that never prints": (
        "class E(Exception):\n def __str__(self):\n  while True: pass\nraise E",
        TIMEOUT,
    ),
    "swallowed exceptions": ("while True:\n try:\n  while True: pass\n except BaseException: pass", TIMEOUT),
    # memory
    "memory bomb": ("a = b'x' * 1024\nwhile True: a += a", MEMORY),
    "list bomb": ("a = []\nwhile True: a.append([0] * 10**6)", MEMORY),
    "zip bomb": (
        "import zlib\nd = zlib.compressobj()\nb = b''.join(d.compress(bytes(10**6)) for _ in range(600)) + d.flush()\n"
        "print(len(zlib.decompress(b)))",
        {MEMORY, TIMEOUT},
    ),
    "shared mapping": ("import mmap\nmmap.mmap(-1, 2**34)", RUNTIME_ERROR),
    "memory file": ("import os\nos.memfd_create('x')", RUNTIME_ERROR),
    "raised limit": (
        "import resource\nresource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
        RUNTIME_ERROR,
    ),
    "deep recursion": (
        "import sys\nsys.setrecursionlimit(10**9)\ndef f(n): return f(n + 1) + 1\nf(0)",
        {RUNTIME_ERROR, MEMORY, TIMEOUT},
    ),
    "recursion in C": (
        "import sys\nsys.setrecursionlimit(10**9)\na = []\nfor _ in range(10**6): a = [a]\nrepr(a)",
        {RUNTIME_ERROR, MEMORY, TIMEOUT},
    ),
    "segmentation fault": ("import ctypes\nctypes.string_at(0)", RUNTIME_ERROR),
    "nested source": ("(" * 5000 + ")" * 5000, Status.SYNTAX_ERROR),
    # output
    "endless output": ("while True: print('x' * 999)", OUTPUT_LIMIT),
    "one big output": ("print('x' * 10**6)", OUTPUT_LIMIT),
    "endless complaints": ("import sys\nwhile True: sys.stderr.write('x' * 999)", TIMEOUT),
    "closed stdout": ("import os\nos.close(1)\nprint('x', flush=True)", RUNTIME_ERROR),
    "closed stdout at exit": ("import os\nprint('x')\nos.close(1)", RUNTIME_ERROR),
    "every descriptor closed": ("import os\nos.closerange(0, 4096)\nos._exit(3)", RUNTIME_ERROR),
    "descriptor bomb": ("a = []\nwhile True: a.append(open('/dev/null'))", RUNTIME_ERROR),
    # files
    "password file": ("print(open('/etc/passwd').read())", RUNTIME_ERROR),
    "parent's environment": ("import os\nprint(open(f'/proc/{os.getppid()}/environ').read())", RUNTIME_ERROR),
    "process table": ("import os\nos.listdir('/proc')", RUNTIME_ERROR),
    "own memory": ("open('/proc/self/mem', 'rb+')", RUNTIME_ERROR),
    "write to the root": ("open('/x', 'w')", RUNTIME_ERROR),
    "write to the library": ("import os\nopen(os.__file__, 'a').write('x')", RUNTIME_ERROR),
    "write beside the library": ("import os\nopen(os.path.dirname(os.__file__) + '/x.py', 'w')", RUNTIME_ERROR),
    "replace the interpreter": ("import os, sys\nos.unlink(sys.executable)", RUNTIME_ERROR),
    "symlink to a secret": ("import os\nos.symlink('/etc/passwd', 'x')\nprint(open('x').read())", RUNTIME_ERROR),
    "symlink up": ("import os\nos.symlink('..', 'x')\nopen('x/../../../etc/shadow')", RUNTIME_ERROR),
    "hard link": ("import os, sys\nos.link(sys.executable, 'x')", RUNTIME_ERROR),
    "device": (
        "import os, stat\nos.mknod('x', 0o600 | stat.S_IFBLK, os.makedev(254, 0))\nopen('x', 'rb')",
        RUNTIME_ERROR,
    ),
    "raw disk": ("open('/dev/vda', 'rb')", RUNTIME_ERROR),
    "full disk": (
        "for n in range(99):\n with open(f'f{n}', 'wb') as f: f.write(bytes(500_000))",
        RUNTIME_ERROR,
    ),
    "big file": ("f = open('f', 'wb')\nwhile True: f.write(bytes(100_000))", RUNTIME_ERROR),
    "shared memory files": ("open('/dev/shm/x', 'w')", RUNTIME_ERROR),
    "the project": ("import raydebm", RUNTIME_ERROR),
    "installed packages": ("import pytest", RUNTIME_ERROR),
    # network
    "TCP": ("import socket\nsocket.create_connection(('127.0.0.1', 22), 1)", RUNTIME_ERROR),
    "UDP": (
        "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('8.8.8.8', 53))",
        RUNTIME_ERROR,
    ),
    "names": ("import socket\nsocket.getaddrinfo('localhost', 80)", {RUNTIME_ERROR, OK}),
    "server": ("import socket\nsocket.create_server(('', 8080))", RUNTIME_ERROR),
    "abstract socket": ("import socket\nsocket.socket(socket.AF_UNIX).connect('\\0x')", RUNTIME_ERROR),
    "virtual machine socket": ("import socket\nsocket.socket(40, socket.SOCK_STREAM)", RUNTIME_ERROR),
    "packet socket": ("import socket\nsocket.socket(17, 3)", RUNTIME_ERROR),
    # privileges
    "become root": ("import os\nos.setuid(0)", RUNTIME_ERROR),
    "trace the parent": (LIBC + "sys.exit(libc.ptrace(16, os.getppid(), 0, 0) != 0)", RUNTIME_ERROR),
    "read the parent's memory": (
        LIBC + "b = ctypes.create_string_buffer(16)\nv = (ctypes.c_void_p * 2)(ctypes.addressof(b), 16)\n"
        "sys.exit(libc.process_vm_readv(os.getppid(), v, 1, v, 1, 0) < 0)",
        RUNTIME_ERROR,
    ),
    "new user namespace": (LIBC + "sys.exit(libc.unshare(0x10000000) != 0)", RUNTIME_ERROR),
    "mount": (LIBC + "sys.exit(libc.mount(b'x', b'/tmp', b'tmpfs', 0, None) != 0)", RUNTIME_ERROR),
    "change root": ("import os\nos.chroot('/tmp')", RUNTIME_ERROR),
    "host name": ("import socket\nsocket.sethostname('x')", RUNTIME_ERROR),
    # endings that look like success
    "silent exit": ("import os\nos._exit(0)\nprint(1)", OK),
    "exit code 0": ("import sys\nsys.exit(0)\nprint(1)", OK),
    "noise on every descriptor": (
        "import os\nfor fd in range(64):\n try: os.write(fd, b'{\"memory\": 1}\\n')\n except OSError: pass",
        OK,
    ),
}


@pytest.fixture(scope="module")
def shared_session(sandbox):
    """One sandbox for many attacks, replaced when an attack made it unusable."""
    opened = []

    def get():
        if not opened or opened[-1].is_used:
            opened.append(sandbox.session())
        return opened[-1]

    yield get
    for session in opened:
        session.close()


def started(start, limits):
    """A sandbox that is started this way; skips where this machine does not allow it."""
    try:
        return Session(start, limits)
    except ResourceError as error:
        pytest.skip(str(error))


def check_contained(session: Session, source, expected, hasty):
    """Time is short for what never ends, and no matter for what ends otherwise."""
    allowed = expected if isinstance(expected, set) else {expected}
    result = session.run(source, limits=hasty if TIMEOUT in allowed else None)
    assert result.status in allowed, (result.status, result.detail)
    if not session.is_used:
        assert session.run("print(6 * 7)").stdout == b"42\n"


@pytest.mark.parametrize("name", ATTACKS)
def test_the_attack_is_contained_and_the_worker_goes_on(shared_session, name, hasty):
    check_contained(shared_session(), *ATTACKS[name], hasty)


SOME = [
    *("fork bomb", "kill everything", "ignored SIGTERM", "memory bomb", "endless output", "password file", "full disk"),
    *("TCP", "trace the parent", "new user namespace", "write to the library", "process table", "become root"),
]


@pytest.mark.parametrize("name", SOME)
@pytest.mark.parametrize("start", isolated_starts()[1:], ids=lambda start: start.name)
def test_every_way_of_starting_contains_attacks(sandbox, start, name, hasty):
    with started(start, sandbox.limits) as session:
        check_contained(session, *ATTACKS[name], hasty)


def test_the_environment_is_not_the_workers(sandbox, monkeypatch):
    monkeypatch.setenv("SECRET_KEY", "hunter2")
    with sandbox.session() as session:
        result = session.run("import os\nprint(dict(os.environ))")
    assert result.status is Status.OK
    assert b"hunter2" not in result.stdout


def test_a_file_of_the_user_cannot_be_read(session, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("hunter2")
    secret.chmod(0o644)
    assert session.run(f"print(open({str(secret)!r}).read())").status is Status.RUNTIME_ERROR


def test_the_users_home_is_not_there(session):
    result = session.run(f"import os\nprint(os.listdir({str(Path.home())!r}))")
    assert b".ssh" not in result.stdout
    assert b".bash" not in result.stdout


def test_an_abstract_socket_of_the_host_is_out_of_reach(session):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("")  # the kernel chooses a name that nobody has
        server.listen()
        source = f"import socket\nsocket.socket(socket.AF_UNIX).connect({server.getsockname()!r})"
        assert session.run(source).status is Status.RUNTIME_ERROR


def test_the_control_pipes_cannot_be_reached(session):
    """Whatever a program writes anywhere, the next program's result is its own."""
    session.run("import os\nfor fd in range(3, 1024):\n try: os.write(fd, b'\\0' * 64)\n except OSError: pass")
    assert session.run("print('mine')").stdout == b"mine\n"


def test_files_left_behind_end_the_session(session):
    assert session.run("open('x', 'w').close()").status is Status.OK
    assert session.is_used


def processes_below(pid):
    parents = {}
    for folder in Path("/proc").iterdir():
        try:
            words = (folder / "stat").read_text().rpartition(")")[2].split()
            parents[int(folder.name)] = int(words[1])
        except (OSError, ValueError, IndexError):
            continue
    pids, new = {pid}, {pid}
    while new:
        new = {child for child, parent in parents.items() if parent in new} - pids
        pids |= new
    return pids


def check_gone(pids):
    deadline = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


@pytest.mark.parametrize("start", isolated_starts(), ids=lambda start: start.name)
def test_nothing_outlives_its_session(sandbox, start):
    session = started(start, sandbox.limits)
    session.open_program("import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()")
    pids = processes_below(session.pid)
    assert len(pids) >= 2
    session.close()
    check_gone(pids)


def test_a_worker_that_dies_takes_its_sandbox_along(sandbox):
    """SIGKILL leaves no time to clean up; the kernel does it."""
    source = (
        "from raydebm.tasks.sandbox import Sandbox\nimport os, sys\n"
        "s = Sandbox().session()\nprint(s.pid, flush=True)\nsys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", source], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as worker:
        pid = int(worker.stdout.readline())
        pids = processes_below(pid)
        worker.kill()
    check_gone(pids)


def test_two_sandboxes_do_not_see_each_other(sandbox):
    with sandbox.session() as first, sandbox.session() as second:
        first.run("open('mine', 'w').write('x')")
        assert second.run("import os\nprint(os.listdir('.'))").stdout == b"[]\n"
