"""What training adds to a framework's work: steps that are timed, and steps that are compared."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from tuner.errors import UsageError
from tuner.record.protocol import Begin
from tuner.record.workload import StepMemory
from tuner.worker.frameworks import Array, Work

OPTIMIZER, ACCUMULATION = "torch.optimizer", "torch.accumulation"
LEARNING_RATE = 1e-3
"""Of the optimizer that stands in for one that the model's file does not state: AdamW's default."""


DETACHED = (
    "the loss does not depend on the weights, so that nothing can be learnt: it is a constant, or "
    "was cut off from them (detach(), item(), no_grad(), stop_gradient)"
)


class Task(NamedTuple):
    """What a model learns. Parts that its file does not state are None."""

    loss: Callable[[Any, Sequence[Any]], Any] | None = None
    """A function of (model, batch): a scalar tensor. The batch holds the arrays of a sample's
    inputs, and of its targets where the file states some. None: the cross-entropy of output 0 with
    random classes if the model has classes, else the mean squared error with random targets."""
    optimizer: Callable[..., Any] | None = None
    """A function of the parameters, in TensorFlow of none; None: AdamW as its constructor makes it.
    """
    loader: Callable[[int], Any] | None = None
    """A function of the batch: an iterable of batches. None: each step has the same batch, which
    lies in memory."""
    n_classes: int | None = None
    n_inputs: int = 1
    """Arrays of a batch that the model takes; others are its targets."""
    batch_dim: int = 0


class Learned(NamedTuple):
    """A few steps on one batch, from the first weights on."""

    losses: Array
    """The loss of each step, before its update."""
    gradients: list[Array]
    """Of the first step, by parameter; zeros where there is none."""
    moved: list[float]
    """How far all steps moved each parameter (L2)."""
    names: list[str]
    """Of the parameters, in the same order."""


class Learner(NamedTuple):
    """A model that is trained from its first weights on."""

    step: Callable[[Sequence[Array]], None]
    """Takes a step on a batch, at the optimizer's own learning rate."""
    evaluate: Callable[[Sequence[Array]], list[Array]]
    """Returns the outputs for a batch of inputs: outside of training mode, and without autocast and
    compilation. Nothing of the model is changed."""


class Loading(Protocol):
    """Where the batches of steps come from."""

    wait_s: float
    """Seconds that the last step waited for its batch."""

    @property
    def n_ahead(self) -> int:
        """Batches that may be ready before a step asks for them."""

    def in_words(self) -> str:
        """Name the loader, and how it is set."""

    def workers(self) -> list[int]:
        """Return the process numbers of those that make batches, other than this one."""

    def used_s(self) -> float:
        """Return the CPU seconds so far of what makes batches ahead.

        They stand still once all are made, while no step is taken.
        """


class Trainer(Work, Protocol):
    """The timed work of a model that learns."""

    task: Task
    optimizer_name: str
    """The class of the optimizer, once there is one."""
    loss_name: str
    """The loss, once `program` has bound a batch."""
    how_to_draw: str
    """How a model is told to draw random numbers so that they can be switched off."""

    def program(self, arrays: Sequence[Array]) -> Callable[[], Any]:
        """Bind a batch; return a training step, which returns its loss.

        Its learning rate is 0: the weights stay what they are, so that a step takes as long after
        an hour as at the beginning. Raises UsageError for a model that cannot learn.
        """

    def start_others(self, order: Begin, cpus: Collection[int]) -> list[int]:
        """Start the other processes that the settings ask for; return their process numbers.

        The model is placed. order: what this process began with. cpus: on which they may run. Each
        process takes its part of every batch that `program` binds from now on.
        """

    def fed(self, batch: int) -> tuple[Callable[[], Any], Loading]:
        """Return a step like the last one that was bound, but on the loader's next batch each time.

        Raises UsageError, here or at the first call, for a loader that gives no such batches.
        """

    def memory(self, step: Callable[[], Any], batch: int) -> StepMemory:
        """Return what a step keeps. batch: of the step."""

    def moves(self, step: Callable[[], Any]) -> bool:
        """Tell whether a step, at a learning rate of 0, moves the weights all the same."""

    def learn(self, step: Callable[[], Any], n_steps: int) -> Learned:
        """Take a step that `program` bound a few times, at the optimizer's own learning rate.

        Weights and optimizer are as at first when it begins.
        """

    def learner(self, example: Sequence[Array]) -> Learner:
        """Return the model with its first weights, to be trained on batches of such arrays.

        example: the inputs, then the targets. Raises UsageError as `program` does.
        """

    def quiet(self) -> None:
        """Switch off what draws random numbers in a step, such as dropout, for good."""

    def nudge(self, by: float, seed: int) -> None:
        """Move every first weight by a small share of itself, up or down at random."""

    def prepared_to_learn(self, optimizer: Any) -> Any:
        """Return the placed model for a loop of the user's own, in the form that is set.

        Raises UsageError for an optimizer that the settings need and that is not given.
        """

    def unchanged(self, arrays: Sequence[Array]) -> bool:
        """Tell whether the batch that was bound last still holds these arrays."""


def stated_optimizer(make: Callable[..., Any], *parameters: Any) -> Any:
    """Call a file's optimizer(); raises UsageError for whatever it raises."""
    try:
        return make(*parameters)
    except Exception as error:
        first_line = str(error).strip().partition("\n")[0]
        raise UsageError(f"optimizer() raised {type(error).__name__}: {first_line}") from error


def stated_loss(loss: Any, where: str) -> Any:
    """Return a loss as a scalar; raises UsageError if it is not one. where: what returned it."""
    shape = getattr(loss, "shape", None)
    if shape is None:
        raise UsageError(
            f"{where} returned a {type(loss).__name__}; a loss is a scalar tensor: return that"
        )
    if len(shape) and int(np.prod(tuple(shape))) != 1:
        raise UsageError(
            f"{where} returned a tensor of shape {tuple(shape)}; a loss is a scalar: return its "
            "mean"
        )
    return loss


def random_targets(
    shapes: Sequence[tuple[int, ...]], n_classes: int | None
) -> list[npt.NDArray[Any]]:
    """Return targets for outputs of these shapes: classes for the first, if the model has them.

    The same for every batch: what a batch teaches differs by its inputs.
    """
    random = np.random.default_rng(0)
    made: list[npt.NDArray[Any]] = []
    for index, shape in enumerate(shapes):
        if index == 0 and n_classes and shape and shape[-1] == n_classes:
            made.append(random.integers(0, n_classes, shape[:-1]))
        else:
            made.append(random.standard_normal(shape, dtype=np.float32))
    return made


def signs(shape: Sequence[int], random: np.random.Generator) -> Array:
    """Return -1 or 1 for every element."""
    drawn: Array = random.choice(np.array([-1.0, 1.0], dtype=np.float32), tuple(shape))
    return drawn


def batch_axis(task: Task, n_dims: int) -> int:
    """Return the batch axis of an array with this many dimensions."""
    return min(task.batch_dim, n_dims - 1)


def parts_of(settings: Mapping[str, Any]) -> int:
    """Return into how many parts a batch is divided."""
    return int(settings.get(ACCUMULATION, 1))
