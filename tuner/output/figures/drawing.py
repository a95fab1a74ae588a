"""The drawing of charts as SVG, in a process of its own, which runs this file by its path.

    python -P drawing.py < specifications.json > drawings.json

vl-convert contains V8, which reserves gigabytes of addresses and ends its process if it may not
have them (ulimit -v). The results must not depend on that.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

_VEGA_LITE = "6.4"
_PATIENCE_S = 120.0


class NotDrawn(Exception):
    """The charts could not be drawn here; the message says why."""


def drawings(specifications: Sequence[dict[str, Any]]) -> list[str]:
    """Return Vega-Lite specifications as SVG text; raises NotDrawn.

    Nothing is loaded from anywhere: the data are in the specifications. Vega escapes all text.
    """
    if not specifications:
        return []
    try:
        done = subprocess.run(
            [sys.executable, "-P", __file__],
            input=json.dumps(specifications).encode(),
            capture_output=True,
            timeout=_PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotDrawn(str(error)) from error
    if done.returncode != 0:
        lines = [line.strip() for line in done.stderr.decode(errors="replace").splitlines()]
        said = next((line for line in lines if "rror" in line or "memory" in line), "")
        raise NotDrawn(said or f"drawing ended with {done.returncode}")
    found: list[str] = json.loads(done.stdout)
    return found


def draw(specifications: Sequence[dict[str, Any]]) -> list[str]:
    """Return the same, drawn in this process."""
    import vl_convert

    return [
        vl_convert.vegalite_to_svg(each, vl_version=_VEGA_LITE, allowed_base_urls=[])
        for each in specifications
    ]


if __name__ == "__main__":
    json.dump(draw(json.load(sys.stdin)), sys.stdout)
