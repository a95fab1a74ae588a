"""No pickle of a model file is executed unless the user allows it, whatever a loader tries.

Loaders fall back to pickles on their own: torch.export.load (2.13) reads example inputs with
weights_only=False when the safe way fails. Python raises an audit event before any class or
function named by a pickle is looked up (pickle.find_class, PEP 578); here it ends the loading.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tuner.errors import UsageError


class _Guard:
    is_on = False
    is_installed = False
    found = ""


class _Forbidden(Exception):
    """A pickle named something to be looked up."""


def _refuse(event: str, arguments: tuple[object, ...]) -> None:
    if _Guard.is_on and event == "pickle.find_class":
        _Guard.found = ".".join(map(str, arguments))
        raise _Forbidden(_Guard.found)


@contextmanager
def refused(path: str, *, but_allowed: bool) -> Iterator[None]:
    """Let nothing that is loaded inside resolve a name in a pickle.

    Raises UsageError, after the loader gave up, if something tried.
    """
    if but_allowed:
        yield
        return
    if not _Guard.is_installed:  # a hook stays for good
        sys.addaudithook(_refuse)
        _Guard.is_installed = True
    _Guard.is_on, _Guard.found = True, ""
    try:
        yield
    except Exception as error:
        if not _Guard.found:
            raise
        raise UsageError(_told(path)) from error
    finally:
        _Guard.is_on = False
    if _Guard.found:  # the loader went on without
        raise UsageError(_told(path))


def _told(path: str) -> str:
    return (
        f"{path} holds a pickle (it names {_Guard.found}): loading it can execute anything. If you "
        "trust the file: --allow-pickle"
    )
