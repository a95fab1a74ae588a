"""Models that PyTorch saved: torch.export programs and TorchScript, never a pickled module.

Both formats are ZIP archives. TorchScript is read by PyTorch's own reader, which builds tensors and
its own code and calls no Python. An exported program is JSON and raw weights. Weights of a tensor
subclass, opaque constants and example inputs are stored in it as pickles, and compiled code may be
included (torch.export.pt2_archive of 2.13).
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tuner.errors import UsageError
from tuner.record.configuration import Value
from tuner.record.workload import ModelRef
from tuner.worker.gallery import pickles
from tuner.worker.gallery.recorded import recorded_inputs
from tuner.worker.gallery.statement import (
    Accuracy,
    Input,
    Model,
    StatesNoLearning,
    batch_axis,
)
from tuner.worker.gallery.unstated import input_of, inputs_like, unstated, without_batch

_COMPILED = "/data/aotinductor/"


def kind_of_archive(path: Path) -> str:
    """Return script or export, by the content of the file.

    Raises UsageError for anything else, including a pickled module or state_dict.
    """
    names = _names(path)
    if any(name.endswith("/archive_format") for name in names):
        return "export"
    if any("/code/" in name for name in names) and any(
        name.endswith("/constants.pkl") for name in names
    ):
        return "script"
    if any(name.endswith("/data.pkl") for name in names):
        raise UsageError(
            f"{path} is a pickle of torch.save: loading it can execute anything. Save the model "
            "with torch.export.save or torch.jit.save; or give a function that loads it: "
            "--model PATH.py:FUNCTION"
        )
    if not names and path.suffix in {".pt", ".pt2", ".pth"}:
        raise UsageError(
            f"{path} is damaged or of an old format: PyTorch's files are zip archives, and this "
            "one cannot be read as such; save the model again"
        )
    raise UsageError(
        f"{path} is no model that is known: give PATH.py, PATH.py:FUNCTION, a file of "
        "torch.export.save or torch.jit.save, a .keras file, or the folder of a SavedModel or of "
        "Hugging Face"
    )


def _names(path: Path) -> list[str]:
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.namelist()
    except (OSError, zipfile.BadZipFile):
        return []


class ScriptFile(StatesNoLearning):
    """A file of torch.jit.save."""

    form: str = "script"
    takes_parameters = False
    accuracy: Accuracy | None = None
    variants: tuple[str, ...] = ()
    parameters: Mapping[str, Value] = MappingProxyType({})

    def __init__(self, ref: ModelRef) -> None:
        self._ref = ref
        self._model: Any = None

    def frameworks(self) -> tuple[str, ...]:
        """Return PyTorch."""
        return ("torch",)

    def build(self, framework: str) -> Any:
        """Load the model."""
        if self._model is None:
            import torch

            try:
                self._model = torch.jit.load(self._ref.path, map_location="cpu")
            except RuntimeError as error:
                why = str(error).splitlines()[0]
                raise UsageError(f"torch.jit.load cannot read {self._ref.path}: {why}") from error
        return self._model

    def state(self) -> Model:
        """Return the default statement, with the recorded inputs: TorchScript keeps no shapes."""
        if not self._ref.inputs:
            raise UsageError(
                f"TorchScript keeps no shapes of inputs: record some rows that {self._ref.path} "
                "takes and name the file: --inputs FILE.npz"
            )
        loaded = self.build("torch")
        layers = [str(getattr(m, "original_name", "")) for m in loaded.modules()]
        # traced ones are called x.1 and the like
        given = [str(value.debugName()).partition(".")[0] for value in loaded.graph.inputs()]
        types = dict.fromkeys(given[1:], "")
        inputs = recorded_inputs(self._ref.inputs, types, by_order=True)
        return unstated(self._ref.name, layers, inputs)


class ExportFile(StatesNoLearning):
    """A file of torch.export.save."""

    form: str = "export"
    takes_parameters = False
    accuracy: Accuracy | None = None
    variants: tuple[str, ...] = ()
    parameters: Mapping[str, Value] = MappingProxyType({})

    def __init__(self, ref: ModelRef) -> None:
        self._ref = ref
        self._program: Any = None
        if not ref.allows_pickle and any(_COMPILED in name for name in _names(Path(ref.path))):
            raise UsageError(
                f"{ref.path} holds compiled code of AOTInductor: loading it can execute anything. "
                "Give the exported program alone; or, if you trust the file: --allow-pickle"
            )

    def frameworks(self) -> tuple[str, ...]:
        """Return PyTorch."""
        return ("torch",)

    def _loaded(self) -> Any:
        if self._program is None:
            import torch

            path = self._ref.path
            with pickles.refused(path, but_allowed=self._ref.allows_pickle):
                try:
                    self._program = torch.export.load(path)
                except (RuntimeError, ValueError, KeyError, AssertionError) as error:
                    raise UsageError(
                        f"torch.export.load cannot read {path}: {str(error).splitlines()[0]}"
                    ) from error
        return self._program

    def build(self, framework: str) -> Any:
        """Load the program as a module."""
        return self._loaded().module()

    def state(self) -> Model:
        """Return the default statement; the batch is free if the export left it so."""
        program = self._loaded()
        if program.example_inputs is not None and program.example_inputs[1]:
            raise UsageError(
                f"{self._ref.path} was exported with keyword inputs "
                f"({', '.join(program.example_inputs[1])}): export it with inputs by position"
            )
        names = set(program.graph_signature.user_inputs)
        given = [node.meta["val"] for node in program.graph.nodes if node.name in names]
        if self._ref.inputs:
            types = dict.fromkeys(program.graph_signature.user_inputs, "")
            inputs: tuple[Input, ...] = recorded_inputs(self._ref.inputs, types)
        else:
            inputs = self._generated(program, given)
        dim = self._ref.batch_dim
        sizes = [v.shape[batch_axis(dim, v.ndim)] for v in given if v.ndim]
        fixed = next((size for size in sizes if isinstance(size, int)), None)
        operators = [str(node.target) for node in program.graph.nodes]
        return unstated(self._ref.name, operators, inputs, fixed)

    def _generated(self, program: Any, given: list[Any]) -> tuple[Input, ...]:
        example = program.example_inputs
        if example is not None:
            return inputs_like(tuple(example[0]), self._ref.batch_dim)
        return tuple(
            input_of(
                str(i),
                [s if isinstance(s, int) else None for s in self._of_a_sample(v.shape)],
                str(v.dtype).removeprefix("torch."),
            )
            for i, v in enumerate(given)
        )

    def _of_a_sample(self, shape: Any) -> tuple[Any, ...]:
        return without_batch(tuple(shape), self._ref.batch_dim)
