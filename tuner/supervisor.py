"""Start one process and kill everything it left behind when the tool dies in any way.

Run by path, with the standard library alone, between the tool and each measured process:

    python -I -S supervisor.py CONTROL_FD STATUS_FD

CONTROL_FD: one JSON line with the order; its end of file means that the tool has gone, or wants the
process gone. STATUS_FD: one JSON line when the process runs, one when it has ended.
Order: {"argv": [...], "env": {...}, "cwd": "...", "log": "path", "cpus": [..] or null,
        "pass_fds": [..]}
Status: {"pid": 12} or {"error": "..."}; then {"exit": 0} or {"signal": 9}, with "peak_rss_bytes".

As a child subreaper it inherits every orphan of the process, daemons included, so that nothing can
escape by forking twice. Should the supervisor itself be killed, the process gets SIGKILL from the
kernel (PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
import time
from collections.abc import Container, Iterable, Mapping
from typing import Any

# include/uapi/linux/prctl.h
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def occupy_standard_descriptors() -> None:
    """Open the null device in the place of every standard descriptor that is closed.

    Otherwise the next file or pipe to be opened would be taken for standard input or output. A
    program that is executed later finds them closed again.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one


def parents(but: Container[str] = ()) -> dict[int, int]:
    """Return the parent of every process on the machine; but: numbers that are left out."""
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit() or name in but:
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                # the command may hold spaces and brackets: the fields start after the last one
                found[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
        except (OSError, IndexError):  # gone meanwhile
            continue
    return found


def descendants(pid: int) -> list[int]:
    """Return every process below `pid`, parents before children."""
    return _below(pid, parents())


def _below(pid: int, parent_of: Mapping[int, int]) -> list[int]:
    children: dict[int, list[int]] = {}
    for child, parent in parent_of.items():
        children.setdefault(parent, []).append(child)
    found: list[int] = []
    queue = [pid]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


class Kin:
    """Finds descendants of this process again and again, reading only what may be one.

    Who is seen to descend from others never becomes one, but its number may be given to one in
    time: after a second, everybody is read again.
    """

    _READ_AGAIN_S = 1.0

    def __init__(self) -> None:
        self._strangers: set[str] = set()
        self._since_s = 0.0

    def below(self, pid: int) -> list[int]:
        """Return every process below `pid`, which is below this one; parents before children."""
        now_s = time.monotonic()
        if now_s - self._since_s > self._READ_AGAIN_S:
            self._strangers, self._since_s = set(), now_s
        parent_of = parents(self._strangers)
        ours = {os.getpid(), *_below(os.getpid(), parent_of)}
        seen = set(_below(0, parent_of))  # whose parents were read as well
        self._strangers.update(map(str, seen - ours))
        return _below(pid, parent_of)


def _reap() -> dict[int, tuple[int, int]]:
    """Collect ended children: pid to (wait status, peak resident bytes)."""
    ended: dict[int, tuple[int, int]] = {}
    while True:
        try:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = (status, usage.ru_maxrss * 1024)


def _kill_everything() -> dict[int, tuple[int, int]]:
    """SIGKILL every descendant until there is none; stopped ones die too."""
    ended = _reap()
    while True:
        left = descendants(os.getpid())
        if not left:
            return ended
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.002)
        ended.update(_reap())


def _forget_openmp(pids: Iterable[int]) -> None:
    """Remove what LLVM's and Intel's OpenMP runtimes leave of processes that were killed.

    Each process with such a runtime has a file of this name until it ends by itself
    (__kmp_register_library_startup in kmp_runtime.cpp).
    """
    for pid in pids:
        for folder in ("/dev/shm", "/tmp"):
            try:
                # pathlib takes longer to import than all else here
                os.unlink(f"{folder}/__KMP_REGISTERED_LIB_{pid}_{os.getuid()}")  # noqa: PTH108
            except OSError:
                pass


def _start(order: dict[str, Any]) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    null = os.open(os.devnull, os.O_RDONLY)
    me = os.getpid()
    pid = os.fork()
    if pid:
        os.close(log)
        os.close(null)
        for fd in order["pass_fds"]:
            os.close(fd)
        return pid
    try:
        os.setsid()  # its own process group, so that SIGSTOP reaches all of it
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != me:
            os._exit(1)
        os.dup2(null, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        for fd in order["pass_fds"]:
            os.set_inheritable(fd, True)
        if order["cpus"] is not None:
            os.sched_setaffinity(0, order["cpus"])
        try:  # when memory runs out, the kernel takes the measured process, not the tool
            with open("/proc/self/oom_score_adj", "w") as file:
                file.write("500")
        except OSError:
            pass
        os.chdir(order["cwd"])
        os.execve(order["argv"][0], order["argv"], order["env"])
    except BaseException as error:  # noqa: BLE001  # nothing may run on in the forked child
        os.write(2, f"cannot start {order['argv'][0]}: {error}\n".encode())
    os._exit(127)


def main(control: int, status: int) -> None:
    """Serve one order until the process has ended or the tool has gone."""

    def tell(**fields: object) -> None:
        try:
            os.write(status, json.dumps(fields).encode() + b"\n")
        except BrokenPipeError:
            pass

    os.set_inheritable(control, False)
    os.set_inheritable(status, False)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)

    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(control, 1 << 16)
        if not piece:
            return
        line += piece
    try:
        pid = _start(json.loads(line))
    except OSError as error:
        tell(error=str(error))
        return
    tell(pid=pid)
    ended: dict[int, tuple[int, int]] = {}
    while pid not in ended:
        ready, _, _ = select.select([control, wake_read], [], [])
        if control in ready and not os.read(control, 1 << 16):
            break
        if wake_read in ready:
            os.read(wake_read, 1 << 12)
        ended.update(_reap())
    ended.update(_kill_everything())
    _forget_openmp(ended)
    wait_status, peak = ended.get(pid, (signal.SIGKILL, 0))
    code = os.waitstatus_to_exitcode(wait_status)
    if code < 0:
        tell(signal=-code, peak_rss_bytes=peak)
    else:
        tell(exit=code, peak_rss_bytes=peak)


if __name__ == "__main__":
    occupy_standard_descriptors()
    main(int(sys.argv[1]), int(sys.argv[2]))
