"""Training steps of a placed PyTorch model: forward, loss, backward, update."""

from __future__ import annotations

import contextlib
import copy
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tuner.errors import UsageError
from tuner.record.launch import ReadBack
from tuner.record.protocol import Begin
from tuner.record.workload import StepMemory
from tuner.space.knobs_of.torch import RANKS
from tuner.worker.frameworks import Array
from tuner.worker.frameworks.outputs import tensors_in
from tuner.worker.frameworks.torch.build import TorchBuild
from tuner.worker.frameworks.torch.inference import TorchInference
from tuner.worker.frameworks.torch.loading import Loader
from tuner.worker.frameworks.torch.ranks import FirstRank, Rank
from tuner.worker.frameworks.training import (
    DETACHED,
    OPTIMIZER,
    Learned,
    Learner,
    Loading,
    Task,
    batch_axis,
    parts_of,
    random_targets,
    signs,
    stated_loss,
    stated_optimizer,
)

_TRIED = 3
"""Steps at a learning rate of 0 after which the weights are compared."""


class TorchTraining(TorchInference):
    """The timed work of a model that learns.

    The default is the loop of PyTorch's tutorials: zero_grad(), forward, loss, backward(), step().
    """

    task = Task()

    @property
    def optimizer_name(self) -> str:
        """The class of the optimizer; empty before there is one."""
        return "" if self._optimizer is None else type(self._optimizer).__name__

    def __init__(self, build: TorchBuild) -> None:
        super().__init__(build)
        self._optimizer: Any = None
        self._unused: dict[str, Any] = {}
        """The optimizer's state before its first step."""
        self._buffers: list[Any] = []
        """The model's buffers, likewise."""
        self._first: list[Any] = []
        """Its parameters, likewise: copied when they are needed, as timed steps do not move them.
        """
        self._batch: tuple[Any, ...] = ()
        self._drawn_targets: tuple[Any, ...] = ()
        self._take: Callable[[Sequence[tuple[Any, ...]]], Any] | None = None
        """A step on the parts of any batch."""
        self.loader: Loader | None = None
        self.ranks: Rank | None = None
        """None if this process trains the model alone."""
        self._wrapped: Any = None
        self._is_learning = False
        self.loss_name = ""
        self.n_passes = 0
        """Backward passes of the last step."""

    @contextmanager
    def running(self) -> Iterator[None]:
        """With gradients; autocast is entered around the forward pass alone."""
        with self._build.torch.enable_grad():
            yield

    def _autocast(self) -> Any:
        torch, dtype = self._build.torch, self._build.autocast
        if dtype is None:
            return contextlib.nullcontext()
        return torch.autocast(self._build.device.name, dtype=dtype)

    def _begin(self) -> None:
        """Set the model to training, and make its optimizer, once."""
        if self._optimizer is not None:
            return
        torch, model = self._build.torch, self._build.model
        if isinstance(model, torch.fx.GraphModule | torch.jit.ScriptModule):
            raise UsageError(
                "the model was exported or scripted: give the code that builds it, which training "
                "needs"
            )
        model.train()
        learning = [p for p in model.parameters() if p.requires_grad]
        if not learning:
            raise UsageError(
                "no parameter of the model requires a gradient: there is nothing to train"
            )
        make = self.task.optimizer or torch.optim.AdamW
        optimizer = stated_optimizer(make, learning)
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise UsageError(
                f"optimizer() returned a {type(optimizer).__name__}; it must return a "
                "torch.optim.Optimizer of the parameters that it is given"
            )
        self._optimizer = optimizer
        self._buffers = [b.detach().clone() for b in model.buffers()]
        if (way := self._build.settings.get(OPTIMIZER)) is not None:
            for group in optimizer.param_groups:
                self._set_way(optimizer, group, str(way))
        self._unused = copy.deepcopy(optimizer.state_dict())
        self._stop_learning()

    def _stop_learning(self) -> None:
        for group in self._optimizer.param_groups:
            group["lr"] = 0.0

    @staticmethod
    def _set_way(optimizer: Any, group: dict[str, Any], way: str) -> None:
        name = type(optimizer).__name__
        if way != "for_loop" and way not in group:
            raise UsageError(f"{name} of this version of PyTorch has no {way} implementation")
        for each in ("foreach", "fused"):
            if each in group:
                group[each] = each == way

    def program(self, arrays: Sequence[Array]) -> Callable[[], Any]:
        """Bind a batch on the device; a step returns when its update is done there."""
        torch, ranks = self._build.torch, self.ranks
        self._begin()
        batch = tuple(self.given(torch.from_numpy(array)) for array in arrays)
        self._batch = batch
        if ranks is not None:
            ranks.bind(arrays)
        if self.task.loss is None and len(batch) == self.task.n_inputs:
            self._drawn_targets = tuple(self._drawn(batch))
        own = (*batch, *self._drawn_targets)
        if ranks is not None:
            own = self._divided(own, ranks.n)[ranks.number]
        parts = self._parts(own)
        take = self._take = self._step(parts[0])

        def step() -> Any:
            if ranks is not None and not self._is_learning:
                ranks.tell("step")
            return take(parts)

        call = self._build.device.ended(torch, step)
        self.last_call = call
        return call

    def _step(self, example: tuple[Any, ...]) -> Callable[[Sequence[tuple[Any, ...]]], Any]:
        """Return a step on a batch in parts. example: one of them."""
        optimizer, loss_of = self._optimizer, self._loss(example)

        def step(parts: Sequence[tuple[Any, ...]]) -> Any:
            optimizer.zero_grad(set_to_none=True)
            whole = None
            self.n_passes = 0
            for part in parts:
                with self._autocast():
                    loss = loss_of(part)
                if not loss.requires_grad:
                    raise UsageError(DETACHED)
                loss = loss if len(parts) == 1 else loss / len(parts)
                loss.backward()
                self.n_passes += 1
                own = loss.detach()
                whole = own if whole is None else whole + own
            optimizer.step()
            return whole

        return step

    def fed(self, batch: int) -> tuple[Callable[[], Any], Loading]:
        """Return such a step; worker processes of the loader start with the first one."""
        make, take = self.task.loader, self._take
        assert make is not None and take is not None
        shapes = [tuple(each.shape) for each in self._batch]
        torch, settings = self._build.torch, self._build.settings
        axes = [batch_axis(self.task, len(shape)) for shape in shapes]
        loader = self.loader = Loader(torch, make, batch, shapes, axes, settings)

        def step() -> Any:
            given = map(self.given, loader.next())
            return take(self._parts((*given, *self._drawn_targets)))

        return self._build.device.ended(torch, step), loader

    def loading(self) -> list[ReadBack]:
        """Return the settings of the loader that are in force."""
        return [] if self.loader is None else self.loader.read_back()

    def start_others(self, order: Begin, cpus: Collection[int]) -> list[int]:
        """Start them, and join their group."""
        if (n := int(order.settings.get(RANKS, 1))) == 1:
            return []
        self.ranks = FirstRank(self._build.torch, order, n, cpus)
        return self.ranks.others

    def _parts(self, batch: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        return self._divided(batch, parts_of(self._build.settings))

    def _divided(self, batch: tuple[Any, ...], n: int) -> list[tuple[Any, ...]]:
        """Return n equal parts of a batch."""
        if n == 1:
            return [batch]
        axes = [batch_axis(self.task, each.ndim) for each in batch]
        if any(each.shape[axis] % n for each, axis in zip(batch, axes, strict=True)):
            shapes = ", ".join(str(tuple(each.shape)) for each in batch)
            raise UsageError(f"a batch of shapes {shapes} cannot be divided into {n} equal parts")
        chunks = (each.chunk(n, axis) for each, axis in zip(batch, axes, strict=True))
        return list(zip(*(map(self.given, chunk) for chunk in chunks), strict=True))

    def _loss(self, example: tuple[Any, ...]) -> Callable[[tuple[Any, ...]], Any]:
        """Return the loss as a function of a part of a batch. example: such a part."""
        n = self.task.n_inputs
        function = self._function(example[:n])
        if (stated := self.task.loss) is not None:
            self.loss_name = f"{stated.__name__}(model, batch)"
            return lambda part: stated_loss(stated(function, part), "loss()")
        targets = example[n:]
        names = (
            "mean squared error" if y.is_floating_point() else "cross-entropy" for y in targets
        )
        self.loss_name = " + ".join(dict.fromkeys(names))

        def loss_of(part: tuple[Any, ...]) -> Any:
            outputs = self._floats(function(*part[:n]))
            if len(outputs) != len(targets):
                raise UsageError(
                    f"the model has {len(outputs)} outputs and its file states {len(targets)} "
                    "targets: state one for each, or loss(model, batch)"
                )
            return sum(map(self._apart, outputs, part[n:]))

        return loss_of

    def _function(self, example: tuple[Any, ...]) -> Callable[..., Any]:
        """Return the model as a function of such inputs, in the form that is set."""
        form = self._build.form
        if self.ranks is None:
            return form.function(example, {})
        if self._wrapped is None:
            self._wrapped = self.ranks.wrapped(self._build.model)
            if form.is_built:
                self._wrapped = self._build.torch.compile(self._wrapped, dynamic=False)
        wrapped: Callable[..., Any] = self._wrapped
        return wrapped

    def _apart(self, output: Any, target: Any) -> Any:
        """Return the loss of one output, in fp32."""
        functional = self._build.torch.nn.functional
        output = output.float()
        if target.is_floating_point():
            return functional.mse_loss(output, target.float())
        if output.ndim > 1 and target.shape == output.shape[:1] + output.shape[2:]:
            return functional.cross_entropy(output, target)  # classes come second, as it has them
        if target.shape == output.shape[:-1]:
            return functional.cross_entropy(output.flatten(0, -2), target.flatten())
        raise UsageError(
            f"an output of shape {tuple(output.shape)} has no classes for targets of shape "
            f"{tuple(target.shape)}: state loss(model, batch)"
        )

    def _drawn(self, inputs: tuple[Any, ...]) -> list[Any]:
        """Return random targets for the outputs of a call, which leaves the model as it was."""
        torch, model = self._build.torch, self._build.model
        kept = [t.detach().clone() for t in model.buffers()]
        with torch.no_grad(), self._autocast():
            outputs = self._floats(model(*inputs))
            for buffer, before in zip(model.buffers(), kept, strict=True):
                buffer.copy_(before)
        made = random_targets([tuple(y.shape) for y in outputs], self.task.n_classes)
        return [self._build.device.placed(torch.from_numpy(each)) for each in made]

    def _floats(self, result: Any) -> list[Any]:
        found = tensors_in(result, self._build.torch.is_tensor)
        floats = [y for y in found if y.is_floating_point()]
        if not floats:
            raise UsageError(
                "the model returns no tensor of floats, so that it has no loss: state one in its "
                "file as loss(model, batch)"
            )
        return floats

    def learn(self, step: Callable[[], Any], n_steps: int) -> Learned:
        """Take steps from the first weights on, with an optimizer that remembers nothing."""
        model = self._build.model
        self._set_to_first()
        losses: list[float] = []
        gradients: list[Array] = []
        ranks = self.ranks
        if ranks is not None:
            ranks.tell(f"learn {n_steps}")
        self._is_learning = True
        try:
            for _ in range(n_steps):
                loss = float(step())
                losses.append(loss if ranks is None else ranks.mean(loss))
                gradients = gradients or [self._gradient(p) for p in self._learning()]
        finally:
            self._is_learning = False
            self._stop_learning()
        firsts = dict(zip(map(id, model.parameters()), self._first, strict=True))
        moved = [
            float((p.detach().double() - firsts[id(p)].double()).norm()) if id(p) in firsts else 0.0
            for p in self._learning()
        ]
        known = {id(p): name for name, p in model.named_parameters()}
        names = [known.get(id(p), "a parameter outside the model") for p in self._learning()]
        return Learned(np.asarray(losses), gradients, moved, names)

    def _set_to_first(self) -> None:
        """Set weights, buffers and the optimizer to what they were before the first step."""
        torch, model = self._build.torch, self._build.model
        self._remember()
        self._optimizer.load_state_dict(copy.deepcopy(self._unused))
        with torch.no_grad():
            for parameter, first in zip(model.parameters(), self._first, strict=True):
                parameter.copy_(first)
            for buffer, first in zip(model.buffers(), self._buffers, strict=True):
                buffer.copy_(first)

    def learner(self, example: Sequence[Array]) -> Learner:
        """Return the model with its first weights, and its optimizer unused."""
        self.program(example)
        self._set_to_first()
        torch, model, take = self._build.torch, self._build.model, self._take
        assert take is not None

        def given(arrays: Sequence[Array]) -> tuple[Any, ...]:
            return tuple(self.given(torch.from_numpy(array)) for array in arrays)

        def step(arrays: Sequence[Array]) -> None:
            float(take(self._parts(given(arrays))))  # a card has ended the step then

        def evaluate(inputs: Sequence[Array]) -> list[Array]:
            model.eval()
            try:
                with torch.no_grad():
                    return self.outputs(model(*given(inputs)))
            finally:
                model.train()

        return Learner(step, evaluate)

    def _remember(self) -> None:
        if not self._first:
            self._first = [p.detach().clone() for p in self._build.model.parameters()]

    def memory(self, step: Callable[[], Any], batch: int) -> StepMemory:
        """Count the storages that autograd saves in the forward pass."""
        torch, model = self._build.torch, self._build.model
        weights = [*model.parameters(), *model.buffers()]
        known = {t.untyped_storage().data_ptr() for t in (*weights, *self._batch)}
        saved: dict[int, int] = {}

        def save(tensor: Any) -> Any:
            if tensor.layout is torch.strided:
                storage = tensor.untyped_storage()
                if storage.data_ptr() not in known:
                    saved[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
            step()
        state = self._optimizer.state.values()
        return StepMemory(
            batch,
            _bytes_of(weights),
            _bytes_of(p.grad for p in model.parameters() if p.grad is not None),
            _bytes_of(t for own in state for t in own.values() if torch.is_tensor(t)),
            sum(saved.values()),
        )

    def moves(self, step: Callable[[], Any]) -> bool:
        """Compare the parameters before and after some steps."""
        torch, before = self._build.torch, [p.detach().clone() for p in self._learning()]
        for _ in range(_TRIED):
            step()
        return not all(map(torch.equal, before, self._learning()))

    def _learning(self) -> list[Any]:
        return [p for group in self._optimizer.param_groups for p in group["params"]]

    def _gradient(self, parameter: Any) -> Array:
        if parameter.grad is None:
            return np.zeros(tuple(parameter.shape), dtype=np.float32)
        dense = parameter.grad.to_dense() if parameter.grad.is_sparse else parameter.grad
        found: Array = dense.detach().float().contiguous().cpu().numpy().copy()
        return found

    how_to_draw = (
        "torch.nn.Dropout, or F.dropout by an attribute of the module with `drop` in its name"
    )

    def quiet(self) -> None:
        """Set the shares of dropout to 0, by which modules and their functions draw.

        Not by eval(): modules do other things, too, only in training.
        """
        self._begin()
        if self.ranks is not None:
            self.ranks.tell("quiet")
        dropouts = self._build.torch.nn.modules.dropout._DropoutNd
        for module in self._build.model.modules():
            if isinstance(module, dropouts):
                module.p = 0.0
            for name, value in vars(module).items():
                if "drop" in name and isinstance(value, float):
                    setattr(module, name, 0.0)

    def nudge(self, by: float, seed: int) -> None:
        """Move the weights that each trajectory begins with."""
        self._begin()
        self._remember()
        random = np.random.default_rng(seed)
        for first in self._first:
            if first.is_floating_point():
                moved = 1 + by * signs(first.shape, random)
                first.mul_(self._build.torch.from_numpy(moved).to(first.device))

    def prepared_to_learn(self, optimizer: Any) -> Any:
        """Compile in place, so that the class, the state and the parameters stay what they are."""
        model, way = self._build.model, self._build.settings.get(OPTIMIZER)
        if way is not None:
            if optimizer is None:
                raise UsageError(
                    f"{OPTIMIZER}={way} is a setting of the optimizer: give it as well, "
                    "prepare_training(model, optimizer)"
                )
            for group in optimizer.param_groups:
                self._set_way(optimizer, group, str(way))
        model.train()
        if self._build.autocast is not None:
            forward, autocast = model.forward, self._autocast

            def in_autocast(*args: Any, **kwargs: Any) -> Any:
                with autocast():
                    return forward(*args, **kwargs)

            model.forward = in_autocast
        if self._build.form.is_built:
            model.compile(dynamic=False)
        return model

    def unchanged(self, arrays: Sequence[Array]) -> bool:
        """Compare the bound tensors with what they were made of."""
        torch = self._build.torch
        return all(
            torch.equal(own, self.given(torch.from_numpy(array)))
            for own, array in zip(self._batch, arrays, strict=True)
        )

    def updates(self) -> Counter[str]:
        """Make an update, and count its operators by the way in which it is made."""
        from torch.utils._python_dispatch import TorchDispatchMode

        ways: Counter[str] = Counter()

        class Watched(TorchDispatchMode):
            def __torch_dispatch__(
                self, func: Any, types: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                name = func.__name__
                way = (
                    "fused"
                    if name.startswith("_fused_")
                    else "foreach"
                    if name.startswith("_foreach_")
                    else "for_loop"
                )
                ways[way] += 1
                return func(*args, **(kwargs or {}))

        with self._build.torch.no_grad(), Watched():
            self._optimizer.step()
        return ways


def _bytes_of(tensors: Iterable[Any]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)
