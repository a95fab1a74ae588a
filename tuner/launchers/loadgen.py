"""LoadGen with a launch: a process of its own, with a hard time-out and an empty folder.

A model that hangs also hangs LoadGen, which waits for every answer: it is then killed, without a
result.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import select
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from tuner import supervisor
from tuner.host.environment import untuned
from tuner.host.interference import Watch
from tuner.launchers.supervised import Supervised
from tuner.record.serving import LoadgenOrder, LoadgenWord, Validation

_WORD_S = 20.0
"""In which LoadGen writes its logs."""
MISSING = "mlcommons-loadgen is not installed: pip install 'tune-framework[loadgen]'"


def is_installed() -> bool:
    """Tell whether there is a LoadGen."""
    return importlib.util.find_spec("mlperf_loadgen") is not None


class Loadgen:
    """LoadGen, which waits for the instances of a launch to connect, and then sends requests."""

    def __init__(self, order: LoadgenOrder, log: Path) -> None:
        self._log = log
        self._folder = tempfile.TemporaryDirectory(prefix="tune-framework-loadgen-")
        self.address = str(Path(self._folder.name) / "line")
        """Of the Unix socket that the instances connect to."""
        where = Path(self._folder.name) / "empty"
        where.mkdir()
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self.address)
            self._reply, reply_write = os.pipe()
            listener.listen(order.batching.n_servers)
            theirs = (listener.fileno(), reply_write)
            written = msgspec.json.encode(order).decode()
            self._process = Supervised(
                ("-m", "tuner.worker.loadgen", *map(str, theirs), written),
                untuned(os.environ),
                log,
                pass_fds=theirs,
                cwd=where,
            )
        os.close(reply_write)

    def word(self, timeout_s: float) -> LoadgenWord | str:
        """Wait for LoadGen's result; return why there is none if it has none in time."""
        received = b""
        while select.select([self._reply], [], [], timeout_s)[0]:
            piece = os.read(self._reply, 1 << 16)
            if not piece:
                break
            received += piece
        else:
            return f"LoadGen did not end within {timeout_s:.0f} s"
        try:
            return msgspec.json.decode(received, type=LoadgenWord)
        except msgspec.MsgspecError:
            return f"LoadGen failed{self.last_words() or ': it said nothing'}"

    def last_words(self) -> str:
        """Return the last line of its log after a colon; empty if there is none."""
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return f": {lines[-1][:200]}" if lines else ""

    def close(self) -> None:
        """Kill it, and remove its folder."""
        self._process.close()
        os.close(self._reply)
        self._folder.cleanup()


@contextlib.contextmanager
def loadgen(order: LoadgenOrder, log: Path) -> Iterator[Loadgen]:
    """Start LoadGen; nothing of it is left afterwards."""
    found = Loadgen(order, log)
    try:
        yield found
    finally:
        found.close()


def validated(order: LoadgenOrder, log: Path, serve: Callable[[str], str]) -> Validation:
    """Return LoadGen's result for a rate, or why it has none.

    serve: makes the instances connect to an address and answer until they are released; returns why
    they could not, empty if they did.
    """
    answer: LoadgenWord | str
    watch = Watch(of=lambda: supervisor.descendants(os.getpid()))
    try:
        with loadgen(order, log) as asked:
            before = watch.read()
            fault = serve(asked.address)
            seen = watch.between(before, watch.read())  # before it writes its logs, and ends
            answer = f"{fault}{asked.last_words()}" if fault else asked.word(_WORD_S)
    except OSError as error:  # no room for its folder, or a path too long for a socket
        return Validation(order.rate, None, f"LoadGen could not be started: {error}")
    if isinstance(answer, str):
        return Validation(order.rate, None, answer)
    return Validation(order.rate, answer, disturbed=seen.dirty)
