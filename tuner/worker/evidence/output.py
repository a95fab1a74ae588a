"""Catch what C libraries print: some tell about themselves in no other way."""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def captured(descriptor: int = 1) -> Iterator[list[str]]:
    """Catch the output on a file descriptor; the list is filled on leaving."""
    lines: list[str] = []
    with tempfile.TemporaryFile() as file:
        ctypes.CDLL(None).fflush(None)
        saved = os.dup(descriptor)
        os.dup2(file.fileno(), descriptor)
        try:
            yield lines
        finally:
            ctypes.CDLL(None).fflush(None)
            os.dup2(saved, descriptor)
            os.close(saved)
            file.seek(0)
            lines.extend(file.read().decode(errors="replace").splitlines())
