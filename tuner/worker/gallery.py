"""Model files: what one states, and how it is loaded by path.

A model file, built-in or a user's, is Python with a MODEL and one function per framework:

    from tuner.worker.gallery import Image, Model

    MODEL = Model(title="...", task="image classification", kind="cnn",
                  inputs=(Image(224, 224, 3),), reference_batch=4, batches=(4, 16), n_classes=1000)

    def torch():            # returns a torch.nn.Module with random weights
    def tensorflow():       # returns a keras.Model; the same model, if both are there

Frameworks are imported inside the functions only. Keyword parameters of the functions can be given
as --model NAME@key=value,...
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import sys
import types
from pathlib import Path
from typing import Any

import msgspec

from tuner.errors import UsageError
from tuner.record.workload import FRAMEWORKS, ModelCard, ModelRef

KINDS = ("cnn", "transformer", "recommendation", "mlp", "other")


class Image(msgspec.Struct, frozen=True):
    """An image input: generated as float32 in NHWC, given to PyTorch in NCHW."""

    height: int
    width: int
    channels: int


class Features(msgspec.Struct, frozen=True):
    """A vector of float32 features."""

    size: int


Input = Image | Features


class Model(msgspec.Struct, frozen=True):
    """What a model file states about its model."""

    title: str
    task: str
    kind: str
    inputs: tuple[Input, ...]
    reference_batch: int
    batches: tuple[int, ...]
    n_classes: int | None = None
    """Number of classes if output 0 holds one score per class, else None."""
    damped_norms: str = ""
    """Regular expression over the names of the batch norms that end a residual block: their scale
    is set to 0.2, because random residual sums otherwise drown the input (outputs become constant
    and every output check passes)."""


def load(path: str) -> types.ModuleType:
    """Import a model file by its path, under a name of its own.

    Raises UsageError if it cannot be read or states no MODEL; lets the file's own errors through.
    """
    if not Path(path).is_file():
        raise UsageError(f"there is no model file {path}")
    name = f"tuner_model_{Path(path).stem.replace('-', '_')}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.append(str(Path(path).parent))  # last: what lies beside the file shadows nothing
    spec.loader.exec_module(module)
    if not isinstance(getattr(module, "MODEL", None), Model):
        raise UsageError(f"{path} states no MODEL = Model(...): see models/README.md")
    return module


def build(module: types.ModuleType, framework: str, ref: ModelRef) -> Any:
    """Call the file's function for a framework.

    Raises UsageError if it has none, or does not take the given parameters.
    """
    function = getattr(module, framework, None)
    if function is None:
        raise UsageError(f"model {ref.name} is not there for {framework}")
    parameters = dict(ref.parameters)
    known = inspect.signature(function).parameters
    for key in parameters:
        if key not in known:
            raise UsageError(
                f"model {ref.name} takes no parameter {key!r}; "
                f"it takes {', '.join(known) or 'none'}"
            )
    return function(**parameters)


def _fault_of(model: Model) -> str:
    if model.kind not in KINDS:
        return f"kind {model.kind!r} is none; allowed are {', '.join(KINDS)}"
    smallest = min((model.reference_batch, *model.batches))
    return f"batch {smallest} is none; batches are positive" if smallest < 1 else ""


def card_of(path: str) -> ModelCard:
    """Read a file's card without building anything; a broken file's card carries its fault."""
    name = Path(path).stem
    try:
        source = hashlib.sha256(Path(path).read_bytes()).hexdigest()
        module = load(path)
    except Exception as error:  # noqa: BLE001  # a user's file may raise anything; the card says so
        kind = "" if isinstance(error, UsageError) else f"{type(error).__name__}: "
        return ModelCard(name, "", "", "", (), 0, (), None, "", f"{kind}{error}")
    model: Model = module.MODEL
    if fault := _fault_of(model):
        return ModelCard(name, "", "", "", (), 0, (), None, "", fault)
    return ModelCard(
        name=name,
        title=model.title,
        task=model.task,
        kind=model.kind,
        frameworks=tuple(f for f in FRAMEWORKS if callable(getattr(module, f, None))),
        reference_batch=model.reference_batch,
        batches=tuple(sorted({model.reference_batch, *model.batches})),
        n_classes=model.n_classes,
        source_sha256=source,
    )
