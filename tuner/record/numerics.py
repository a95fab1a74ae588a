"""How far settings may move a model's outputs: ordered levels, and which of them a study admits."""

from __future__ import annotations

import enum
from typing import Literal

Numerics = Literal["both", "same", "reduced", "int8"]
"""What `--numerics` takes."""


class Level(enum.IntEnum):
    """What a setting computes in. Each level has bounds of its own (record/output_check.py)."""

    SAME = 0
    """The model's own types; rounding may differ."""
    REDUCED = 1
    """Floating-point numbers of fewer bits: bf16, TF32."""
    INT8 = 2
    """Whole numbers of eight bits, scaled by the ranges that weights and inputs have."""

    @property
    def in_words(self) -> str:
        """The name of the level in files."""
        return self.name.lower()


_ADMITTED: dict[Numerics, Level] = {
    "same": Level.SAME,
    "reduced": Level.REDUCED,
    "both": Level.REDUCED,
    "int8": Level.INT8,
}


def admitted(numerics: Numerics) -> Level:
    """Return the last level that a study searches."""
    return _ADMITTED[numerics]


def recommends_reduced(numerics: Numerics) -> bool:
    """Tell whether a winner of fewer bits may be the recommendation, and not only be reported."""
    return numerics in ("reduced", "int8")
