"""A TensorFlow model that another engine carries out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tuner.engines import ONNX_RUNTIME
from tuner.errors import UsageError
from tuner.record.configuration import Value
from tuner.space.knobs_of.engines import ENGINE
from tuner.worker import engines
from tuner.worker.engines import openvino_engine
from tuner.worker.engines.conversion import converted
from tuner.worker.frameworks import Calibration


class Carried(NamedTuple):
    """A function of tensors that an engine carries out."""

    function: Callable[..., Any]
    """Returns what the model returns."""
    structure: Any
    """That of the outputs."""
    engine: engines.Engine


def carried_out(
    tf: Any,
    tensors: Sequence[Any],
    forward: Callable[..., Any],
    settings: Mapping[str, Value],
    n_threads: int,
    calibration: Calibration,
) -> Carried:
    """Convert a function of tensors like these for the engine that the settings name."""
    name, nest = str(settings[ENGINE]), tf.nest
    specs = [tf.TensorSpec(t.shape, t.dtype) for t in tensors]
    structure = (
        tf.function(forward, autograph=False).get_concrete_function(*specs).structured_outputs
    )

    leaves = nest.flatten(structure)

    def flat(*tensors: Any) -> list[Any]:
        return [part for part in nest.flatten(forward(*tensors)) if part is not None]

    function = tf.function(flat, input_signature=list(specs), autograph=False)
    write = _to_onnx if name == ONNX_RUNTIME else _to_openvino
    example = [np.asarray(memoryview(tensor)) for tensor in tensors]
    with converted(
        settings, lambda path: write(function, specs, path), example, calibration
    ) as path:
        n_outputs = sum(part is not None for part in leaves)
        engine = engines.load(path, settings, n_threads, example, n_outputs)

    def called(*tensors: Any) -> Any:
        # what numpy() returns is a copy
        found = iter(engine.run([np.asarray(memoryview(tensor)) for tensor in tensors]))
        parts = [None if p is None else tf.convert_to_tensor(next(found)) for p in leaves]
        return nest.pack_sequence_as(structure, parts)

    return Carried(called, structure, engine)


def _to_onnx(function: Any, specs: Sequence[Any], path: Path) -> None:
    import tf2onnx
    from keras.src.export.tf2onnx_lib import patch_tf2onnx

    patch_tf2onnx()  # it was written for NumPy 1
    tf2onnx.convert.from_function(function, list(specs), output_path=str(path))


def _to_openvino(function: Any, specs: Sequence[Any], path: Path) -> None:
    openvino = openvino_engine.imported()
    model = _in_order(openvino, openvino.convert_model(function), function)
    openvino.save_model(model, str(path), compress_to_fp16=False)


def _in_order(openvino: Any, model: Any, function: Any) -> Any:
    """Return a converted model with its inputs and outputs in the function's own order.

    The converter sorts them by their names. Raises UsageError if one is not found by its name.
    """
    concrete = function.get_concrete_function()
    n_own = len(concrete.inputs) - len(concrete.captured_inputs)
    inputs = [_named(model.inputs, tensor.name) for tensor in concrete.inputs[:n_own]]
    outputs = [_named(model.outputs, tensor.name) for tensor in concrete.outputs]
    results = [port.get_node() for port in outputs]
    return openvino.Model(results, [port.get_node() for port in inputs], "model")


def _named(ports: Sequence[Any], name: str) -> Any:
    """Return the port of a converted model that has the name of a tensor."""
    wanted = {name, name.removesuffix(":0")}
    found = next((port for port in ports if wanted & set(port.get_names())), None)
    if found is None:
        names = ", ".join(sorted(each for port in ports for each in port.get_names()))
        raise UsageError(f"OpenVINO's converter has no {name} among {names}")
    return found
