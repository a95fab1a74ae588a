"""Ctrl-C, SIGTERM, SIGHUP: each ends the tool by Interrupted, where nothing is left half done."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from tuner.errors import Interrupted


class _Interrupts:
    """The signal that asks this process to end, and how many callers hold it back."""

    def __init__(self) -> None:
        self.asked_by: signal.Signals | None = None
        self.n_holding = 0

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        is_second = self.asked_by is not None
        self.asked_by = signal.Signals(number)
        if is_second or not self.n_holding:
            self.end()

    def end(self) -> None:
        if self.asked_by is not None:
            raise Interrupted(f"stopped by {self.asked_by.name}")


_interrupts = _Interrupts()


@contextmanager
def heeded() -> Iterator[None]:
    """Let signals end the block by Interrupted, except those the process was started to ignore.

    So does an exception that follows a signal: it is what the interrupted made of it. A
    program that imports this tool and goes on after the block is not asked again.
    """
    _interrupts.asked_by = None
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup and shells leave it
            signal.signal(number, _interrupts.on_signal)
    try:
        yield
    except Exception:
        raise_asked()
        raise
    finally:
        _interrupts.asked_by = None


def raise_asked() -> None:
    """Raise Interrupted if a signal has asked for it, which a library may have swallowed.

    Python drops what is raised in a finaliser or a weak reference's callback.
    """
    if not _interrupts.n_holding:
        _interrupts.end()


@contextmanager
def held_back() -> Iterator[None]:
    """Let a signal wait until the block has ended; a second one does not wait.

    For libraries that cannot bear an exception in their midst: SQLAlchemy answered 32 of 400 such
    with errors of its own.
    """
    _interrupts.n_holding += 1
    try:
        yield
    finally:
        _interrupts.n_holding -= 1
        raise_asked()
