"""The finding of a check, and what checks examine."""

from __future__ import annotations

from typing import Literal

import msgspec

from tuner.host.identity import Host
from tuner.record.launch import Interference


class Finding(msgspec.Struct, frozen=True):
    """Something that a user should know before measuring here."""

    id: str
    severity: Literal["missing", "shaky", "note"]
    """missing: something cannot be tried. shaky: measurements will be noisy. note: good to know."""
    message: str
    remedy: str
    """The command that mends it, or the reason why nothing needs to be done."""


class Surroundings(msgspec.Struct, frozen=True):
    """Everything the checks look at, read once."""

    host: Host
    frameworks: tuple[str, ...]
    environment: dict[str, str]
    disk_free_bytes: int
    folder: str
    is_writable: bool
    idle: Interference
    """The activity of the CPUs while this tool slept."""
    has_pressure: bool
    clock_source: str | None
