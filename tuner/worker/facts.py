"""Facts that only a built model shows: its width, its work, its architecture."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from tuner.record.workload import Parameter
from tuner.worker import graph
from tuner.worker.frameworks import Array, Framework


def macs(
    framework: Framework, stated: int | None, call: Callable[[], Any], batch: int
) -> tuple[int | None, str]:
    """Return the multiply-accumulates per sample, as stated or counted, and by whom."""
    if stated:
        return stated, "stated by the model's file"
    try:
        counted = framework.evidence.macs(call, batch)
    except Exception:  # noqa: BLE001  # a counter may raise anything at a user's model
        counted = None
    return counted or (None, "")


def width(framework: Framework, arrays: list[Array]) -> tuple[float, str]:
    """Return the graph's average width; 0.0 with the reason if it cannot be exported."""
    try:
        return graph.average_width(framework.evidence.graph(arrays)), ""
    except Exception as error:  # noqa: BLE001  # an exporter may raise anything at a user's model
        return 0.0, f"{type(error).__name__}: {error}".splitlines()[0][:200]


def fingerprint(parameters: Sequence[Parameter]) -> str:
    """Return a hash over names and shapes, in order; "" if there are no parameters."""
    lines = "".join(f"{p.name} {p.shape}\n" for p in parameters)
    return hashlib.sha256(lines.encode()).hexdigest() if lines else ""
