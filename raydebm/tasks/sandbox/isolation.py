"""Start of the sandbox's process by bubblewrap, with namespaces and an almost empty file system.

The process runs in a user namespace, or, if raydebm runs as root with sufficient rights (as in most containers), under
a user id of its own: the kernel does not limit the number of root's threads.
"""

import importlib.util
import itertools
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from raydebm.tasks.sandbox import inside
from raydebm.tasks.sandbox.program_limits import Limits

WORK = "/tmp"
PACKAGES = "/packages"
OWN = "/sandbox"
"""Import path of the sandbox's own modules, removed before programs run."""
_INSIDE = Path(inside.__file__).parent
_NOBODY = 65534
_FIRST_UID, _NUM_UIDS = 1_879_048_192, 1 << 26
"""Range of user ids for sandboxes that root starts, outside those of people, services and containers."""
_next_uid = itertools.count(os.getpid() * 1009)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A way to start the sandbox's process."""

    name: str
    change_user: bool


AS_OTHER_USER = Start(name="bubblewrap as another user", change_user=True)
IN_USER_NAMESPACE = Start(name="bubblewrap in a user namespace", change_user=False)


def isolated_starts() -> tuple[Start, ...]:
    """Ways to start a sandbox on this machine, best first; empty without bubblewrap."""
    if shutil.which("bwrap") is None:
        return ()
    return (AS_OTHER_USER, IN_USER_NAMESPACE) if os.geteuid() == 0 else (IN_USER_NAMESPACE,)


def next_uid() -> int:
    """User id derived from the process id; two sandboxes of this machine rarely share one."""
    return _FIRST_UID + next(_next_uid) % _NUM_UIDS


@cache
def interpreter() -> str:
    """Executable of this interpreter, behind the links of a virtual environment."""
    return os.path.realpath(sys.executable)


def command(start: Start, limits: Limits, packages: Sequence[str]) -> list[str]:
    """Command line of the sandbox's process."""
    python = [interpreter(), "-s", "-S", "-P", "-B", "-X", "utf8", "-c", "from inside.zygote import main; main()"]
    return [*_bubblewrap(start, limits, packages), "--", *python]


_ENVIRONMENT = {
    "HOME": WORK,
    "TMPDIR": WORK,
    "PATH": "",
    "PYTHONPATH": f"{OWN}:{PACKAGES}",
    # A program prints its sets in the same order in every run.
    "PYTHONHASHSEED": "0",
    # The Python versions that most published programs were written for have no such limit.
    "PYTHONINTMAXSTRDIGITS": "0",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
"""All environment variables of a program in the sandbox."""


def _bubblewrap(start: Start, limits: Limits, packages: Sequence[str]) -> list[str]:
    words = [shutil.which("bwrap") or "bwrap"]
    words += ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    words += ["--die-with-parent", "--new-session", "--hostname", "sandbox", "--cap-drop", "ALL"]
    if start.change_user:
        words += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        words += ["--unshare-user", "--uid", str(_NOBODY), "--gid", str(_NOBODY)]
        words += ["--disable-userns"] if "--disable-userns" in _help_text() else []
    words += ["--clearenv", *(word for variable in _ENVIRONMENT.items() for word in ("--setenv", *variable))]
    # By default, only bubblewrap's own user can read some of the parent folders that it creates.
    folders = {str(folder) for path in _system_paths() for folder in Path(path).parents}
    for folder in sorted(folders - {"/"} | {"/dev", PACKAGES, OWN}):
        words += ["--perms", "0755", "--dir", folder]
    for path in _system_paths():
        words += ["--ro-bind", path, path]
    words += ["--ro-bind", str(_INSIDE), f"{OWN}/{_INSIDE.name}"]
    for path in _masked_paths():
        words += ["--size", "4096", "--tmpfs", path, "--remount-ro", path]
    for source, target in _package_paths(packages):
        words += ["--ro-bind", source, target]
    words += ["--dev-bind", os.devnull, os.devnull, "--dev-bind", "/dev/urandom", "/dev/urandom"]
    words += ["--perms", "1777", "--size", str(limits.disk_bytes), "--tmpfs", WORK, "--remount-ro", "/"]
    return [*words, "--chdir", WORK]


@cache
def _help_text() -> str:
    process = subprocess.run(
        [shutil.which("bwrap") or "bwrap", "--help"], capture_output=True, text=True, check=False, timeout=10
    )
    return process.stdout


@cache
def _system_paths() -> tuple[str, ...]:
    """Existing paths of the interpreter, its standard library and the shared libraries."""
    return tuple(dict.fromkeys(path for path in _candidate_paths() if os.path.exists(path)))


def _candidate_paths() -> Iterator[str]:
    yield interpreter()
    yield sysconfig.get_path("stdlib")
    if sys.base_prefix not in ("/", "/usr"):
        yield os.path.join(sys.base_prefix, "lib")
    triplet = getattr(sys.implementation, "_multiarch", "")
    yield from (f"/usr/lib/{triplet}", f"/lib/{triplet}") if triplet else ()
    yield from ("/lib64", "/usr/lib64", "/etc/ld.so.cache")


@cache
def _masked_paths() -> tuple[str, ...]:
    """Folders of installed packages inside the standard library's folder."""
    standard = sysconfig.get_path("stdlib")
    folders = (os.path.join(standard, name) for name in ("site-packages", "dist-packages"))
    return tuple(path for path in folders if os.path.isdir(path))


def _package_paths(packages: Sequence[str]) -> Iterator[tuple[str, str]]:
    for name in packages:
        spec = importlib.util.find_spec(name)
        if spec is None or not spec.submodule_search_locations:
            continue
        folder = spec.submodule_search_locations[0]
        for path in (folder, folder + ".libs"):
            if os.path.isdir(path):
                yield path, f"{PACKAGES}/{os.path.basename(path)}"
