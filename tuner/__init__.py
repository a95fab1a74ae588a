"""tune-framework: find, prove and ship the fastest runtime settings of a model on a host."""

from __future__ import annotations

import os
import typing

if typing.TYPE_CHECKING:
    from tuner.deploy.apply import Applied

__version__ = "0.1.0"


def apply(path: str | os.PathLike[str]) -> Applied:
    """Apply a recommended.toml inside this program; see tuner/deploy/apply.py."""
    from tuner.deploy.apply import apply as apply_here  # imports a framework's adapter

    return apply_here(path)
