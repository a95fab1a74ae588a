"""Where a model comes from: one kind of source per format, chosen by what lies at the path.

Contract of a source:

frameworks()        those that can run the model; may load it to find out
build(framework)    the model: a torch.nn.Module, a keras.Model, or what the framework's adapter
                    takes in its place; the framework is imported and seeded already
state()             what is known of the model; after build() at the latest
form                code (built by Python), script, export or saved: what the knobs ask about
takes_parameters    whether NAME@key=value means anything
accuracy            the user's function of (outputs, inputs), or None
learning(framework) the user's loss and optimizer for training, None each where it states none
target_functions(framework)  the user's samples and quality for a quality target, likewise
variants            names of the variants that a model file has; empty for everything else
parameters          what NAME@key=value may set, with the defaults; empty for everything else

Raises UsageError for what cannot be used as asked for.
"""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec

from tuner.errors import UsageError
from tuner.frameworks import FRAMEWORKS
from tuner.record.configuration import Value
from tuner.record.workload import VARIANT, ModelCard, ModelRef
from tuner.worker.gallery.hugging_face import HuggingFace
from tuner.worker.gallery.python_file import PythonFile
from tuner.worker.gallery.statement import (
    Accuracy,
    Input,
    Learning,
    Model,
    Recorded,
    TargetFunctions,
    as_called,
    fault_of,
)
from tuner.worker.gallery.tensorflow_files import KerasFile, SavedModel, old_keras_fault
from tuner.worker.gallery.torch_files import ExportFile, ScriptFile, kind_of_archive


class Source(Protocol):
    """One way to come by a model; the contract stands above."""

    form: str
    takes_parameters: bool
    accuracy: Accuracy | None
    variants: tuple[str, ...]

    @property
    def parameters(self) -> Mapping[str, Value]: ...

    def frameworks(self) -> tuple[str, ...]: ...

    def build(self, framework: str) -> Any: ...

    def state(self) -> Model: ...

    def learning(self, framework: str) -> Learning: ...

    def target_functions(self, framework: str) -> TargetFunctions: ...


_BY_SUFFIX: dict[str, Callable[[ModelRef], Source]] = {".py": PythonFile, ".keras": KerasFile}
_BY_CONTENT: dict[str, Callable[[ModelRef], Source]] = {
    "config.json": HuggingFace,
    "saved_model.pb": SavedModel,
}
_BY_ARCHIVE: dict[str, Callable[[ModelRef], Source]] = {
    "export": ExportFile,
    "script": ScriptFile,
}


def source_of(ref: ModelRef) -> Source:
    """Return the source of a model.

    Raises UsageError if nothing that is known lies at its path.
    """
    path = Path(ref.path)
    if not path.exists():
        raise UsageError(f"there is no model file {path}")
    if path.is_dir():
        for name, make in _BY_CONTENT.items():
            if (path / name).is_file():
                return make(ref)
        raise UsageError(
            f"{path} holds neither config.json (Hugging Face) nor saved_model.pb (TensorFlow)"
        )
    if path.suffix == ".json":
        return HuggingFace(ref)
    if path.suffix in (".h5", ".hdf5"):
        raise UsageError(old_keras_fault(path))
    return (_BY_SUFFIX.get(path.suffix) or _BY_ARCHIVE[kind_of_archive(path)])(ref)


def card_of(ref: ModelRef) -> ModelCard:
    """Read a model's card; one that cannot be used carries its fault."""
    try:
        source = source_of(ref)
        if ref.parameters and not source.takes_parameters:
            raise UsageError(f"model {ref.name} takes no parameters; it is a file that was saved")
        frameworks = source.frameworks()
        model = as_called(source.state(), ref.batch, ref.batch_dim)
        recorded = {i.path for i in model.inputs if isinstance(i, Recorded)}
        digest = _digest(Path(ref.path), recorded)
    except Exception as error:  # noqa: BLE001  # a user's file may raise anything; the card says so
        if isinstance(error, UsageError):
            return _faulty(ref.name, str(error))
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__)
                 if f.filename == ref.path]  # fmt: skip
        where = f" (line {lines[-1]})" if lines else ""
        text = f"{type(error).__name__}: {error}".splitlines()[0]
        return _faulty(ref.name, f"{ref.path}: {text}{where}")
    fault = fault_of(model)
    if source.accuracy is not None and model.n_shapes() > 1:
        fault = fault or "accuracy() is for inputs of one length; Tokens have several"
    if fault:
        return _faulty(ref.name, f"{ref.path}: {fault}")
    return ModelCard(
        name=ref.label(),
        title=model.title,
        task=model.task,
        kind=model.kind,
        frameworks=tuple(f for f in FRAMEWORKS if f in frameworks),
        reference_batch=model.reference_batch,
        batches=tuple(sorted({model.reference_batch, *model.batches})),
        n_classes=model.n_classes,
        source_sha256=digest,
        form=source.form,
        tolerance=model.tolerance,
        accuracy_loss=None if source.accuracy is None else model.accuracy_loss,
        n_shapes=model.n_shapes(),
        n_parameters=model.n_parameters,
        macs=model.macs,
        widths=model.widths,
        family=model.family,
        item=model.item,
        follows=model.follows,
        systems=model.systems,
        server_bound_s=model.server_bound_s,
        small=model.small,
        differs=model.differs,
        inputs=tuple(map(_in_words, model.inputs)),
        parameters=dict(source.parameters),
        variants=source.variants,
        batch_dim=ref.batch_dim,
    )


def cards_of(ref: ModelRef) -> list[ModelCard]:
    """Read the cards of a model file's variants, or its only one."""
    card = card_of(ref)
    if not card.variants:
        return [card]
    refs = [msgspec.structs.replace(ref, parameters=((VARIANT, v),)) for v in card.variants]
    return [card_of(each) for each in refs]


def _in_words(given: Input) -> str:
    fields = msgspec.structs.asdict(given).items()
    text = " ".join(f"{name}={value}" for name, value in fields if value not in ("", 0.0))
    return f"{type(given).__name__} {text}".strip()


def _faulty(name: str, fault: str) -> ModelCard:
    return ModelCard(name, "", "", "", (), 0, (), None, "", fault=fault)


def _digest(path: Path, recorded: Collection[str]) -> str:
    """Return the SHA-256 over a model's files and its recorded inputs."""
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    if len(files) == 1 and not recorded:
        return hashlib.sha256(files[0].read_bytes()).hexdigest()
    digest = hashlib.sha256()
    for file in (*files, *map(Path, sorted(recorded))):
        with open(file, "rb") as opened:
            digest.update(hashlib.file_digest(opened, "sha256").digest())
    return digest.hexdigest()
