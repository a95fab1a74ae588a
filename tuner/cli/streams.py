"""The three standard streams, whatever the tool was started with: closed, full, without a reader.

What cannot be printed ends nothing: a study goes on measuring, and its files are written.
"""

from __future__ import annotations

import io
import os
import select
import sys
from collections.abc import Callable
from typing import Any

from tuner import supervisor


class Output(io.RawIOBase):
    """A standard descriptor that is written to until that fails; `failure` says why it did."""

    def __init__(self, descriptor: int, tell: Callable[[OSError], None] | None = None) -> None:
        """Write to a descriptor; `tell` is called once, with the failure."""
        self._descriptor = descriptor
        self._tell = tell
        self.failure: OSError | None = None

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._descriptor

    def isatty(self) -> bool:
        """Tell whether it is a terminal."""
        return os.isatty(self._descriptor)

    def writable(self) -> bool:
        """Return True: after a failure, output is dropped."""
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]  # bytes-like, as os.write
        """Write, waiting where another process has made the pipe non-blocking."""
        while self.failure is None:
            try:
                return os.write(self._descriptor, data)
            except BlockingIOError:
                select.select([], [self._descriptor], [])
            except OSError as error:
                self.failure = error
                if self._tell is not None and self.is_lost:
                    self._tell(error)
        return len(data)

    @property
    def is_lost(self) -> bool:
        """Tell whether output is lost; a closed pipe expects nothing more."""
        return self.failure is not None and not isinstance(self.failure, BrokenPipeError)


def open_standard(tell: Callable[[OSError], None]) -> Output:
    """Make the standard streams safe to use, and return standard output's end.

    tell: is called once, when standard output cannot be written and somebody still expects it.
    """
    supervisor.occupy_standard_descriptors()
    output = Output(1, tell)
    sys.stdin = sys.stdin or open(0, closefd=False)
    sys.stdout = _text(output, sys.stdout, line_buffering=output.isatty())
    sys.stderr = _text(Output(2), sys.stderr, line_buffering=True)
    return output


def is_output_lost() -> bool:
    """Tell whether standard output could not be written so far."""
    sys.stdout.flush()
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return isinstance(raw, Output) and raw.is_lost


def _text(output: Output, given: Any, *, line_buffering: bool) -> io.TextIOWrapper:
    """Return a text stream onto an output; what its encoding lacks is written by its number."""
    return io.TextIOWrapper(
        io.BufferedWriter(output),  # type: ignore[type-var]  # raw, as io.RawIOBase is
        encoding=(given and given.encoding) or "utf-8",
        errors="backslashreplace",
        line_buffering=line_buffering,
    )
