"""OpenVINO on the CPU: a thread has one request at a time; more in flight are more instances.

By itself it computes in bf16 where the processor has it: fp32 is set for what must keep its
precision. It does not see quotas (openvinotoolkit/openvino#37838): the number of threads is always
set.
"""

from __future__ import annotations

import queue
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.engines import OPENVINO
from tuner.record.configuration import Value
from tuner.record.launch import ReadBack
from tuner.space.knobs_of.engines import (
    DEFAULTS,
    ENGINE,
    HINT,
    NO_QUANTIZATION,
    PINNING,
    PRECISION,
    QUANTIZATION,
    STATIC_INT8,
    THREADS,
)
from tuner.worker.frameworks import Array

_THREADS, _PRECISION = "INFERENCE_NUM_THREADS", "INFERENCE_PRECISION_HINT"
_HINT, _PINNING = "PERFORMANCE_HINT", "ENABLE_CPU_PINNING"
_TYPES = {"float": "f32", "f32": "f32", "float32": "f32", "bfloat16": "bf16", "bf16": "bf16"}
"""How it names element types."""


def imported() -> Any:
    """Import OpenVINO without its telemetry, which sends usage data until one opts out."""
    if "openvino" not in sys.modules:
        sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]  # as if absent
    import openvino

    return openvino


class OpenVino:
    """A compiled model, with a request for each call under way."""

    def __init__(self, path: Path, settings: Mapping[str, Value], n_threads: int) -> None:
        openvino = imported()
        self._settings = settings
        properties: dict[str, Any] = {
            _THREADS: int(settings.get(THREADS, n_threads)),
            _PRECISION: str(settings.get(PRECISION, DEFAULTS[PRECISION])),
            _HINT: str(settings.get(HINT, DEFAULTS[HINT])),
        }
        if PINNING in settings:
            properties[_PINNING] = bool(settings[PINNING])
        core = openvino.Core()
        self._compiled = core.compile_model(str(path), "CPU", properties)
        self._idle: queue.SimpleQueue[Any] = queue.SimpleQueue()
        """Requests that no thread is using: each takes one call at a time."""

    def run(self, arrays: Sequence[Array]) -> list[Array]:
        """Infer; writable inputs are read where they lie, the outputs copied from the request's."""
        try:
            request = self._idle.get_nowait()
        except queue.Empty:
            request = self._compiled.create_infer_request()
        found = request.infer(list(arrays), share_inputs=True)
        self._idle.put(request)
        return [found[i] for i in range(len(found))]

    def read_back(self) -> list[ReadBack]:
        """Ask the compiled model for its properties."""
        requested, get = self._settings, self._compiled.get_property
        type_ = str(get(_PRECISION).get_type_name())
        precision = _TYPES.get(type_, type_)
        hint = str(get(_HINT)).rpartition(".")[2].upper()
        n_streams = get("NUM_STREAMS")
        return [
            *([self._quantization(requested[QUANTIZATION])] if QUANTIZATION in requested else []),
            ReadBack(
                ENGINE,
                requested[ENGINE],
                OPENVINO,
                "effective",
                f"a model compiled for {', '.join(get('EXECUTION_DEVICES'))}, {n_streams} streams",
            ),
            # in what type it computes is its own choice; the others are what it was given
            ReadBack(
                PRECISION, requested.get(PRECISION), precision, "effective", f"{_PRECISION}={type_}"
            ),
            *(
                ReadBack(knob, requested.get(knob), value, "accepted", f"{name}={value}")
                for knob, name, value in (
                    (THREADS, _THREADS, int(get(_THREADS))),
                    (HINT, _HINT, hint),
                    (PINNING, _PINNING, bool(get(_PINNING))),
                )
            ),
        ]

    def _quantization(self, requested: Value) -> ReadBack:
        """Report the operators that are carried out in eight bits."""
        types = Counter(
            op.get_rt_info()["runtimePrecision"].astype(str)
            for op in self._compiled.get_runtime_model().get_ordered_ops()
            if "runtimePrecision" in op.get_rt_info()
        )
        n_small, n_all = sum(types[name] for name in ("i8", "u8")), sum(types.values())
        observed = STATIC_INT8 if n_small else NO_QUANTIZATION
        how = f"{n_small} of {n_all} operators of the compiled model compute in int8"
        return ReadBack(QUANTIZATION, requested, observed, "effective", how)


def load(path: Path, settings: Mapping[str, Value], n_threads: int) -> OpenVino:
    """Compile an intermediate representation."""
    return OpenVino(path, settings, n_threads)
