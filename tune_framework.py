"""The package `tuner` under the name of its distribution: `import tune_framework`."""

from __future__ import annotations

import typing

import tuner
from tuner.version import __version__

if typing.TYPE_CHECKING:
    from tuner import (
        apply,
        explain,
        frame,
        guidelines_frame,
        recommend,
        time_to_target,
        tune,
        verify,
    )

__all__ = [
    "__version__",
    "apply",
    "explain",
    "frame",
    "guidelines_frame",
    "recommend",
    "time_to_target",
    "tune",
    "verify",
]


def __getattr__(name: str) -> typing.Any:
    """Import a function when it is first used (PEP 562)."""
    return getattr(tuner, name)


def __dir__() -> list[str]:
    """List the public names, imported or not."""
    return sorted(__all__)
