"""tune-framework: find, confirm and deploy the fastest runtime settings of a model on a host.

    tune        find them, by measuring (tuner/api.py)
    recommend   predict them, without a search
    verify      measure a recommendation again
    explain     say why it is faster, by profiles
    time_to_target      train it, and the default, to a quality target
    apply       put a recommendation into force in this process (tuner/deploy/apply.py)
    frame       finished studies as a pandas data frame
    guidelines_frame    guidelines as one

Each is imported when it is first used, so that `import tuner` is fast.
"""

from __future__ import annotations

import typing

from tuner.version import __version__

if typing.TYPE_CHECKING:
    from tuner.api import explain as explain
    from tuner.api import frame as frame
    from tuner.api import guidelines_frame as guidelines_frame
    from tuner.api import recommend as recommend
    from tuner.api import time_to_target as time_to_target
    from tuner.api import tune as tune
    from tuner.api import verify as verify
    from tuner.deploy.apply import apply as apply

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

_HOMES = {
    "explain": "tuner.api",
    "frame": "tuner.api",
    "guidelines_frame": "tuner.api",
    "time_to_target": "tuner.api",
    "tune": "tuner.api",
    "recommend": "tuner.api",
    "verify": "tuner.api",
    "apply": "tuner.deploy.apply",
}


def __getattr__(name: str) -> typing.Any:
    """Import a function when it is first used (PEP 562)."""
    import importlib

    if name not in _HOMES:
        raise AttributeError(f"module 'tuner' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """List the public names, imported or not."""
    return sorted(__all__)
