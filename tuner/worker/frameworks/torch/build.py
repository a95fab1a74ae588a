"""From nothing to a placed model.

The default, the denominator of every speedup: eval(), eager, contiguous, fp32.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from tuner.errors import UsageError
from tuner.host.libraries import missing_framework
from tuner.record.configuration import Value
from tuner.record.launch import DeviceMemory
from tuner.worker import engines
from tuner.worker.frameworks import Array, Calibration, InBatches, Setter, Tensors, no_inputs
from tuner.worker.frameworks.torch import knobs, weight_cache
from tuner.worker.frameworks.torch.devices import Cpu, Device
from tuner.worker.frameworks.torch.forms import Form, form_of

_DAMPED_SCALE = 0.2


class TorchBuild:
    """A PyTorch model with the settings that come before its first call."""

    channels_first = True
    torch: Any
    setters: Sequence[Setter]
    model: Any
    form: Form
    cpus: frozenset[int]
    """The affinity mask before any library bound its threads."""

    def __init__(self, device: Device | None = None) -> None:
        self.calibration: Calibration = no_inputs
        self.device = device or Cpu()
        self.settings: dict[str, Value] = {}
        self._ways = knobs.ADAPTERS[self.device.name]

    @property
    def is_channels_last(self) -> bool:
        """Whether images are laid out with their channels last."""
        return self.settings.get(knobs.MEMORY_FORMAT) == "channels_last"

    @property
    def dtype(self) -> Any:
        """The type that weights and inputs were converted to; None if they were not."""
        return knobs.type_of(self.torch, self.settings.get(knobs.DTYPE))

    @property
    def autocast(self) -> Any:
        """The type in which calls compute where PyTorch thinks that it is safe; None for none."""
        return knobs.type_of(self.torch, self.settings.get(knobs.AUTOCAST))

    def start(self, settings: Mapping[str, Value]) -> None:
        """Import torch; some settings can be set once only, before any work."""
        engines.check(settings, "torch")
        # OpenMP runtimes bind this thread when they load
        self.cpus = frozenset(os.sched_getaffinity(0))
        try:
            import torch
        except ImportError as error:
            raise missing_framework("torch") from error
        self.torch, self.setters = torch, knobs.setters(torch)
        self.device.check(torch)
        for knob, way in self._ways.items():
            if way.at_start is not None and knob in settings:
                way.at_start(torch, settings[knob])

    def seed(self, number: int) -> None:
        """Seed weights."""
        self.torch.manual_seed(number)

    def save(self, path: Path) -> bool:
        """Keep the weights for later builds."""
        return weight_cache.save(self.torch, self.model, path)

    def rebuilt(self, make: Callable[[], Any], path: Path) -> Any:
        """Build without drawing weights anew."""
        return weight_cache.rebuilt(self.torch, make, path)

    def adopt(self, model: Any) -> None:
        """Take a model on the CPU, in eval mode and as it was before it was compiled.

        Raises UsageError for weights of reduced precision: that is one of the settings.
        """
        if not isinstance(model, self.torch.nn.Module):
            raise UsageError(f"{type(model).__name__} is not a torch.nn.Module")
        model = getattr(model, "_orig_mod", model)
        low = (self.torch.bfloat16, self.torch.float16)
        if found := next((p.dtype for p in model.parameters() if p.dtype in low), None):
            raise UsageError(
                f"the model's weights are {found}: give it in float32, the default that settings "
                "are compared with; bf16 is one of them"
            )
        if isinstance(model, self.torch.fx.GraphModule):
            # an exported program is in the mode that it was exported in, and refuses eval();
            # TorchScript asks for the flag all the same
            for module in model.modules():
                module.training = False
        else:
            model.eval()
        self.model = model
        self.form = form_of(self.torch, self.model, {})

    def _batch_norms(self) -> dict[str, Any]:
        kind = self.torch.nn.modules.batchnorm._BatchNorm
        return {name: m for name, m in self.model.named_modules() if isinstance(m, kind)}

    def condition(
        self, arrays: Sequence[Array], damped_norms: str, in_batches: InBatches | None = None
    ) -> Tensors:
        """Take batch-norm statistics from the arrays in one pass, with damped residual blocks.

        Of a model that takes fewer at a time: the mean of its batches'.
        """
        norms = {name: norm for name, norm in self._batch_norms().items() if _is_fresh(norm)}
        if not norms:
            return {}
        with self.torch.inference_mode():
            for name, norm in norms.items():
                if damped_norms and re.search(damped_norms, name) and norm.weight is not None:
                    norm.weight.fill_(_DAMPED_SCALE)
                norm.momentum = 1.0  # the running statistics become this batch's
                norm.train()
            try:
                self.model(*map(self.torch.from_numpy, arrays))
            except self.out_of_memory_errors():
                raise
            except Exception:  # a model may refuse this number of samples in any way
                if in_batches is None:
                    raise
                for norm in norms.values():
                    norm.reset_running_stats()
                    norm.momentum = None  # PyTorch: the mean over all batches
                try:
                    for each in in_batches():
                        self.model(*map(self.torch.from_numpy, each))
                except ValueError:  # one sample of a norm over features has no variance
                    for norm in norms.values():
                        norm.reset_running_stats()
            for norm in norms.values():
                norm.eval()
        return {
            f"{name}.{part}": getattr(norm, part).detach().numpy().copy()
            for name, norm in norms.items()
            for part in ("weight", "running_mean", "running_var")
            if getattr(norm, part) is not None  # some have no scale
        }

    def restore(self, tensors: Tensors) -> None:
        """Copy conditioned tensors in by name."""
        state = self.model.state_dict()
        with self.torch.no_grad():
            for name, value in tensors.items():
                state[name].copy_(self.torch.from_numpy(value))

    def place(self, settings: Mapping[str, Value]) -> None:
        """Apply layout, precision and form; compilation itself happens at the first call."""
        self.settings = dict(settings)
        self.model = self.device.placed(self.model)
        for knob, way in self._ways.items():
            if way.to_model is not None and knob in settings:
                self.model = way.to_model(self.torch, self.model, settings[knob])
        self.form = form_of(self.torch, self.model, settings, self.calibration)

    def versions(self) -> dict[str, str]:
        """Return the version that was really imported."""
        return {"torch": str(self.torch.__version__)}

    def out_of_memory_errors(self) -> tuple[type[BaseException], ...]:
        """Name the errors of exhausted memory."""
        return (MemoryError, self.torch.OutOfMemoryError)

    def exact(self) -> AbstractContextManager[None] | None:
        """Return a context without TF32, if the default has it."""
        return self.device.exact(self.torch)

    def device_memory(self) -> DeviceMemory | None:
        """Return this process's memory on a card; None without a card."""
        return self.device.memory(self.torch)


def _is_fresh(norm: Any) -> bool:
    """Tell whether a batch norm has the statistics that it was made with: it saw no data yet."""
    if norm.running_mean is None:
        return False
    return bool((norm.running_mean == 0).all() and (norm.running_var == 1).all())
