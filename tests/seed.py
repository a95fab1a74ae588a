"""Forks workers in the place of starting them: what a launch imports costs most of what a launch of
the fake costs, and half of one of PyTorch, and is the same each time.

    python -P tests/seed.py SOCKET_FD [MODULE ...]

MODULE: what is imported as well, of PyTorch. An import starts no threads, which a fork would lose;
nothing else runs before. TensorFlow does not bear forking.

For each message {"fds": [their numbers], "order": [control, status]} with its descriptors, one
supervisor is forked, whose number is the answer. It runs tuner/supervisor.py as ever, but for this:
where that would execute the worker, the fork becomes it. A worker whose loader or allocator is
tuned is executed; with a framework's modules, one is that has any other tuning variable, or other
CPUs. The end of the socket is the end of the seed.

The workers of one command have one hash seed and one layout of addresses: what depends on either
shows only where they are started (tests/virtual.py, STARTS), as in test_faults.py.
"""

import contextlib
import fcntl
import gc
import importlib
import importlib.metadata
import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Mapping, Sequence

import numpy.random

import tuner.supervisor
import tuner.worker.check
import tuner.worker.facts
import tuner.worker.frameworks.fake
import tuner.worker.main
from tuner.host.environment import is_tuning_variable

_MOST_FDS = 16
_ABOVE = 200
"""Descriptors from here on are free."""
_BEFORE_MAIN = ("LD_", "GLIBC_", "MALLOC", "_RJEM", "TCMALLOC", "PYTHON")
"""How variables begin that are read before a program's first line."""
_COMPILER = ("CXX",)
"""Variables that tune nothing and that PyTorch reads when it is imported."""
_READ_LATE = ("TORCHINDUCTOR_CACHE_DIR",)
"""Tuning variables that PyTorch reads when it needs them, and not when it is imported."""
_MODULE = "tuner.worker.main"
_IMPORTED = (importlib.metadata, numpy.random)
"""What a worker would import later."""
_execute = os.execve
_modules = sys.argv[2:]
_cpus = os.sched_getaffinity(0)


def _is_read_early(name: str) -> bool:
    if name.startswith(_BEFORE_MAIN):
        return True
    is_of_imports = is_tuning_variable(name) or name in _COMPILER
    return bool(_modules) and is_of_imports and name not in _READ_LATE


def _read_early(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what was read of an environment by now."""
    return {k: v for k, v in environment.items() if _is_read_early(k)}


def _end(code: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _become(path: str, argv: list[str], environment: Mapping[str, str]) -> None:
    """Be the program, as if it had been executed."""
    is_worker = argv[1:4] == ["-P", "-m", _MODULE]
    are_cpus_same = not _modules or os.sched_getaffinity(0) == _cpus  # as libraries read them
    if not (is_worker and are_cpus_same and _read_early(environment) == _read_early(os.environ)):
        _execute(path, argv, environment)
    os.execve = _execute
    os.environ.clear()
    os.environ.update(environment)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        if descriptor > 2 and str(descriptor) not in argv[4:]:
            try:
                os.close(descriptor)
            except OSError:  # by which the list was read
                pass
    sys.argv = [_MODULE, *argv[4:]]
    try:
        tuner.worker.main.main()
    except SystemExit as error:
        _end(error.code if isinstance(error.code, int) else 1)
    except BaseException:  # noqa: BLE001  # a fork of the seed ends here
        traceback.print_exc()
        _end(1)


def _supervise(numbers: Sequence[int], received: Sequence[int], order: tuple[int, int]) -> None:
    """Be the supervisor, with each received descriptor under its number."""
    os.setsid()
    above = [fcntl.fcntl(each, fcntl.F_DUPFD, _ABOVE) for each in received]
    for each in received:
        os.close(each)
    for each, number in zip(above, numbers, strict=True):
        os.dup2(each, number)
        os.close(each)
    os.execve = _become  # type: ignore[assignment]
    tuner.supervisor.main(*order)


def main(line: socket.socket) -> None:
    """Fork until the other end is closed."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them here
    for name in _modules:
        importlib.import_module(name)
    assert len(os.listdir("/proc/self/task")) == 1, f"{_modules} started threads"
    gc.freeze()
    while True:
        message, received, _, _ = socket.recv_fds(line, 1 << 12, _MOST_FDS)
        if not message:
            return
        pid = os.fork()
        if pid == 0:
            line.close()
            asked = json.loads(message)
            try:
                _supervise(asked["fds"], received, asked["order"])
                os._exit(0)
            except BaseException:  # noqa: BLE001  # nothing of it may go on as the seed
                traceback.print_exc()
                os._exit(1)
        for each in received:
            os.close(each)
        line.sendall(b"%d" % pid)


if __name__ == "__main__":
    # who is gone without having read its answer closes the line by resetting it
    with contextlib.suppress(ConnectionError):
        main(socket.socket(fileno=int(sys.argv[1])))
