"""Models that Keras or TensorFlow saved: .keras files and SavedModel folders.

A .keras file is loaded in Keras's safe mode: Python that was marshalled into it (Lambda layers) is
refused unless the user allows it.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tuner.errors import UsageError
from tuner.record.configuration import Value
from tuner.record.workload import ModelRef
from tuner.worker.gallery import pickles
from tuner.worker.gallery.python_file import layer_names, stated_by_keras
from tuner.worker.gallery.recorded import recorded_inputs
from tuner.worker.gallery.statement import (
    Accuracy,
    Input,
    Model,
    StatesNoLearning,
    batch_axis,
)
from tuner.worker.gallery.unstated import input_of, unstated, without_batch

_SIGNATURE = "serving_default"


class KerasFile(StatesNoLearning):
    """A .keras file."""

    form: str = "saved"
    takes_parameters = False
    accuracy: Accuracy | None = None
    variants: tuple[str, ...] = ()
    parameters: Mapping[str, Value] = MappingProxyType({})

    def __init__(self, ref: ModelRef) -> None:
        self._ref = ref
        self._model: Any = None
        if not ref.allows_pickle and _holds_marshalled_code(ref.path):
            raise UsageError(
                f"{ref.path} holds marshalled Python (a Lambda layer): loading it can execute "
                "anything. If you trust the file: --allow-pickle"
            )

    def frameworks(self) -> tuple[str, ...]:
        """Return TensorFlow."""
        return ("tensorflow",)

    def build(self, framework: str) -> Any:
        """Load the model."""
        if self._model is None:
            import keras

            trusted = self._ref.allows_pickle
            try:
                with pickles.refused(self._ref.path, but_allowed=trusted):
                    loaded = keras.saving.load_model(
                        self._ref.path, compile=False, safe_mode=not trusted
                    )
            except (ValueError, TypeError, OSError) as error:
                raise UsageError(
                    f"Keras cannot load {self._ref.path}: {str(error).splitlines()[0][:200]} (own "
                    "classes: give a function that loads it, --model PATH.py:FUNCTION)"
                ) from error
            self._model = loaded
        return self._model

    def state(self) -> Model:
        """Return the default statement, with the inputs that the model was made for."""
        loaded = self.build("tensorflow")
        if self._ref.inputs:
            types = {i.name: i.dtype for i in loaded.inputs or ()}
            inputs: tuple[Input, ...] = recorded_inputs(self._ref.inputs, types)
        else:
            inputs = stated_by_keras(loaded, self._ref.batch_dim)
        batch = _fixed_batch([i.shape for i in loaded.inputs or ()], self._ref.batch_dim)
        return unstated(self._ref.name, layer_names(loaded), inputs, batch)


def _fixed_batch(shapes: Iterable[Sequence[int | None]], batch_dim: int | None) -> int | None:
    """Return the only batch that inputs of these shapes can have; None where any will do."""
    sizes = (shape[batch_axis(batch_dim, len(shape))] for shape in shapes if len(shape))
    return next((size for size in sizes if size), None)


def _holds_marshalled_code(path: str) -> bool:
    """Tell whether loading a .keras file's model would run byte code, such as a Lambda layer's.

    The training configuration (whose loss may be a lambda) is not loaded.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            config = json.loads(archive.read("config.json"))
    except (OSError, KeyError, ValueError, RecursionError, zipfile.BadZipFile) as error:
        raise UsageError(f"{path} is not a .keras file: {error}") from error
    if isinstance(config, dict):
        config.pop("compile_config", None)
    return '"__lambda__"' in json.dumps(config)


def old_keras_fault(path: Path) -> str:
    """Say how to save a model again that is in Keras's old HDF5 format."""
    if path.name.endswith((".weights.h5", ".weights.hdf5")):
        return (
            f"{path} holds weights and no model: load them into the model (model.load_weights) and "
            f"save it whole, model.save({path.name.split('.')[0] + '.keras'!r}); or give a "
            "function that does, --model PATH.py:FUNCTION"
        )
    return (
        f"{path} is in Keras's old HDF5 format, which is not read; save the model again: "
        f"keras.models.load_model({path.name!r}).save({path.stem + '.keras'!r})"
    )


class SavedModel(StatesNoLearning):
    """The folder of a SavedModel, by its signature serving_default."""

    form: str = "saved"
    takes_parameters = False
    accuracy: Accuracy | None = None
    variants: tuple[str, ...] = ()
    parameters: Mapping[str, Value] = MappingProxyType({})

    def __init__(self, ref: ModelRef) -> None:
        self._ref = ref
        self._function: SavedFunction | None = None

    def frameworks(self) -> tuple[str, ...]:
        """Return TensorFlow."""
        return ("tensorflow",)

    def build(self, framework: str) -> Any:
        """Load the folder; the model is a function of the signature's inputs, by name."""
        if self._function is None:
            import tensorflow as tf

            loaded = tf.saved_model.load(self._ref.path)
            if _SIGNATURE not in loaded.signatures:
                known = ", ".join(loaded.signatures) or "none"
                raise UsageError(
                    f"{self._ref.path} has no signature {_SIGNATURE}; it has {known}. Export it "
                    "with one (model.export of Keras does)"
                )
            self._function = SavedFunction(loaded, loaded.signatures[_SIGNATURE])
        return self._function

    def state(self) -> Model:
        """Return the default statement, with the inputs of the signature."""
        function: SavedFunction = self.build("tensorflow")
        specs = function.specs
        if self._ref.inputs:
            types = {name: spec.dtype.name for name, spec in specs.items()}
            inputs: tuple[Input, ...] = recorded_inputs(self._ref.inputs, types)
        else:
            inputs = tuple(
                input_of(name, without_batch(s.shape.as_list(), self._ref.batch_dim), s.dtype.name)
                for name, s in specs.items()
            )
        shapes = [spec.shape.as_list() for spec in specs.values() if spec.shape.rank]
        batch = _fixed_batch(shapes, self._ref.batch_dim)
        return unstated(self._ref.name, function.operators(), inputs, batch)


class SavedFunction:
    """A signature in the place of a Keras model, called with inputs in the order of names."""

    def __init__(self, loaded: Any, signature: Any) -> None:
        self._loaded = loaded  # keeps its variables alive
        self._signature = signature
        # by name, as their order differs from process to process
        self.specs = dict(sorted(signature.structured_input_signature[1].items()))
        self.trainable_variables: Sequence[Any] = [v for v in signature.variables if v.trainable]

    def __call__(self, inputs: Any, training: bool = False) -> Any:
        """Call the signature."""
        parts = inputs if isinstance(inputs, list) else [inputs]
        return self._signature(**dict(zip(self.specs, parts, strict=True)))

    def operators(self) -> list[str]:
        """Name the operators of the signature's graph."""
        found = [op.type for op in self._signature.graph.get_operations()]
        for function in self._signature.graph.as_graph_def().library.function:
            found += [node.op for node in function.node_def]
        return found
