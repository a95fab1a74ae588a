"""Training steps of a Keras model: train_on_batch() as compile() makes it by default."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import numpy as np

from tuner.errors import UsageError
from tuner.record.protocol import Begin
from tuner.record.workload import StepMemory
from tuner.worker.frameworks import Array
from tuner.worker.frameworks.tensorflow.build import GENERATOR, TensorFlowBuild
from tuner.worker.frameworks.tensorflow.executed import collected
from tuner.worker.frameworks.tensorflow.inference import TensorFlowInference
from tuner.worker.frameworks.tensorflow.knobs import XLA
from tuner.worker.frameworks.tensorflow.loading import Loader
from tuner.worker.frameworks.training import (
    DETACHED,
    Learned,
    Learner,
    Loading,
    Task,
    batch_axis,
    random_targets,
    signs,
    stated_loss,
    stated_optimizer,
)

_TRIED = 3
"""Steps at a learning rate of 0 after which the weights are compared."""


class TensorFlowTraining(TensorFlowInference):
    """The timed work of a model that learns.

    The default is a compiled model's train_on_batch(); of a file that states a loss(model, batch),
    one tf.function of GradientTape and apply().
    """

    task = Task()

    @property
    def optimizer_name(self) -> str:
        """The class of the optimizer; empty before there is one."""
        return "" if self._optimizer is None else type(self._optimizer).__name__

    def __init__(self, build: TensorFlowBuild) -> None:
        super().__init__(build)
        self._optimizer: Any = None
        self._rate = 0.0
        self._first: list[Array | None] = []
        """The model's variables before the first step: the trainable ones are copied when they are
        needed, as timed steps do not move them; None until then."""
        self._unused: list[Array | None] = []
        """The optimizer's variables, likewise; None for zeros."""
        self._gradients: list[Any] = []
        """Variables that hold the last gradients; none are kept while steps are timed."""
        self._is_compiled = False
        self._function: Any = None
        """The step of a file that states its loss."""
        self._batch: tuple[Any, ...] = ()
        self._take: Callable[[Sequence[Any]], Any] | None = None
        """A step on any batch."""
        self.loss_name = ""

    @property
    def _given(self) -> Any:
        """The user's model if it was compiled; else None."""
        given = self._build.as_given
        return given if getattr(given, "compiled", False) else None

    def _begin(self) -> None:
        """Make the optimizer, once; its learning rate is 0 from then on."""
        if self._optimizer is not None:
            return
        tf, model = self._tf, self._build.model
        if not isinstance(model, tf.keras.Model):
            raise UsageError(
                "the model is no keras.Model (a SavedModel, or a function): give the code that "
                "builds it, which training needs"
            )
        if not model.trainable_variables:
            raise UsageError("no variable of the model is trainable: there is nothing to train")
        make = self.task.optimizer
        optimizer = stated_optimizer(make) if make else getattr(self._given, "optimizer", None)
        optimizer = optimizer or tf.keras.optimizers.AdamW()
        if not isinstance(optimizer, tf.keras.optimizers.Optimizer):
            raise UsageError(
                f"optimizer() returned a {type(optimizer).__name__}; it must return a "
                "keras.optimizers.Optimizer"
            )
        self._optimizer = optimizer = _at_one_rate(optimizer)
        if not optimizer.built:
            optimizer.build(model.trainable_variables)
        trainable = {id(v) for v in model.trainable_variables}
        self._first = [None if id(v) in trainable else v.numpy() for v in model.variables]
        self._unused = [_unless_zero(v.numpy()) for v in optimizer.variables]
        self._rate = float(optimizer.learning_rate)
        optimizer.learning_rate = 0.0

    def program(self, arrays: Sequence[Array]) -> Callable[[], Any]:
        """Bind a batch; executed on the CPU, a step returns when its update is done."""
        tf = self._tf
        self._begin()
        batch = tuple(map(tf.constant, arrays))
        is_new = not self._batch
        self._batch = batch
        n = self.task.n_inputs
        take = self._take = (
            self._taped() if self.task.loss else self._compiled(batch[:n], batch[n:])
        )

        def step() -> Any:
            return take(batch)

        if is_new:
            self.execution = collected(self._build.context.context(), step)
            self.n_variables = len(self._build.model.variables)
        return step

    @property
    def _jit(self) -> Any:
        """What jit_compile is set to; Keras's own choice if it is not set."""
        requested = self._build.settings.get(XLA)
        return "auto" if requested is None else bool(requested)

    def _compiled(self, inputs: Sequence[Any], targets: Sequence[Any]) -> Callable[[Any], Any]:
        """Return a step of a compiled model; compile it, unless its user did for these targets."""
        tf, model, n = self._tf, self._build.model, len(inputs)
        loss = getattr(self._given, "loss", None) if targets else None
        if not targets:
            shapes = [
                tuple(y.shape) for y in tf.nest.flatten(model(_given(inputs), training=False))
            ]
            targets = tuple(map(tf.constant, random_targets(shapes, self.task.n_classes)))
        if not self._is_compiled:
            self._compile(loss or self._stand_ins(targets), is_own=loss is not None)
        drawn = _given(targets)

        def step(batch: Sequence[Any]) -> Any:
            y = _given(batch[n:]) if len(batch) > n else drawn
            return model.train_on_batch(_given(batch[:n]), y, return_dict=True)["loss"]

        return step

    def _stand_ins(self, targets: Sequence[Any]) -> Any:
        losses = self._tf.keras.losses
        made = [
            losses.MeanSquaredError()
            if target.dtype.is_floating
            else losses.SparseCategoricalCrossentropy(from_logits=True)
            for target in targets
        ]
        names = ("mean squared error" if y.dtype.is_floating else "cross-entropy" for y in targets)
        self.loss_name = " + ".join(dict.fromkeys(names))
        return made[0] if len(made) == 1 else made

    def _compile(self, loss: Any, *, is_own: bool) -> None:
        model, self._is_compiled = self._build.model, True
        if is_own:
            self.loss_name = (
                loss if isinstance(loss, str) else f"the {type(loss).__name__} of compile()"
            )
        if is_own and model.compiled and model.optimizer is self._optimizer:
            if self._jit != "auto":
                model.jit_compile = self._jit
                model.make_train_function(force=True)
            return
        model.compile(optimizer=self._optimizer, loss=loss, jit_compile=self._jit)

    def _taped(self) -> Callable[[Any], Any]:
        tf, model, optimizer = self._tf, self._build.model, self._optimizer
        loss_of = self.task.loss
        assert loss_of is not None
        self.loss_name = f"{loss_of.__name__}(model, batch)"

        def forward_and_back(*batch: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = stated_loss(loss_of(model, batch), "loss()")
            gradients = tape.gradient(loss, model.trainable_variables)
            pairs = [
                (g, v) for g, v in zip(gradients, model.trainable_variables, strict=True)
                if g is not None
            ]  # fmt: skip
            if not pairs:
                raise UsageError(DETACHED)
            optimizer.apply_gradients(pairs)
            return loss

        if self._function is None:
            jit = None if self._jit == "auto" else self._jit
            self._function = tf.function(forward_and_back, jit_compile=jit, autograph=False)

        def step(batch: Sequence[Any]) -> Any:
            return self._function(*batch).numpy()

        return step

    def _trace_anew(self) -> None:
        self._function = None
        if self._build.model.compiled:
            self._build.model.make_train_function(force=True)

    def learn(self, step: Callable[[], Any], n_steps: int) -> Learned:
        """Take steps from the first weights on, with an optimizer that remembers nothing."""
        model, optimizer = self._build.model, self._optimizer
        self._keep_gradients()
        self._set_to_first()
        losses: list[float] = []
        gradients: list[Array] = []
        try:
            for _ in range(n_steps):
                if model.compiled:
                    model.reset_metrics()  # Keras returns the mean over all steps before
                losses.append(float(step()))
                gradients = gradients or [g.numpy().astype(np.float32) for g in self._gradients]
        finally:
            optimizer.learning_rate = 0.0
        firsts = {id(v): f for v, f in zip(model.variables, self._first, strict=True)}
        moved = [
            float(np.linalg.norm(np.asarray(v.numpy() - firsts[id(v)], dtype=np.float64)))
            for v in model.trainable_variables
        ]
        names = [getattr(v, "path", v.name) for v in model.trainable_variables]
        return Learned(np.asarray(losses), gradients, moved, names)

    def _set_to_first(self) -> None:
        """Set the model's and the optimizer's variables to what they were before the first step."""
        model, optimizer = self._build.model, self._optimizer
        self._remember()
        for variable, first in zip(model.variables, self._first, strict=True):
            if GENERATOR not in variable.path:  # else every seed would be the same
                variable.assign(first)
        for variable, unused in zip(optimizer.variables, self._unused, strict=True):
            variable.assign(np.zeros(variable.shape) if unused is None else unused)
        optimizer.learning_rate = self._rate

    def learner(self, example: Sequence[Array]) -> Learner:
        """Return the model with its first weights, and its optimizer unused."""
        tf, model = self._tf, self._build.model
        self.program(example)
        self._set_to_first()
        take = self._take
        assert take is not None
        answer = tf.function(lambda *given: model(_given(given), training=False), autograph=False)

        def step(arrays: Sequence[Array]) -> None:
            take(tuple(map(tf.constant, arrays)))

        def evaluate(inputs: Sequence[Array]) -> list[Array]:
            return self.outputs(answer(*map(tf.constant, inputs)))

        return Learner(step, evaluate)

    def _remember(self) -> None:
        pairs = zip(self._build.model.variables, self._first, strict=True)
        self._first = [v.numpy() if first is None else first for v, first in pairs]

    def _keep_gradients(self) -> None:
        """Have the optimizer keep the gradients that the step itself gives it, from now on."""
        if self._gradients:
            return
        tf, model, optimizer = self._tf, self._build.model, self._optimizer
        trainable = model.trainable_variables
        self._gradients = [tf.Variable(tf.zeros(v.shape), trainable=False) for v in trainable]
        places = dict(zip(map(id, trainable), self._gradients, strict=True))
        update = optimizer.apply

        def apply(gradients: Any, trainable_variables: Any = None) -> Any:
            for gradient, variable in zip(gradients, trainable_variables or trainable, strict=True):
                if gradient is not None:
                    dense = tf.convert_to_tensor(gradient)
                    places[id(variable)].assign(tf.cast(dense, tf.float32))
            return update(gradients, trainable_variables)

        optimizer.apply = apply
        self._trace_anew()

    def start_others(self, order: Begin, cpus: Collection[int]) -> list[int]:
        """Start none: no setting asks for it."""
        return []

    def fed(self, batch: int) -> tuple[Callable[[], Any], Loading]:
        """Return such a step."""
        make, take = self.task.loader, self._take
        assert make is not None and take is not None
        shapes = [tuple(each.shape) for each in self._batch]
        axes = [batch_axis(self.task, len(shape)) for shape in shapes]
        loader = Loader(self._tf, make, batch, shapes, axes)

        def step() -> Any:
            return take(loader.next())

        return step, loader

    def memory(self, step: Callable[[], Any], batch: int) -> StepMemory:
        """Count the variables: what a graph keeps for its backward pass is not shown."""
        model = self._build.model

        def bytes_of(variables: Iterable[Any]) -> int:
            return sum(int(np.prod(v.shape)) * self._tf.as_dtype(v.dtype).size for v in variables)

        return StepMemory(
            batch,
            bytes_of(model.variables),
            bytes_of(model.trainable_variables),
            bytes_of(self._optimizer.variables),
            None,
        )

    def moves(self, step: Callable[[], Any]) -> bool:
        """Compare the variables before and after some steps."""
        trainable = self._build.model.trainable_variables
        before = [v.numpy() for v in trainable]
        for _ in range(_TRIED):
            step()
        return any(not np.array_equal(b, v.numpy()) for b, v in zip(before, trainable, strict=True))

    how_to_draw = "keras.layers.Dropout and its kin, and apply image augmentation to the data"

    def quiet(self) -> None:
        """Set to 0 the shares by which Keras's layers drop, and trace the step anew."""
        self._begin()
        layers = self._tf.keras.layers
        kinds = (layers.Dropout, layers.SpatialDropout1D, layers.SpatialDropout2D,
                 layers.SpatialDropout3D, layers.AlphaDropout, layers.GaussianDropout)  # fmt: skip
        for layer in self._build.model._flatten_layers():
            if isinstance(layer, kinds):
                layer.rate = 0.0
            for name, value in vars(layer).items():
                if "drop" in name and isinstance(value, float):
                    setattr(layer, name, 0.0)
        self._trace_anew()

    def nudge(self, by: float, seed: int) -> None:
        """Move the weights that each trajectory begins with."""
        self._begin()
        self._remember()
        random = np.random.default_rng(seed)
        self._first = [
            first * (1 + by * signs(first.shape, random)).astype(first.dtype)
            if first is not None and first.dtype.kind == "f"
            else first
            for first in self._first
        ]

    def prepared_to_learn(self, optimizer: Any) -> Any:
        """Have compile() of the user's trace its step anew, by XLA if that is set."""
        model = self._build.as_given
        if not getattr(model, "compiled", False):
            raise UsageError("compile() the model first: its step is what is prepared")
        if self._jit != "auto":
            model.jit_compile = self._jit
            model.make_train_function(force=True)
        return model

    def unchanged(self, arrays: Sequence[Array]) -> bool:
        """TensorFlow's tensors cannot be changed."""
        return True


def _at_one_rate(optimizer: Any) -> Any:
    """Return an optimizer whose rate can be set: like this one if it follows a schedule."""
    schedule = getattr(optimizer, "_learning_rate", None)
    if not callable(schedule):
        return optimizer
    config = {**optimizer.get_config(), "learning_rate": float(schedule(0))}
    return type(optimizer).from_config(config)


def _given(arrays: Sequence[Any]) -> Any:
    """Return what Keras takes: one array as it is, several in a list."""
    return arrays[0] if len(arrays) == 1 else list(arrays)


def _unless_zero(values: Array) -> Array | None:
    return values if values.any() else None
