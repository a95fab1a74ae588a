"""Paths as typed on the command line: what cannot be one is refused by the option parser."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import typer


def path(given: str | Path) -> Path:
    """Read a path, which may be an option's default; an empty one would be the current folder."""
    text = str(given) if isinstance(given, Path) else given
    if not text:
        raise typer.BadParameter("it is empty; name a file or a folder")
    if not is_utf8(text):
        raise typer.BadParameter(f"{text!r} is not UTF-8; rename it")
    found = Path(text)
    try:
        found.lstat()
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise typer.BadParameter(f"{text[:60]}... is too long for a path") from error
    return found


def file(text: str) -> Path:
    """Read the path of a file that will be written; whatever it replaces must be a file too."""
    found = path(text).resolve()
    if found.exists() and not found.is_file():
        raise typer.BadParameter(f"{text} is not a file; name one")
    if not found.parent.is_dir():
        raise typer.BadParameter(f"there is no folder {found.parent}; make it, or name another")
    if not os.access(found.parent, os.W_OK):
        raise typer.BadParameter(f"the folder {found.parent} may not be written; name another")
    return found


def is_utf8(text: str) -> bool:
    """Tell whether typed text can be stored in a file: arguments may hold any bytes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
