"""A configuration: values for knobs, as a hashable value that prints and stores the same way."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeAlias

import msgspec

Value: TypeAlias = str | int | float | bool

VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""Names of environment variables that every shell can set."""


class Configuration(msgspec.Struct, frozen=True, order=False):
    """Settings that differ from the default, sorted by knob id; the empty one is the default."""

    settings: tuple[tuple[str, Value], ...] = ()

    @classmethod
    def of(cls, settings: Mapping[str, Value]) -> Configuration:
        """Build one from a mapping, in canonical order."""
        return cls(tuple(sorted(settings.items())))

    def as_dict(self) -> dict[str, Value]:
        """Return the settings as a plain mapping."""
        return dict(self.settings)

    def get(self, knob: str) -> Value | None:
        """Return the value set for a knob, or None if it has its default."""
        return self.as_dict().get(knob)

    def without(self, *knobs: str) -> Configuration:
        """Return the configuration with these knobs back at their defaults."""
        return Configuration(tuple(pair for pair in self.settings if pair[0] not in knobs))

    def with_value(self, knob: str, value: Value) -> Configuration:
        """Return the configuration with one knob set."""
        return Configuration.of({**self.as_dict(), knob: value})

    def label(self) -> str:
        """Name it on one line, as progress lines and tables show it."""
        return " ".join(f"{knob}={value}" for knob, value in self.settings) or "default"
