"""Converted models in whole numbers of eight bits: by ONNX Runtime's own tools, and by NNCF.

Weights are quantised by channel. Dynamic: the ranges of activations are found in each call, for
matrix products alone. Static: they are found beforehand, from inputs of the model, for convolutions
as well.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tuner.engines import ENGINES, ONNX_RUNTIME
from tuner.errors import UsageError
from tuner.space.knobs_of.engines import DYNAMIC_INT8
from tuner.worker.frameworks import Array


def quantized(
    engine: str, quantization: str, path: Path, made: Path, calls: Sequence[Sequence[Array]]
) -> None:
    """Quantise a converted model, and write it to `made`.

    calls: the inputs of each, from which static quantization takes the ranges of activations.

    Raises UsageError if the engine has no such quantization, or what does it is not installed.
    """
    entry = ENGINES[engine]
    for package in entry.quantizers:
        if importlib.util.find_spec(package) is None:
            raise UsageError(f"{package} is not installed here; type: {entry.install_quantizers}")
    if engine == ONNX_RUNTIME:
        _by_onnx_runtime(path, made, calls, is_dynamic=quantization == DYNAMIC_INT8)
    elif quantization == DYNAMIC_INT8:
        raise UsageError(f"{entry.title} has no dynamic quantization of activations")
    else:
        _by_nncf(path, made, calls)


def _by_onnx_runtime(
    path: Path, made: Path, calls: Sequence[Sequence[Array]], *, is_dynamic: bool
) -> None:
    from onnxruntime import quantization as tools

    weights = tools.QuantType.QInt8
    prepared = made.with_name("prepared.onnx")
    tools.quant_pre_process(path, prepared, skip_symbolic_shape=True)
    if is_dynamic:
        # convolutions would run as ConvInteger, which is slower than in fp32
        products = ["MatMul", "Gemm", "LSTM"]
        tools.quantize_dynamic(prepared, made, products, per_channel=True, weight_type=weights)
    else:
        tools.quantize_static(
            prepared,
            made,
            _Inputs(prepared, calls),
            quant_format=tools.QuantFormat.QDQ,
            activation_type=tools.QuantType.QUInt8,
            weight_type=weights,
            per_channel=True,
        )
    for left in made.parent.glob(f"{prepared.name}*"):
        left.unlink()


class _Inputs:
    """What ONNX Runtime reads inputs from."""

    def __init__(self, path: Path, calls: Sequence[Sequence[Array]]) -> None:
        import onnx

        graph = onnx.load(str(path), load_external_data=False).graph
        names = [each.name for each in graph.input]
        self._n_calls = len(calls)
        self._calls = (dict(zip(names, each, strict=True)) for each in calls)

    def get_next(self) -> dict[str, Any] | None:
        """Return the inputs of the next call; None after the last."""
        return next(self._calls, None)

    def __len__(self) -> int:
        return self._n_calls


def _by_nncf(path: Path, made: Path, calls: Sequence[Sequence[Array]]) -> None:
    import nncf

    from tuner.worker.engines.openvino_engine import imported

    openvino = imported()
    model = openvino.Core().read_model(str(path))
    openvino.save_model(
        nncf.quantize(model, nncf.Dataset([list(each) for each in calls]), subset_size=len(calls)),
        str(made),
        compress_to_fp16=False,
    )
