"""Forks the command of virtual.py in the place of starting it: a start spends three seconds of CPU
on imports, which are the same each time.

    python -P tests/nest.py SOCKET_FD

For each message {"arguments": [...], "cwd": ..., "environment": {...}} with its three standard
streams and a pipe, one process is forked, which becomes the command. Down the pipe go a line with
its number, and one with its exit code. The end of the socket is the end of the nest.

The commands of one nest have one hash seed and one layout of addresses, and /proc tells of the
nest's environment: what depends on these is started (command.py).
"""

import atexit
import gc
import importlib.util
import json
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_MOST_BYTES = 1 << 20
VIRTUAL = Path(__file__).with_name("virtual.py")


def _virtual() -> Any:
    """Import virtual.py, which is no module of a package here."""
    specification = importlib.util.spec_from_file_location("virtual", VIRTUAL)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def _become(asked: Mapping[str, Any], streams: list[int], virtual: Any) -> int:
    """Be the command, as if it had been started; return its exit code."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    sys.argv = [str(VIRTUAL), *asked["arguments"]]
    try:
        virtual.play()
        return 0
    except SystemExit as error:
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
            return 1
        return error.code or 0
    finally:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()


def _keep(asked: Mapping[str, Any], received: list[int], virtual: Any) -> None:
    """Start the command and tell how it ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    *streams, pipe = received
    pid = os.fork()
    if pid == 0:
        os.close(pipe)
        try:
            code = _become(asked, streams, virtual)
        except BaseException:  # noqa: BLE001  # nothing of it may go on as the nest
            traceback.print_exc()
            code = 1
        os._exit(code)
    for stream in streams:
        os.close(stream)
    os.write(pipe, b"%d\n" % pid)
    _, status = os.waitpid(pid, 0)
    os.write(pipe, b"%d\n" % os.waitstatus_to_exitcode(status))


def main(line: socket.socket) -> None:
    """Fork until the other end is closed."""
    virtual = _virtual()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them here
    gc.freeze()
    while True:
        message, received, flags, _ = socket.recv_fds(line, _MOST_BYTES, 4)
        if not message:
            return
        assert not flags & socket.MSG_TRUNC
        if os.fork() == 0:
            line.close()
            try:
                _keep(json.loads(message), received, virtual)
            except BaseException:  # noqa: BLE001
                traceback.print_exc()
            os._exit(0)
        for each in received:
            os.close(each)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
