"""The winner classes of a study, by what the program that ships a winner has to allow."""

from __future__ import annotations

from enum import StrEnum


class WinnerClass(StrEnum):
    """What a winner may change; each class allows more than the one before it.

    Files of earlier versions named them `launch_only`, `same` and `reduced`, and can still be read.
    """

    NO_CODE = "no_code"
    """Settings from outside the program: environment, allocator, pinning, instances, batch."""
    SAME_PRECISION = "same_precision"
    """Any setting that keeps the numerics."""
    REDUCED_PRECISION = "reduced_precision"
    """Reduced precision too."""

    @property
    def former_name(self) -> str:
        """The name in files of schema version 1."""
        return next(name for name, each in _FORMER.items() if each is self)

    @classmethod
    def _missing_(cls, value: object) -> WinnerClass | None:
        return _FORMER.get(value) if isinstance(value, str) else None


_FORMER = {
    "launch_only": WinnerClass.NO_CODE,
    "same": WinnerClass.SAME_PRECISION,
    "reduced": WinnerClass.REDUCED_PRECISION,
}
