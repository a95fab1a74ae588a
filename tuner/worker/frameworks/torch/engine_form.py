"""A PyTorch model that another engine carries out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.engines import ONNX_RUNTIME, OPENVINO
from tuner.errors import UsageError
from tuner.record.configuration import Value
from tuner.record.launch import ReadBack
from tuner.space.knobs_of.engines import ENGINE
from tuner.worker import engines
from tuner.worker.engines import openvino_engine
from tuner.worker.engines.conversion import converted
from tuner.worker.frameworks import Calibration, no_inputs
from tuner.worker.frameworks.torch.flattened import Flattened


class EngineForm:
    """Converted for the shapes of its arguments; it takes and returns the framework's tensors."""

    is_built = True

    def __init__(
        self,
        torch: Any,
        model: Any,
        settings: Mapping[str, Value],
        calibration: Calibration = no_inputs,
    ) -> None:
        self._torch = torch
        self._model = model
        self._settings = settings
        self._calibration = calibration
        self._engine: engines.Engine | None = None

    def function(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[..., Any]:
        name = str(self._settings[ENGINE])
        flat = Flattened(self._torch, self._model, args, kwargs)
        if name == OPENVINO:
            self._check_types(flat.tensors)
        flat.call_once()  # exporters turn numbers among the outputs into tensors
        write = _to_onnx if name == ONNX_RUNTIME else _to_openvino
        example = [tensor.numpy() for tensor in flat.tensors]
        with converted(
            self._settings, lambda path: write(self._torch, flat, path), example, self._calibration
        ) as path:
            self._engine = engine = engines.load(
                path, self._settings, self._torch.get_num_threads(), example, flat.n_outputs
            )
        from_numpy = self._torch.from_numpy

        def called(*tensors: Any) -> list[Any]:
            return [from_numpy(each) for each in engine.run([t.numpy() for t in tensors])]

        return flat.with_structure(called)

    def _check_types(self, tensors: Sequence[Any]) -> None:
        """Raise UsageError for what OpenVINO would compute in fewer bits without being asked."""
        double = self._torch.float64
        if any(t.dtype is double for t in (*tensors, *self._model.parameters())):
            raise UsageError("OpenVINO computes float64 in float32")

    def read_back(self) -> list[ReadBack]:
        """Ask the engine."""
        return [] if self._engine is None else self._engine.read_back()


def _to_onnx(torch: Any, flat: Flattened, path: Path) -> None:
    program = torch.onnx.export(flat.module, flat.distinct(), dynamo=True, verbose=False)
    program.save(str(path))


def _to_openvino(torch: Any, flat: Flattened, path: Path) -> None:
    openvino = openvino_engine.imported()
    exported = torch.export.export(flat.module, flat.distinct())
    model = openvino.convert_model(exported)
    openvino.save_model(model, str(path), compress_to_fp16=False)
