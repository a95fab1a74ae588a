"""Models in Python: a file that states a MODEL, or any function that returns a model.

A model file, built-in or a user's, has a MODEL and one function per framework:

    from tuner.worker.gallery import Image, Model

    MODEL = Model(title="...", task="image classification", kind="cnn",
                  inputs=(Image(224, 224, 3),), reference_batch=4, batches=(4, 16), n_classes=1000)

    def torch():            # returns a torch.nn.Module
    def tensorflow():       # returns a keras.Model; the same model, if both are there

Training (--mode training) uses more functions, if the file has them; torch_loss and the like are
for one framework alone:

    def loss(model, batch):        # returns a scalar tensor; batch: the inputs, then the targets
    def optimizer(parameters):     # returns the optimizer; in TensorFlow it takes no argument
    def torch_loader(batch):       # returns a DataLoader of batches of that size
    def tensorflow_loader(batch):  # returns a tf.data.Dataset of such batches

and, for a quality target (MODEL = Model(..., target=Target("accuracy", 0.9, 10, 1000))),

    def samples(n, seed):          # returns n samples: arrays of the inputs, then of the targets
    def held_out():                # returns the samples on which the quality is measured
    def quality(outputs, targets): # returns a number; more is better

Where the statement depends on parameters, a function model() that returns it stands for MODEL.
Frameworks are imported inside the functions only. Keyword parameters can be given as
--model NAME@key=value,... Where a file has VARIANTS, their names, all of its functions take the
parameter `variant`, and NAME-VARIANT is short for NAME@variant=VARIANT.

PATH.py:FUNCTION names a function of any file: it returns a model, or a pair of a model and one
batch of inputs.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
import types
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import msgspec

from tuner.errors import UnknownName, UsageError
from tuner.frameworks import FRAMEWORKS
from tuner.record.configuration import Value
from tuner.record.workload import VARIANT, ModelRef
from tuner.worker.gallery.recorded import TEXTS, recorded_inputs
from tuner.worker.gallery.statement import (
    Accuracy,
    Input,
    Learning,
    Model,
    Recorded,
    TargetFunctions,
)
from tuner.worker.gallery.unstated import input_of, inputs_like, unstated, without_batch

_STATEMENT = "model"
_VARIANTS = "VARIANTS"
"""The attribute in which a model file lists the suffixes of its variants' names."""
_KINDS: dict[type, tuple[tuple[type, ...], str]] = {
    bool: ((bool,), "true or false"),
    int: ((int,), "a whole number of at most 18 digits"),
    float: ((float, int), "a number"),
}
"""The values allowed for a parameter, by the type of its default; any text for other types."""


