"""System calls refused to judged programs, as a libseccomp filter."""

import ctypes
import errno
import os
from functools import cache

_REFUSED = (
    # new processes; threads are allowed
    *("fork", "vfork", "execve", "execveat"),
    # signals, which could end the watching process
    *("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_send_signal"),
    # memory and descriptors of other processes
    *("ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "pidfd_getfd", "pidfd_open", "kcmp"),
    # network; vsock reaches the host of a virtual machine from any network namespace
    *("socket", "bind", "listen", "accept", "accept4", "connect"),
    # namespaces and mounts
    *("unshare", "setns", "mount", "umount2", "pivot_root", "chroot"),
    *("move_mount", "open_tree", "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr"),
    # memory outside all limits of the process
    *("memfd_create", "memfd_secret", "shmget", "shmat", "msgget", "semget", "mq_open"),
    # kernel interfaces that are often attacked and not needed here
    *("bpf", "perf_event_open", "userfaultfd", "io_uring_setup", "io_uring_enter", "io_uring_register"),
    *("keyctl", "add_key", "request_key", "init_module", "finit_module", "delete_module", "kexec_load"),
    *("kexec_file_load", "open_by_handle_at", "name_to_handle_at", "quotactl", "acct", "swapon", "swapoff", "reboot"),
    *("fanotify_init", "inotify_init", "inotify_init1", "lookup_dcookie", "syslog", "personality"),
    *("clock_settime", "settimeofday", "adjtimex", "clock_adjtime", "sethostname", "setdomainname"),
)
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_MASKED_EQUAL = 7
_CLONE_THREAD = 0x00010000


class _Comparison(ctypes.Structure):
    _fields_ = [
        ("argument", ctypes.c_uint),
        ("operation", ctypes.c_int),
        ("first", ctypes.c_uint64),
        ("second", ctypes.c_uint64),
    ]


@cache
def filter_program() -> bytes:
    """BPF program for this machine's architecture that allows all system calls except the refused ones.

    Empty if libseccomp is not installed or cannot build the filter.
    """
    try:
        library = ctypes.CDLL("libseccomp.so.2")
    except OSError:
        return b""
    library.seccomp_init.restype = ctypes.c_void_p
    library.seccomp_syscall_resolve_name.argtypes = [ctypes.c_char_p]
    library.seccomp_rule_add_array.argtypes = [
        *(ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint, ctypes.POINTER(_Comparison))
    ]
    library.seccomp_export_bpf.argtypes = [ctypes.c_void_p, ctypes.c_int]
    library.seccomp_release.argtypes = [ctypes.c_void_p]
    context = library.seccomp_init(_ALLOW)
    if not context:
        return b""
    try:
        return _export(library, context) if _add_rules(library, context) else b""
    finally:
        library.seccomp_release(context)


def _add_rules(library: ctypes.CDLL, context: int) -> bool:
    failed = False
    for name in _REFUSED:
        number = library.seccomp_syscall_resolve_name(name.encode())
        if number >= 0:  # unknown to an older library, or missing on this architecture
            failed |= library.seccomp_rule_add_array(context, _ERRNO | errno.EPERM, number, 0, None) != 0
    # A new process is a clone without CLONE_THREAD. The arguments of clone3 are in memory, which a filter cannot read;
    # if the call seems not to exist, the C library uses clone.
    new_process = _Comparison(0, _MASKED_EQUAL, _CLONE_THREAD, 0)
    for name, code, arguments in (("clone", errno.EPERM, (new_process,)), ("clone3", errno.ENOSYS, ())):
        number = library.seccomp_syscall_resolve_name(name.encode())
        array = (_Comparison * len(arguments))(*arguments)
        if number < 0:
            failed |= name == "clone"
        else:
            failed |= library.seccomp_rule_add_array(context, _ERRNO | code, number, len(arguments), array) != 0
    return not failed


def _export(library: ctypes.CDLL, context: int) -> bytes:
    descriptor = os.memfd_create("filter")
    try:
        if library.seccomp_export_bpf(context, descriptor) != 0:
            return b""
        os.lseek(descriptor, 0, os.SEEK_SET)
        return os.read(descriptor, 1 << 16)
    finally:
        os.close(descriptor)
