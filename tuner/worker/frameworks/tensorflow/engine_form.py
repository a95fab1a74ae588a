"""A TensorFlow model that another engine carries out."""

from __future__ import annotations

import contextlib
import io
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tuner.engines import ONNX_RUNTIME
from tuner.record.configuration import Value
from tuner.space.knobs_of.engines import ENGINE
from tuner.worker import engines
from tuner.worker.engines import openvino_engine
from tuner.worker.engines.conversion import converted


class Carried(NamedTuple):
    """A function of tensors that an engine carries out."""

    function: Callable[..., Any]
    """Returns what the model returns."""
    structure: Any
    """That of the outputs."""
    engine: engines.Engine


def carried_out(
    tf: Any,
    specs: Sequence[Any],
    forward: Callable[..., Any],
    settings: Mapping[str, Value],
    n_threads: int,
) -> Carried:
    """Convert a function of tensors for the engine that the settings name."""
    name = str(settings[ENGINE])
    engines.check_installed(name)
    nest = tf.nest
    structure = (
        tf.function(forward, autograph=False).get_concrete_function(*specs).structured_outputs
    )

    def flat(*tensors: Any) -> list[Any]:
        return [part for part in nest.flatten(forward(*tensors)) if part is not None]

    function = tf.function(flat, input_signature=list(specs), autograph=False)
    write = _to_onnx if name == ONNX_RUNTIME else _to_openvino
    shapes = [(tuple(spec.shape), spec.dtype.name) for spec in specs]
    with converted(settings, shapes, lambda path: write(function, specs, path)) as path:
        engine = engines.load(path, settings, n_threads)

    def called(*tensors: Any) -> Any:
        # what numpy() returns is a copy
        found = iter(engine.run([np.asarray(memoryview(tensor)) for tensor in tensors]))
        parts = [None if p is None else tf.convert_to_tensor(next(found)) for p in leaves]
        return nest.pack_sequence_as(structure, parts)

    leaves = nest.flatten(structure)
    return Carried(called, structure, engine)


def _to_onnx(function: Any, specs: Sequence[Any], path: Path) -> None:
    import tf2onnx
    from keras.src.export.tf2onnx_lib import patch_tf2onnx

    patch_tf2onnx()  # it was written for NumPy 1
    with _quiet():
        tf2onnx.convert.from_function(function, list(specs), output_path=str(path))


def _to_openvino(function: Any, specs: Sequence[Any], path: Path) -> None:
    openvino = openvino_engine.imported()
    with _quiet():
        model = openvino.convert_model(function)
        openvino.save_model(model, str(path), compress_to_fp16=False)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence what tf2onnx prints at every model."""
    logger = logging.getLogger("tf2onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logger.setLevel(level)
