"""A child process: memory policies and control groups cannot be taken back, and libnuma crashes.

Forked rather than started: under emulation a fresh interpreter takes more than a second.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class ChildDied(Exception):
    """The child ended without an answer; the text says how."""


def _answer(port: Connection, function: Callable[..., Any], args: Any, kwargs: Any) -> None:
    try:
        port.send((True, function(*args, **kwargs)))
    except Exception as error:  # noqa: BLE001  # raised again in the parent
        port.send((False, error))


def in_child(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what the function returns, or raise what it raises, in a child of its own.

    Raises ChildDied if a signal ended it.
    """
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe()
    child = fork.Process(target=_answer, args=(theirs, function, args, kwargs))
    child.start()
    theirs.close()
    try:
        succeeded, value = ours.recv()
    except EOFError as error:
        child.join()
        code = child.exitcode or 0
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        raise ChildDied(f"the child ended by {how}") from error
    child.join()
    if not succeeded:
        raise value
    return value  # type: ignore[no-any-return]
