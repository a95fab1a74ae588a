"""Calls in TensorFlow's profiler: the executor's operators, and those that XLA compiled.

The trace is an XSpace: planes of lines (threads) of events in picoseconds
(tensorflow/tsl/profiler/protobuf/xplane.proto, TensorFlow 2.21). The executor names an event
"node:Operator"; an event compiled by XLA carries a stat hlo_op.
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tuner.record.launch import Operator
from tuner.worker.frameworks.tensorflow.build import TensorFlowBuild

_HOST = "/host:CPU"
_A_FUNCTION = "__"
"""Prefixes of traced functions: operators inside them have events of their own."""


class TensorFlowProfile:
    """TensorFlow's own profiler."""

    title = "TensorFlow's profiler, over all threads"

    def __init__(self, build: TensorFlowBuild) -> None:
        self._build = build

    def operators(self, calls: Callable[[], None]) -> list[Operator]:
        """Return the time of each operator, over all threads."""
        return operators(self._build.tf, calls)


def operators(tf: Any, calls: Callable[[], None]) -> list[Operator]:
    """Make calls under the profiler; return the time of each operator, without those inside it."""
    options = tf.profiler.experimental.ProfilerOptions(
        host_tracer_level=2, python_tracer_level=0, device_tracer_level=0
    )
    with tempfile.TemporaryDirectory() as folder:
        tf.profiler.experimental.start(folder, options=options)
        try:
            calls()
        finally:
            tf.profiler.experimental.stop()
        traces = [path.read_bytes() for path in Path(folder).rglob("*.xplane.pb")]
    seconds: dict[str, float] = defaultdict(float)
    n_calls: Counter[str] = Counter()
    for trace in traces:
        for name, taken_s in _events(trace):
            seconds[name] += taken_s
            n_calls[name] += 1
    return [Operator(name, seconds[name], n_calls[name]) for name in seconds]


def _events(trace: bytes) -> Iterator[tuple[str, float]]:
    """Yield the operator of each event, and its seconds."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    space = xplane_pb2.XSpace()
    space.ParseFromString(trace)
    for plane in space.planes:
        if plane.name == _HOST:
            for line in plane.lines:
                yield from _of_thread(plane, line)


def _of_thread(plane: Any, line: Any) -> Iterator[tuple[str, float]]:
    """Yield the operators of a thread, each without the time of those inside it."""
    found = [(e.offset_ps, e.duration_ps, name) for e in line.events if (name := _name(plane, e))]
    found.sort(key=lambda event: (event[0], -event[1]))
    inside = [0] * len(found)
    open_: list[int] = []
    for i, (begins, lasts, _) in enumerate(found):
        while open_ and found[open_[-1]][0] + found[open_[-1]][1] <= begins:
            open_.pop()
        if open_:
            inside[open_[-1]] += lasts
        open_.append(i)
    for (_, lasts, name), within in zip(found, inside, strict=True):
        yield name, max(0, lasts - within) / 1e12


def _name(plane: Any, event: Any) -> str:
    """Return the operator of an event; empty if it is not one."""
    name: str = plane.event_metadata[event.metadata_id].name
    if any(plane.stat_metadata[stat.metadata_id].name == "hlo_op" for stat in event.stats):
        return re.sub(r"\.\d+$", "", name)  # numbered where there are several
    node, colon, operator = name.rpartition(":")
    operator = operator.strip()  # TensorFlow 2.21 writes ":: __inference_forward_3052"
    return operator if colon and ":" not in node and not operator.startswith(_A_FUNCTION) else ""