class PythonFile:
    """A file of Python, with the function that was named, if any."""

    takes_parameters = True

    def __init__(self, ref: ModelRef) -> None:
        self._ref = ref
        self.form = "code"
        self._module = load(ref.path)
        self._built: Any = None
        self._stated: Model | None = None
        self._framework = ""
        accuracy = getattr(self._module, "accuracy", None)
        # a training script may have an accuracy of its own, for something else
        is_model_file = not ref.function
        self.accuracy: Accuracy | None = accuracy if is_model_file and callable(accuracy) else None
        self.variants = self._stated_variants() if is_model_file else ()
        if ref.function and not callable(getattr(self._module, ref.function, None)):
            own = [
                name
                for name, each in vars(self._module).items()
                if callable(each) and getattr(each, "__module__", "") == self._module.__name__
            ]
            listing = f"there are {', '.join(own)}" if own else "there is none"
            raise UnknownName(f"function of {ref.path}", ref.function, own, listing)
        self._check_parameters()

    def _functions(self) -> dict[str, Callable[..., Any]]:
        """Return the functions that the command line's parameters are for, by name."""
        names = (self._ref.function,) if self._ref.function else (_STATEMENT, *FRAMEWORKS)
        found = {name: getattr(self._module, name, None) for name in names}
        return {name: f for name, f in found.items() if callable(f)}

    @property
    def parameters(self) -> dict[str, Value]:
        """Return the parameters of the functions with their defaults, without a name's variant."""
        signatures = map(inspect.signature, self._functions().values())
        return {
            key: taken.default
            for signature in signatures
            for key, taken in signature.parameters.items()
            if key != VARIANT and type(taken.default) in _KINDS
        }

    def _stated_variants(self) -> tuple[str, ...]:
        """Return the file's VARIANTS; raises UsageError if they are not names."""
        stated = getattr(self._module, _VARIANTS, ())
        if not isinstance(stated, Collection) or not all(isinstance(v, str) for v in stated):
            raise UsageError(
                f"{self._ref.path}: {_VARIANTS} is {stated!r}; it must hold the names of variants, "
                "such as ('base', 'large')"
            )
        return tuple(stated)

    def _check_parameters(self) -> None:
        """Reject an unknown variant, and a parameter that no function takes or of another type."""
        variant = dict(self._ref.parameters).get(VARIANT)
        if self.variants and variant is not None and variant not in self.variants:
            raise UsageError(
                f"model {self._ref.name} has no variant {variant!r}; it has "
                f"{', '.join(self.variants)}"
            )
        signatures = map(inspect.signature, self._functions().values())
        known = {k: p.default for s in signatures for k, p in s.parameters.items()}
        for key, value in self._ref.parameters:
            if key not in known:
                raise UsageError(
                    f"model {self._ref.name} takes no parameter {key!r}; "
                    f"it takes {', '.join(known) or 'none'}"
                )
            default = known[key]
            for kind, (allowed, title) in _KINDS.items():
                if type(default) is kind and type(value) not in allowed:
                    raise UsageError(
                        f"model {self._ref.name} takes {title} for {key}, such as {default}; "
                        f"{value!r} is none"
                    )

    def _call(self, function: Callable[..., Any]) -> Any:
        taken = inspect.signature(function).parameters
        given: dict[str, Value] = {k: v for k, v in self._ref.parameters if k in taken}
        return function(**given)

    def frameworks(self) -> tuple[str, ...]:
        """Return the frameworks that have a function here, or that of the named function."""
        if self._ref.function:
            self._built_by_function()
            return (self._framework,)
        return tuple(name for name in self._functions() if name in FRAMEWORKS)

    def build(self, framework: str) -> Any:
        """Call the function."""
        if self._ref.function:
            return self._built_by_function()
        function = self._functions().get(framework)
        if function is None:
            raise UsageError(f"model {self._ref.name} is not there for {framework}")
        try:
            return self._call(function)
        except ModuleNotFoundError as error:
            package = (error.name or "?").partition(".")[0].replace("_", "-")
            raise UsageError(
                f"model {self._ref.name} needs a package that is not installed here: "
                f"pip install {package}"
            ) from error

    def _built_by_function(self) -> Any:
        if self._built is None:
            made = self._call(getattr(self._module, self._ref.function))
            example = None
            if isinstance(made, tuple) and len(made) == 2:
                made, example = made
            self._framework = _framework_of(made, self._ref)
            self.form = _form_of(made)
            self._built = made
            self._stated = self._statement_of_function(made, example)
        return self._built

    def _statement_of_function(self, made: Any, example: Any) -> Model:
        stated: Model | None = getattr(self._module, "MODEL", None)
        if not isinstance(stated, Model):
            stated = unstated(f"{self._ref.function}() of {self._ref.path}", layer_names(made))
        if self._ref.inputs:
            types = _required(made)
            inputs: tuple[Input, ...] = recorded_inputs(self._ref.inputs, types, by_order=True)
        elif example is not None:
            inputs = inputs_like(example, self._batch_dim(stated))
        else:
            inputs = stated.inputs or stated_by_keras(made, self._batch_dim(stated))
        if not inputs:
            raise UsageError(
                f"what does {self._ref.name} take? Let {self._ref.function}() return a pair "
                "(model, one batch of inputs), or record inputs and name the file: "
                "--inputs FILE.npz"
            )
        return msgspec.structs.replace(stated, inputs=inputs)

    def _batch_dim(self, stated: Model) -> int | None:
        return stated.batch_dim if self._ref.batch_dim is None else self._ref.batch_dim

    def learning(self, framework: str) -> Learning:
        """Return the file's loss, optimizer and loader, by FRAMEWORK_loss or loss, and likewise.

        Raises UsageError if a model file's takes other arguments. Beside a named function other
        things may have these names.
        """
        takes_none = framework != "torch"
        loss = self._stated_function(framework, "loss", ["model", "batch"])
        optimizer = self._stated_function(
            framework, "optimizer", [] if takes_none else ["parameters"]
        )
        return Learning(loss, optimizer, self._stated_function(framework, "loader", ["batch"]))

    def target_functions(self, framework: str) -> TargetFunctions:
        """Return what the file states for a quality target, by FRAMEWORK_samples or samples, ...

        Raises UsageError as learning() does.
        """
        return TargetFunctions(
            self._stated_function(framework, "samples", ["n", "seed"]),
            self._stated_function(framework, "held_out", []),
            self._stated_function(framework, "quality", ["outputs", "targets"]),
        )

    def _stated_function(
        self, framework: str, name: str, parameters: list[str]
    ) -> Callable[..., Any] | None:
        own = f"{framework}_{name}"
        found = getattr(self._module, own, None) or getattr(self._module, name, None)
        if not inspect.isfunction(found):
            return None
        taken = list(inspect.signature(found).parameters)
        is_optimizer = name == "optimizer"  # whose one parameter may have any name
        if taken == parameters or (is_optimizer and len(taken) == len(parameters)):
            return found
        if self._ref.function:
            return None
        raise UsageError(
            f"{found.__name__}({', '.join(taken)}) of {self._ref.path} takes other arguments than "
            f"training gives it: {found.__name__}({', '.join(parameters)})"
        )

    def state(self) -> Model:
        """Return the statement; recorded inputs stand in the place of generated ones."""
        if self._ref.function:
            self._built_by_function()
            assert self._stated is not None
            return self._stated
        made = getattr(self._module, _STATEMENT, None)
        model = self._call(made) if callable(made) else getattr(self._module, "MODEL", None)
        if not isinstance(model, Model):
            raise UsageError(
                f"{self._ref.path} states no MODEL = Model(...): see models/README.md; or name a "
                f"function of it: --model {self._ref.path}:FUNCTION"
            )
        if self._ref.inputs:
            recorded = recorded_inputs(self._ref.inputs)
            if len(recorded) != len(model.inputs):
                raise UsageError(
                    f"{self._ref.inputs} holds {len(recorded)} arrays; {self._ref.name} takes "
                    f"{len(model.inputs)} inputs"
                )
            return msgspec.structs.replace(model, inputs=recorded)
        beside = Path(self._ref.path).parent
        inputs = tuple(
            msgspec.structs.replace(i, path=str(beside / i.path)) if isinstance(i, Recorded) else i
            for i in model.inputs
        )
        return msgspec.structs.replace(model, inputs=inputs)


