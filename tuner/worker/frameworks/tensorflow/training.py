"""Training steps of a Keras model: train_on_batch() as compile() makes it by default."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tuner.errors import UsageError
from tuner.worker.frameworks import Array
from tuner.worker.frameworks.tensorflow.build import TensorFlowBuild
from tuner.worker.frameworks.tensorflow.executed import collected
from tuner.worker.frameworks.tensorflow.inference import TensorFlowInference
from tuner.worker.frameworks.tensorflow.knobs import XLA
from tuner.worker.frameworks.training import (
    DETACHED,
    Learned,
    Task,
    random_targets,
    signs,
    stated_loss,
)

_DRAWING = ("rate", "stddev", "dropout", "recurrent_dropout", "_dropout")
"""Attributes of Keras's layers by which they draw random numbers in training; 0 for none."""


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
        self._rate: float | None = None
        self._first: list[Array] = []
        """The model's variables as they were before the first step."""
        self._forgotten: list[Array] = []
        """The optimizer's, likewise."""
        self._batch: tuple[Any, ...] = ()

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
        given = self._build.as_given
        compiled = given.optimizer if getattr(given, "compiled", False) else None
        make = self.task.optimizer
        optimizer = make() if make else compiled or tf.keras.optimizers.AdamW()
        if not isinstance(optimizer, tf.keras.optimizers.Optimizer):
            raise UsageError(
                f"optimizer() returned a {type(optimizer).__name__}; it must return a "
                "keras.optimizers.Optimizer"
            )
        self._optimizer = optimizer
        if not optimizer.built:
            optimizer.build(model.trainable_variables)
        self._first = [v.numpy() for v in model.variables]
        self._forgotten = [v.numpy() for v in optimizer.variables]
        try:
            self._rate = float(optimizer.learning_rate)
            optimizer.learning_rate = 0.0
        except (TypeError, ValueError):  # a schedule: it stays, and the weights move
            self._rate = None

    def program(self, arrays: Sequence[Array]) -> Callable[[], Any]:
        """Bind a batch; executed on the CPU, a step returns when its update is done."""
        tf = self._tf
        self._begin()
        batch = tuple(map(tf.constant, arrays))
        is_new = not self._batch
        self._batch = batch
        n = self.task.n_inputs
        step = self._taped(batch) if self.task.loss else self._compiled(batch[:n], batch[n:])
        if is_new:
            self.execution = collected(self._build.context.context(), step)
            self.n_variables = len(self._build.model.variables)
        return step

    @property
    def _jit(self) -> bool:
        return bool(self._build.settings.get(XLA))

    def _compiled(self, inputs: Sequence[Any], targets: Sequence[Any]) -> Callable[[], Any]:
        tf, model = self._tf, self._build.model
        x = inputs[0] if len(inputs) == 1 else list(inputs)
        outputs = tf.nest.flatten(model(x, training=False))
        drawn = not targets
        if drawn:
            shapes = [tuple(y.shape) for y in outputs]
            made = random_targets(shapes, self.task.n_classes)
            targets = tuple(map(tf.constant, made))
        given = self._build.as_given
        loss = given.loss if getattr(given, "compiled", False) and not drawn else None
        losses = tf.keras.losses
        if loss is None:
            loss = [
                losses.MeanSquaredError()
                if target.dtype.is_floating
                else losses.SparseCategoricalCrossentropy(from_logits=True)
                for target in targets
            ]
        y = targets[0] if len(targets) == 1 else list(targets)
        if isinstance(loss, list) and len(loss) == 1:
            loss = loss[0]
        if not model.compiled or model.optimizer is not self._optimizer:
            model.compile(
                optimizer=self._optimizer, loss=loss, jit_compile=True if self._jit else "auto"
            )

        def step() -> Any:
            return model.train_on_batch(x, y, return_dict=True)["loss"]

        return step

    def _taped(self, batch: Sequence[Any]) -> Callable[[], Any]:
        tf, model, optimizer = self._tf, self._build.model, self._optimizer
        loss_of = self.task.loss
        assert loss_of is not None

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

        function = tf.function(forward_and_back, jit_compile=self._jit or None, autograph=False)

        def step() -> Any:
            return function(*batch).numpy()

        return step

    def learn(self, step: Callable[[], Any], n_steps: int) -> Learned:
        """Take steps from the first weights on, with an optimizer that remembers nothing."""
        model, optimizer = self._build.model, self._optimizer
        for variable, first in zip(model.variables, self._first, strict=True):
            variable.assign(first)
        for variable, first in zip(optimizer.variables, self._forgotten, strict=True):
            variable.assign(first)
        if self._rate is not None:
            optimizer.learning_rate = self._rate
        losses: list[float] = []
        gradients: list[Array] = []
        try:
            for _ in range(n_steps):
                if model.compiled:
                    model.reset_metrics()  # Keras returns the mean over all steps before
                losses.append(float(step()))
                gradients = gradients or self._gradients()
        finally:
            if self._rate is not None:
                optimizer.learning_rate = 0.0
        return Learned(np.asarray(losses), gradients)

    def _gradients(self) -> list[Array]:
        """Return the gradients of a first step, as the optimizer keeps them or the weights moved.

        Optimizers of Adam's family hold a first moment, which is (1 - beta_1) times the gradient.
        """
        optimizer = self._optimizer
        moments, beta = getattr(optimizer, "_momentums", None), getattr(optimizer, "beta_1", None)
        if moments and beta is not None:
            return [np.asarray(m.numpy() / (1 - float(beta)), dtype=np.float32) for m in moments]
        trained = {id(v) for v in self._build.model.trainable_variables}
        return [
            np.asarray(first - v.numpy(), dtype=np.float32)
            for v, first in zip(self._build.model.variables, self._first, strict=True)
            if id(v) in trained
        ]

    def quiet(self) -> None:
        """Set to 0 by what layers draw random numbers, and trace the step anew."""
        self._begin()
        model = self._build.model
        for layer in model._flatten_layers():
            for owner in (layer, getattr(layer, "cell", None)):
                for name in _DRAWING:
                    if isinstance(getattr(owner, name, None), float):
                        setattr(owner, name, 0.0)
        if model.compiled:
            model.make_train_function(force=True)

    def nudge(self, by: float, seed: int) -> None:
        """Move the weights that each trajectory begins with."""
        self._begin()
        random = np.random.default_rng(seed)
        self._first = [
            first * (1 + by * signs(first.shape, random)).astype(first.dtype)
            if first.dtype.kind == "f"
            else first
            for first in self._first
        ]

    def names(self) -> list[str]:
        """Return the paths of the trainable variables."""
        return [getattr(v, "path", v.name) for v in self._build.model.trainable_variables]

    def prepared_to_learn(self, optimizer: Any) -> Any:
        """Have compile() of the user's trace its step anew, by XLA if that is set."""
        model = self._build.as_given
        if not getattr(model, "compiled", False):
            raise UsageError("compile() the model first: its step is what is prepared")
        if self._jit:
            model.jit_compile = True
            model.make_train_function(force=True)
        return model

    def unchanged(self, arrays: Sequence[Array]) -> bool:
        """TensorFlow's tensors cannot be changed."""
        return True
