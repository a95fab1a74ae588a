"""tune-framework: find, prove and ship the fastest runtime settings of a model on a host.

tune, recommend, verify (tuner/api.py) and apply (tuner/deploy/apply.py) are imported when they are
first used: the door stays light.
"""

from __future__ import annotations

import typing

from tuner.version import __version__

if typing.TYPE_CHECKING:
    from tuner.api import recommend as recommend
    from tuner.api import tune as tune
    from tuner.api import verify as verify
    from tuner.deploy.apply import apply as apply

__all__ = ["__version__", "apply", "recommend", "tune", "verify"]

_HOMES = {
    "tune": "tuner.api",
    "recommend": "tuner.api",
    "verify": "tuner.api",
    "apply": "tuner.deploy.apply",
}


def __getattr__(name: str) -> typing.Any:
    """Import what is asked for (PEP 562)."""
    import importlib

    if name not in _HOMES:
        raise AttributeError(f"module 'tuner' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
