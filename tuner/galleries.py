"""Where the shipped search spaces, models and report templates lie.

In a wheel they are data below the package; in a checkout (editable install) they lie beside it.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def _folder(inside: str, beside: str) -> Path:
    installed = _PACKAGE / inside
    return installed if installed.is_dir() else _PACKAGE.parent / beside


SEARCH_SPACES = _folder("search_spaces", "search_spaces")
MODELS = _folder("models", "models")
TEMPLATES = _folder("templates", "reports/templates")
GUIDELINES = SEARCH_SPACES / "guidelines.json"
"""The rules that ship with the product, where there are any."""
CALIBRATION = SEARCH_SPACES / "calibration.json"
"""How far predictions by rules err (guidelines/calibration.py)."""
