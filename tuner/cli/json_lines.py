"""A run as JSON lines on standard output: every event, each result among them."""

from __future__ import annotations

import sys

import msgspec

from tuner.record.events import Event


def write_line(event: Event) -> None:
    """Write the line of an event at once: its fields, and its kind as `type`."""
    sys.stdout.buffer.write(msgspec.json.encode(event) + b"\n")
    sys.stdout.buffer.flush()
