"""PyTorch on the CPU.

The default, the denominator of every speedup: eval(), eager, inference_mode, contiguous, fp32.
"""

from __future__ import annotations

import re
import time
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tuner.host.libraries import missing_framework
from tuner.record.configuration import Value
from tuner.record.launch import ReadBack
from tuner.record.workload import ModelRef
from tuner.worker import gallery
from tuner.worker.evidence import captured_stdout
from tuner.worker.frameworks import Array, Tensors

_DAMPED_SCALE = 0.2


class Torch:
    """PyTorch's side of the framework contract."""

    def __init__(self) -> None:
        self._compile = "off"
        self._autocast = False
        self._channels_last = False
        self._last_call: Callable[[], Any] | None = None

    def start(self, settings: Mapping[str, Value]) -> None:
        """Import torch; inter-op threads can be set once only, before any work."""
        try:
            import torch
        except ImportError as error:
            raise missing_framework("torch") from error
        self.torch = torch
        if "torch.interop_threads" in settings:
            torch.set_num_interop_threads(int(settings["torch.interop_threads"]))

    def build(self, module: types.ModuleType, ref: ModelRef, seed: int) -> None:
        """Build the model in eval mode on the CPU."""
        self.torch.manual_seed(seed)
        self.spec: gallery.Model = module.MODEL
        self.model = gallery.build(module, "torch", ref).eval()
        self._callable = self.model

    def _batch_norms(self) -> dict[str, Any]:
        kind = self.torch.nn.modules.batchnorm._BatchNorm
        return {name: m for name, m in self.model.named_modules() if isinstance(m, kind)}

    def condition(self, arrays: Sequence[Array]) -> Tensors:
        """Take batch-norm statistics from the arrays in one pass, with damped residual blocks."""
        norms = self._batch_norms()
        if not norms:
            return {}
        with self.torch.inference_mode():
            for name, norm in norms.items():
                if self.spec.damped_norms and re.search(self.spec.damped_norms, name):
                    norm.weight.fill_(_DAMPED_SCALE)
                norm.momentum = 1.0  # the running statistics become this batch's
                norm.train()
            self.model(*map(self._native, arrays))
            for norm in norms.values():
                norm.eval()
        return {
            f"{name}.{part}": getattr(norm, part).detach().numpy().copy()
            for name, norm in norms.items()
            for part in ("weight", "running_mean", "running_var")
        }

    def restore(self, tensors: Tensors) -> None:
        """Copy conditioned tensors in by name."""
        state = self.model.state_dict()
        with self.torch.no_grad():
            for name, value in tensors.items():
                state[name].copy_(self.torch.from_numpy(value))

    def place(self, settings: Mapping[str, Value]) -> None:
        """Apply layout, precision and compiler; compilation itself happens at the first call."""
        self._channels_last = settings.get("torch.memory_format") == "channels_last"
        self._autocast = settings.get("torch.autocast") == "bf16"
        self._compile = str(settings.get("torch.compile.mode", "off"))
        if self._channels_last:
            self.model = self.model.to(memory_format=self.torch.channels_last)
        self._callable = self.model
        if self._compile != "off":
            import torch._inductor.config as inductor

            inductor.freezing = self._compile == "freezing"
            # each batch size gets its static graph, as in a deployment that has only one
            self._callable = self.torch.compile(self.model, dynamic=False)

    def _native(self, array: Array) -> Any:
        tensor = self.torch.from_numpy(array)
        if tensor.ndim == 4:  # images are generated as NHWC
            tensor = tensor.permute(0, 3, 1, 2)
            layout = (
                self.torch.channels_last if self._channels_last else self.torch.contiguous_format
            )
            return tensor.contiguous(memory_format=layout)
        return tensor

    def program(self, arrays: Sequence[Array]) -> Callable[[], Any]:
        """Bind preallocated tensors; CPU calls return when the outputs are ready."""
        tensors = tuple(map(self._native, arrays))
        function = self._callable
        self._last_call = lambda: function(*tensors)
        return self._last_call

    def outputs(self, result: Any) -> list[Array]:
        """Flatten tensors, tuples, lists and mappings in order."""
        if isinstance(result, self.torch.Tensor):
            # cloned, as inference tensors share memory with the next call under a compiler
            return [result.detach().float().contiguous().clone().numpy()]
        parts = result.values() if isinstance(result, Mapping) else result
        return [array for part in parts for array in self.outputs(part)]

    @contextmanager
    def running(self) -> Iterator[None]:
        """No gradients; autocast where it is set."""
        bf16 = self.torch.bfloat16
        with (
            self.torch.inference_mode(),
            self.torch.autocast("cpu", dtype=bf16, enabled=self._autocast),
        ):
            yield

    def clock(self) -> float:
        """Return seconds of the monotonic clock."""
        return time.perf_counter()

    def versions(self) -> dict[str, str]:
        """Return the version that was really imported."""
        return {"torch": str(self.torch.__version__)}

    def n_parameters(self) -> int:
        """Count trainable parameters."""
        return sum(p.numel() for p in self.model.parameters())

    def out_of_memory_errors(self) -> tuple[type[BaseException], ...]:
        """Name what an exhausted memory raises."""
        return (MemoryError, self.torch.OutOfMemoryError)

    def read_back(self, settings: Mapping[str, Value]) -> list[ReadBack]:
        """Look into the library, the compiled modules and oneDNN's own account of one call."""
        torch = self.torch
        primitives = self._onednn_primitives()
        layout, layout_evidence, layout_how = self._layout(primitives)
        precision, precision_evidence, precision_how = self._precision(primitives)
        compiled, compiled_how = self._compiled()
        return [
            ReadBack(
                "env.OMP_NUM_THREADS",
                settings.get("env.OMP_NUM_THREADS"),
                torch.get_num_threads(),
                "effective",
                "torch.get_num_threads()",
            ),
            ReadBack(
                "torch.interop_threads",
                settings.get("torch.interop_threads"),
                torch.get_num_interop_threads(),
                "accepted",
                "torch.get_num_interop_threads(); idle outside TorchScript fork",
            ),
            ReadBack(
                "torch.memory_format",
                settings.get("torch.memory_format"),
                layout,
                layout_evidence,  # type: ignore[arg-type]
                layout_how,
            ),
            ReadBack(
                "torch.autocast",
                settings.get("torch.autocast"),
                precision,
                precision_evidence,  # type: ignore[arg-type]
                precision_how,
            ),
            ReadBack(
                "torch.compile.mode",
                settings.get("torch.compile.mode"),
                compiled,
                "effective",
                compiled_how,
            ),
        ]

    def _onednn_primitives(self) -> list[str]:
        """Return oneDNN's log lines of the compute primitives of one call."""
        if self._last_call is None or not self.torch.backends.mkldnn.is_available():
            return []
        with captured_stdout() as lines, self.running():
            with self.torch.backends.mkldnn.verbose(self.torch.backends.mkldnn.VERBOSE_ON):
                self._last_call()
        kinds = ("convolution", "inner_product", "matmul", "deconvolution")
        fields = [line.split(",") for line in lines if line.startswith("onednn_verbose")]
        return [",".join(f) for f in fields if len(f) > 6 and f[3] == "exec" and f[5] in kinds]

    def _layout(self, primitives: list[str]) -> tuple[Value, str, str]:
        convolutions = [p for p in primitives if ",convolution," in p]
        if convolutions:
            nhwc = sum(bool(re.search(r"src:\w+:\w*:blocked:acd?e?b", p)) for p in convolutions)
            how = f"oneDNN ran {nhwc} of {len(convolutions)} convolutions in NHWC"
            return (
                "channels_last" if 2 * nhwc > len(convolutions) else "contiguous",
                "effective",
                how,
            )
        weights = [p for p in self.model.parameters() if p.ndim == 4]
        last = bool(weights) and all(
            w.is_contiguous(memory_format=self.torch.channels_last) for w in weights
        )
        how = f"layout of {len(weights)} weight tensors"
        return "channels_last" if last else "contiguous", "accepted", how

    def _precision(self, primitives: list[str]) -> tuple[Value, str, str]:
        if primitives:
            low = sum("src:bf16" in p for p in primitives)
            how = f"oneDNN ran {low} of {len(primitives)} primitives in bf16"
            return "bf16" if 2 * low > len(primitives) else "off", "effective", how
        how = "torch.is_autocast_enabled('cpu') inside the running context"
        with self.running():
            on = self.torch.is_autocast_enabled("cpu")
        return "bf16" if on else "off", "accepted", how

    def _compiled(self) -> tuple[Value, str]:
        """Find out whether calls run compiled code: a fallback leaves no generated module."""
        if self._compile == "off":
            return "off", "torch.compile is not used"
        from torch._dynamo.utils import counters
        from torch._inductor.codecache import PyCodeCache

        frames, breaks = counters["frames"], sum(counters["graph_break"].values())
        modules = PyCodeCache.modules
        how = (
            f"{frames['ok']} of {frames['total']} frames compiled, {breaks} graph breaks, "
            f"{len(modules)} generated modules"
        )
        if not modules or not frames["ok"] or frames["ok"] < frames["total"]:
            return "off", how
        frozen = sum(name.startswith("_frozen_param") for m in modules for name in vars(m))
        how += f", {frozen} frozen parameters"
        return "freezing" if frozen else "default", how
