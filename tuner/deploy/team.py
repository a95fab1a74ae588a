"""Run several instances of a program, each on its own cores, as one.

This process stays: it starts the instances under their plans, forwards signals, and ends after
them. An instance that fails ends the others, as in the measurement: half of the instances are not
what was recommended. Nothing that they started outlives a group that failed or was stopped: as a
child subreaper this process inherits every orphan. If it is killed itself, the kernel kills the
process of each instance (not what that had started).
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Iterable, Iterator, Sequence

from tuner.deploy.run import CannotRun, Tell, apply_placement, become, observe
from tuner.space.launching import LaunchPlan
from tuner.supervisor import descendants

# include/uapi/linux/prctl.h
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PASSED_ON = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_SI_KERNEL = 0x80  # include/uapi/asm-generic/siginfo.h
"""A signal from the terminal, which every instance gets by itself."""
_PATIENCE_S = 10.0
"""For instances that were told to end."""
_LOOK_AGAIN_S = 0.05
"""Orphans of orphans become children of this process without a signal."""


def run_team(plans: Sequence[LaunchPlan], command: Sequence[str], tell: Tell) -> int:
    """Run one instance per plan until all have ended; return the exit code of all.

    0 if every instance ended with 0; else the code of the first that failed, 128 + N for signal N.
    Rank 0 has this process's standard input, the others none. tell: is called with a line at a
    time.
    """
    waited_for = {*_PASSED_ON, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waited_for)
    ignored = signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # else the kernel reaps them unseen
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    not_theirs = set(descendants(os.getpid()))  # of the shell that became this process
    try:
        running: dict[int, int] = {}
        begun = []
        for plan in plans:
            begun_read, begun_write = os.pipe()  # closed when the program is executed
            begun.append(begun_read)
            running[_start(plan, command, before, begun_write)] = plan.rank
            os.close(begun_write)
        faults = [_read_all(pipe) for pipe in begun]
        if any(faults):
            tell(f"error: {next(filter(None, faults))}")
        else:
            not_theirs.add(_look(plans, running, tell))
        code, is_ended = _wait(running, len(plans), waited_for, tell)
        if is_ended:
            _end_orphans(not_theirs)
        return code
    finally:
        signal.signal(signal.SIGCHLD, ignored)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start(plan: LaunchPlan, command: Sequence[str], mask: Iterable[int], begun: int) -> int:
    """Fork an instance; what keeps it from becoming the program is written to `begun`."""
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    code = 125
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() == parent:
            if plan.rank > 0:
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            apply_placement(plan)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            become(plan, command)
    except CannotRun as error:
        code = error.exit_code
        os.write(begun, str(error).encode())
    except OSError as error:
        os.write(begun, f"instance {plan.rank}: {error}".encode())
    finally:
        os._exit(code)


def _read_all(pipe: int) -> str:
    """Return what was written until the last holder closed it."""
    with open(pipe, "rb") as file:
        return file.read().decode()


def _look(plans: Sequence[LaunchPlan], running: dict[int, int], tell: Tell) -> int:
    """Report what is in force, in a process of its own, which is returned."""
    child = os.fork()
    if child:
        return child
    try:
        for line in _seen(plans, running):
            tell(line)
    finally:
        os._exit(0)


def _seen(plans: Sequence[LaunchPlan], running: dict[int, int]) -> list[str]:
    """Look at every running instance; what all have in common is printed once."""
    lines: dict[str, list[int]] = {}
    for pid, rank in running.items():
        for line in observe(plans[rank], pid):
            lines.setdefault(line, []).append(rank)
    return [
        line if len(ranks) == len(plans) else f"instance {', '.join(map(str, ranks))}: {line}"
        for line, ranks in lines.items()
    ]


def _wait(
    running: dict[int, int], n_instances: int, waited_for: set[signal.Signals], tell: Tell
) -> tuple[int, bool]:
    """Wait until every instance has ended; return the exit code, and whether they were ended."""
    code, deadline, is_ending = 0, float("inf"), False
    while running:
        left = deadline - time.monotonic()
        got = signal.sigtimedwait(waited_for, min(left, 3600.0)) if left > 0 else None
        if left <= 0:
            _send(running, signal.SIGKILL)
            deadline = float("inf")
        elif got is not None and got.si_signo != signal.SIGCHLD:
            is_ending |= got.si_signo in _ENDING
            if got.si_code != _SI_KERNEL:
                _send(running, signal.Signals(got.si_signo))
        for pid, status in _ended():
            if pid not in running:  # an orphan of theirs, or the observer
                continue
            rank, own = running.pop(pid), os.waitstatus_to_exitcode(status)
            if own != 0 and code == 0:
                code = own if own > 0 else 128 - own
                how = f"exit code {own}" if own > 0 else signal.Signals(-own).name
                if running and not is_ending:  # who was told to end may take its time
                    tell(f"instance {rank} of {n_instances} ended with {how}: ending the others")
                    _send(running, signal.SIGTERM)
                    deadline = time.monotonic() + _PATIENCE_S
    return code, is_ending or code != 0


def _ended() -> Iterator[tuple[int, int]]:
    """Collect the children that have ended, each with its wait status."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:  # there is none left
            return
        if not pid:
            return
        yield pid, status


def _end_orphans(not_theirs: Iterable[int]) -> None:
    """End what the instances have left running, but not these processes and what those started.

    Each process is asked once, then killed; one that survives, such as another user's, stays.
    """
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + _PATIENCE_S
        signalled: set[int] = set()
        while time.monotonic() < deadline:
            list(_ended())
            spared = {below for pid in not_theirs for below in (pid, *descendants(pid))}
            left = set(descendants(os.getpid())) - spared
            if not left:
                return
            _send(left - signalled, number)
            signalled |= left
            signal.sigtimedwait([signal.SIGCHLD], _LOOK_AGAIN_S)


def _send(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):  # it has ended, or is another user's
            continue
