"""Environment variables: which of them nothing in the process can read, and which only echo."""

from __future__ import annotations

import mmap
import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from tuner.record.configuration import Value
from tuner.record.launch import ReadBack
from tuner.space.catalogue import KNOBS


def _libraries() -> set[str]:
    """Return the files that this process has mapped to execute."""
    found = set()
    for line in Path("/proc/self/maps").read_text().splitlines():
        parts = line.split(maxsplit=5)
        if "x" in parts[1] and len(parts) > 5 and parts[5].startswith("/"):
            found.add(parts[5])
    return found


def unread(
    framework: str,
    knobs: Iterable[str] | None = None,
    libraries: Collection[str] | None = None,
) -> dict[str, str]:
    """Return the catalogue's variables whose names no mapped library holds, each with the reason.

    libraries: those that another process had mapped; this one's by default.

    A library that reads a variable holds its name. Only variables that compiled code reads are
    searched for (Knob.marker). Searching TensorFlow's 1 GB takes about a second.
    """
    sought = {
        knob.id: knob.marker.encode()
        for knob in KNOBS.values()
        if knob.marker and framework in (knob.frameworks or (framework,))
        if knobs is None or knob.id in knobs
    }
    for path in _libraries() if libraries is None else libraries:
        if not sought:
            break
        try:
            with (
                open(path, "rb") as file,
                mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as content,
            ):
                sought = {k: text for k, text in sought.items() if content.find(text) < 0}
        except (OSError, ValueError):  # deleted since it was mapped, or empty
            continue
    return {
        knob: f"no library of this {framework} knows {marker.decode()}"
        for knob, marker in sought.items()
    }


def of_environment(
    settings: Mapping[str, Value],
    known: set[str],
    framework: str,
    libraries: Collection[str] | None = None,
    environment: Mapping[str, str] = os.environ,
) -> list[ReadBack]:
    """Note the environment variables that nothing else could read back; libraries as in unread.

    environment: that of the measured process, if it is not this one.
    """
    requested = {k: v for k, v in settings.items() if k.startswith("env.") and k not in known}
    unread_ones = unread(framework, requested, libraries) if requested else {}
    found = []
    for knob, value in requested.items():
        if knob in unread_ones:
            found.append(ReadBack(knob, value, None, "effective", unread_ones[knob]))
            continue
        is_set = environment.get(knob.removeprefix("env.")) == str(value)
        how = "set in the environment; its effect cannot be observed"
        found.append(ReadBack(knob, value, value if is_set else None, "environment_only", how))
    return found
