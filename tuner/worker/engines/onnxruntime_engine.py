"""ONNX Runtime on the CPU.

By itself it starts a thread for each core of the host, bound to it, whatever the affinity and the
quota of the process are (microsoft/onnxruntime#8313, #10113): the number is always set.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.engines import ONNX_RUNTIME
from tuner.record.configuration import Value
from tuner.record.launch import ReadBack
from tuner.space.knobs_of.engines import (
    DEFAULTS,
    DENORMALS,
    DYNAMIC_INT8,
    ENGINE,
    EXECUTION,
    INTER_THREADS,
    NO_QUANTIZATION,
    OPTIMIZATION,
    QUANTIZATION,
    SPINNING,
    STATIC_INT8,
    THREADS,
)
from tuner.worker.evidence.process import threads_by_name
from tuner.worker.frameworks import Array

_LEVELS = {"basic": "ORT_ENABLE_BASIC", "extended": "ORT_ENABLE_EXTENDED", "all": "ORT_ENABLE_ALL"}
_SPINNING_ENTRY = "session.intra_op.allow_spinning"
_DENORMALS_ENTRY = "session.set_denormal_as_zero"


class OnnxRuntime:
    """An inference session."""

    def __init__(self, path: Path, settings: Mapping[str, Value], n_threads: int) -> None:
        import onnxruntime

        self._path, self._settings = path, settings
        self._options = options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # errors; a warning for every constant that it folds
        options.intra_op_num_threads = int(settings.get(THREADS, n_threads))
        is_parallel = settings.get(EXECUTION) == "parallel"
        modes = onnxruntime.ExecutionMode
        options.execution_mode = modes.ORT_PARALLEL if is_parallel else modes.ORT_SEQUENTIAL
        options.inter_op_num_threads = int(settings.get(INTER_THREADS, n_threads))
        level = _LEVELS[str(settings.get(OPTIMIZATION, DEFAULTS[OPTIMIZATION]))]
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
        for knob, entry in ((SPINNING, _SPINNING_ENTRY), (DENORMALS, _DENORMALS_ENTRY)):
            if knob in settings:
                options.add_session_config_entry(entry, str(int(bool(settings[knob]))))
        before = set(threads_by_name())
        self._session = onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )
        self._n_started = len(set(threads_by_name()) - before)
        self._names = [each.name for each in self._session.get_inputs()]

    def run(self, arrays: Sequence[Array]) -> list[Array]:
        """Run the session; it reads the arrays where they lie."""
        found: list[Array] = self._session.run(None, dict(zip(self._names, arrays, strict=True)))
        return found

    def read_back(self) -> list[ReadBack]:
        """Count threads; report what the session's options hold."""
        options, requested = self._session.get_session_options(), self._settings
        is_parallel = "PARALLEL" in str(options.execution_mode)
        n_inter = options.inter_op_num_threads - 1 if is_parallel else 0
        n_threads = 1 + self._n_started - n_inter
        level = str(options.graph_optimization_level).rpartition(".")[2]
        providers = ", ".join(self._session.get_providers())
        found = [
            ReadBack(
                ENGINE, requested[ENGINE], ONNX_RUNTIME, "effective", f"a session of {providers}"
            ),
            ReadBack(
                THREADS,
                requested.get(THREADS),
                n_threads,
                "effective",
                f"{self._n_started} threads appeared with the session",
            ),
            ReadBack(
                OPTIMIZATION,
                requested.get(OPTIMIZATION),
                next((name for name, own in _LEVELS.items() if own == level), level),
                "accepted",
                "the session's options",
            ),
            ReadBack(
                EXECUTION,
                requested.get(EXECUTION),
                "parallel" if is_parallel else "sequential",
                "accepted",
                "the session's options",
            ),
        ]
        if QUANTIZATION in requested:
            found.append(self._quantization(requested[QUANTIZATION]))
        if INTER_THREADS in requested:
            n, how = options.inter_op_num_threads, "the session's options"
            found.append(ReadBack(INTER_THREADS, requested[INTER_THREADS], n, "accepted", how))
        for knob, entry, default in (
            (SPINNING, _SPINNING_ENTRY, "1"),
            (DENORMALS, _DENORMALS_ENTRY, "0"),
        ):
            value = _entry(options, entry) or default
            how = f"{entry}={value}"
            found.append(ReadBack(knob, requested.get(knob), value == "1", "accepted", how))
        return found

    def _quantization(self, requested: Value) -> ReadBack:
        """Report the quantised operators of the model's file."""
        import onnx

        kinds = Counter(
            n.op_type for n in onnx.load(str(self._path), load_external_data=False).graph.node
        )
        of_calls = {k: n for k, n in kinds.items() if k in _DYNAMIC}
        fixed = {k: n for k, n in kinds.items() if k in _STATIC}
        observed = DYNAMIC_INT8 if of_calls else STATIC_INT8 if fixed else NO_QUANTIZATION
        counts = ", ".join(f"{n} {kind}" for kind, n in sorted((of_calls or fixed).items()))
        how = f"the model's file has {counts or 'no quantised operators'}"
        return ReadBack(QUANTIZATION, requested, observed, "effective", how)


_DYNAMIC = {"DynamicQuantizeLinear", "DynamicQuantizeLSTM", "MatMulInteger", "ConvInteger"}
_STATIC = {"QuantizeLinear"}
"""Operators of quantised models: ranges of activations from each call, and from before."""


def _entry(options: Any, name: str) -> str:
    """Return an entry of the session's configuration; empty if it was not set."""
    try:
        return str(options.get_session_config_entry(name))
    except RuntimeError:
        return ""


def load(path: Path, settings: Mapping[str, Value], n_threads: int) -> OnnxRuntime:
    """Make a session of an ONNX file."""
    return OnnxRuntime(path, settings, n_threads)
