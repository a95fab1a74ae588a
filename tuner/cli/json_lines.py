"""What a run tells, as JSON lines on standard output: every event, each result among them."""

from __future__ import annotations

import os
import sys

import msgspec

from tuner.record.events import Event


class JsonLines:
    """Writes one line for each event: its fields, and its kind as `type`."""

    def __init__(self) -> None:
        self._is_read = True

    def write(self, event: Event) -> None:
        """Write a line at once; nothing more once it cannot be: the study goes on."""
        if not self._is_read:
            return
        try:
            sys.stdout.buffer.write(msgspec.json.encode(event) + b"\n")
            sys.stdout.buffer.flush()
        except OSError as error:
            self._is_read = False
            # what Python flushes at its end would fail again
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            if not isinstance(error, BrokenPipeError):
                print(f"warning: standard output cannot be written ({error.strerror}): no further "
                      "event is told", file=sys.stderr)  # fmt: skip