def load(path: str) -> types.ModuleType:
    """Import a Python file by its path, under a name of its own.

    Raises UsageError if it is not one; the file's own errors pass through.
    """
    name = f"tuner_model_{Path(path).stem.replace('-', '_')}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.append(str(Path(path).parent))  # last: what lies beside the file shadows nothing
    spec.loader.exec_module(module)
    return module


def _framework_of(made: Any, ref: ModelRef) -> str:
    """Find the framework of a model from its class's ancestors, without importing any."""
    roots = {base.__module__.partition(".")[0] for base in type(made).__mro__}
    for name, entry in FRAMEWORKS.items():
        if roots.intersection(entry.model_packages):
            return name
    raise UsageError(
        f"{ref.function}() of {ref.path} returned {type(made).__name__}, which is neither a "
        "torch.nn.Module nor a keras.Model"
    )


def _required(made: Any) -> dict[str, str]:
    """Return the names of a model's inputs, or texts; empty if they are unknown."""
    if getattr(made, "inputs", None):  # Keras
        return {i.name: TEXTS if i.dtype == TEXTS else "" for i in made.inputs}
    forward = getattr(made, "forward", None)
    if forward is None:
        return {}
    return {
        name: ""
        for name, parameter in inspect.signature(forward).parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    }


def _form_of(made: Any) -> str:
    """Tell TorchScript and exported programs, which cannot be made into everything."""
    names = {f"{base.__module__}.{base.__name__}" for base in type(made).__mro__}
    if "torch.jit._script.ScriptModule" in names:
        return "script"
    return "export" if "torch.fx.graph_module.GraphModule" in names else "code"


def layer_names(made: Any) -> list[str]:
    """Return the class names of a model's layers; empty if it does not list them."""
    if hasattr(made, "named_modules"):
        return [type(module).__name__ for module in made.modules()]
    if hasattr(made, "_flatten_layers"):
        return [type(layer).__name__ for layer in made._flatten_layers()]
    return []


def stated_by_keras(made: Any, batch_dim: int | None = None) -> tuple[Input, ...]:
    """Return the inputs that a Keras model was made for; empty if it has none yet."""
    inputs = getattr(made, "inputs", None) or ()
    return tuple(input_of(i.name, without_batch(i.shape, batch_dim), i.dtype) for i in inputs)
