"""Text that does nothing to a terminal but appear on it.

A result read from a file, a model's name, a program's last words may hold anything.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

_T = TypeVar("_T", bound=msgspec.Struct)


def printable(text: str) -> str:
    """Put a question mark in the place of every control character, an escape among them."""
    return "".join(c if c.isprintable() else "?" for c in text)


def made_printable(struct: _T) -> _T:
    """Return a struct all of whose text is printable."""
    return msgspec.convert(_each(msgspec.to_builtins(struct)), type(struct))


def _each(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {_each(key): _each(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_each(each) for each in value]
    return value
