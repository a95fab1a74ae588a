"""PyTorch on the CPU.

The default, the denominator of every speedup: eval(), eager, inference_mode, contiguous, fp32.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tuner.errors import UsageError
from tuner.host.libraries import missing_framework
from tuner.record.configuration import Value
from tuner.record.launch import Evidence, Operator, ReadBack
from tuner.record.workload import Parameter
from tuner.worker.evidence.openmp import of_openmp
from tuner.worker.frameworks import Array, Tensors, products
from tuner.worker.frameworks.outputs import tensors_in
from tuner.worker.frameworks.torch import evidence, weights
from tuner.worker.frameworks.torch.forms import Form, form_of
from tuner.worker.frameworks.torch.macs import count
from tuner.worker.graph import Node

_DAMPED_SCALE = 0.2
_HASH = re.compile(r"\s*\b[0-9a-z]{32,}\b")
"""In the name of a compiled graph: that of its code, another one with every version."""


def fault_of(tensor: Any) -> str:
    """Return what an output is of which only a part, or nothing, could be compared as floats."""
    import torch

    if tensor.layout is not torch.strided:
        return f"a tensor of layout {str(tensor.layout).removeprefix('torch.')}"
    if tensor.is_complex() or tensor.is_quantized:
        return f"a tensor of {str(tensor.dtype).removeprefix('torch.')}"
    return ""


class Torch:
    """PyTorch's side of the framework contract."""

    channels_first = True
    profiler = "torch.profiler, on the calling thread"

    def __init__(self) -> None:
        self._autocast = False
        self._channels_last = False
        self._is_bf16 = False
        self._form: Form
        self._last_call: Callable[[], Any] | None = None

    def start(self, settings: Mapping[str, Value]) -> None:
        """Import torch; inter-op threads can be set once only, before any work."""
        self._cpus = os.sched_getaffinity(0)  # OpenMP runtimes bind this thread when they load
        try:
            import torch
        except ImportError as error:
            raise missing_framework("torch") from error
        self.torch = torch
        if "torch.interop_threads" in settings:
            torch.set_num_interop_threads(int(settings["torch.interop_threads"]))
        if "torch.flush_denormal" in settings:
            torch.set_flush_denormal(bool(settings["torch.flush_denormal"]))

    def seed(self, number: int) -> None:
        """Seed weights."""
        self.torch.manual_seed(number)

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
        self._form = form_of(self.torch, self.model, {})

    def _batch_norms(self) -> dict[str, Any]:
        kind = self.torch.nn.modules.batchnorm._BatchNorm
        return {name: m for name, m in self.model.named_modules() if isinstance(m, kind)}

    def condition(self, arrays: Sequence[Array], damped_norms: str) -> Tensors:
        """Take batch-norm statistics from the arrays in one pass, with damped residual blocks."""
        norms = {name: norm for name, norm in self._batch_norms().items() if _is_fresh(norm)}
        if not norms:
            return {}
        with self.torch.inference_mode():
            for name, norm in norms.items():
                if damped_norms and re.search(damped_norms, name):
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
        """Apply layout, precision and form; compilation itself happens at the first call."""
        torch = self.torch
        self._channels_last = settings.get("torch.memory_format") == "channels_last"
        self._autocast = settings.get("torch.autocast") == "bf16"
        self._is_bf16 = settings.get("torch.dtype") == "bf16"
        if settings.get(weights.WEIGHTS) == "mapped":
            weights.map_weights(torch, self.model)
        if self._channels_last:
            self.model = self.model.to(memory_format=torch.channels_last)
        if self._is_bf16:
            self.model = self.model.to(torch.bfloat16)
        if "torch.mkldnn" in settings:
            torch.backends.mkldnn.set_flags(bool(settings["torch.mkldnn"]))
        if precision := settings.get("torch.fp32_precision"):
            torch.backends.mkldnn.matmul.fp32_precision = precision
            torch.backends.mkldnn.conv.fp32_precision = precision
        self._form = form_of(torch, self.model, settings)

    def given(self, tensor: Any) -> Any:
        """Return an input in the precision and layout that the placed model takes."""
        if self._is_bf16 and tensor.is_floating_point():
            tensor = tensor.to(self.torch.bfloat16)
        if tensor.ndim == 4 and self._channels_last:
            return tensor.contiguous(memory_format=self.torch.channels_last)
        return tensor

    def _native(self, array: Array) -> Any:
        return self.given(self.torch.from_numpy(array))

    def function(self, tensors: Sequence[Any]) -> Callable[..., Any]:
        """Return the model as a function of tensors of these shapes, in the form that is set."""
        return self._form.function(tensors)

    def program(self, arrays: Sequence[Array]) -> Callable[[], Any]:
        """Bind preallocated tensors; CPU calls return when the outputs are ready."""
        tensors = tuple(map(self._native, arrays))
        function = self.function(tensors)
        self._last_call = lambda: function(*tensors)
        return self._last_call

    def outputs(self, result: Any) -> list[Array]:
        """Flatten tensors, tuples, lists and mappings in order, without None."""
        # cloned, as inference tensors share memory with the next call under a compiler
        return [
            tensor.detach().float().contiguous().clone().numpy()
            for tensor in tensors_in(result, self.torch.is_tensor, fault_of)
        ]

    def operators(self, calls: Callable[[], None]) -> list[Operator]:
        """Return what each operator took on the calling thread: threads inside it are not seen."""
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CPU]) as seen:
            calls()
        microseconds: Counter[str] = Counter()
        n_calls: Counter[str] = Counter()
        for event in seen.key_averages():
            name = _HASH.sub("", event.key)
            microseconds[name] += event.self_cpu_time_total
            n_calls[name] += event.count
        return [Operator(name, microseconds[name] / 1e6, n_calls[name]) for name in microseconds]

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

    def parameters(self) -> list[Parameter]:
        """Name the parameters of the module, each once."""
        return [
            Parameter(name, tuple(p.shape), p.numel() * p.element_size())
            for name, p in self.model.named_parameters()
        ]

    def macs(self, call: Callable[[], Any], batch: int) -> tuple[int, str] | None:
        """Count products and convolutions as they are dispatched."""
        counted = count(self.torch, call)
        return None if counted is None else (counted // batch, "torch.utils.flop_counter")

    def out_of_memory_errors(self) -> tuple[type[BaseException], ...]:
        """Name what an exhausted memory raises."""
        return (MemoryError, self.torch.OutOfMemoryError)

    def graph(self, arrays: Sequence[Array]) -> list[Node]:
        """Export the default model and list its operators."""
        exported = self.torch.export.export(self.model, tuple(map(self._native, arrays)))
        return [
            Node(
                node.name,
                str(node.target) if node.op == "call_function" else "",
                tuple(parent.name for parent in node.all_input_nodes),
            )
            for node in exported.graph.nodes
        ]

    def read_back(self, settings: Mapping[str, Value]) -> list[ReadBack]:
        """Look into the library, the compiled modules and oneDNN's own account of one call."""
        asked = dict(settings)
        seen = evidence.Primitives(self.torch, self._traced_call())
        found = [
            *evidence.library_state(self.torch, asked),
            *self._form.read_back(),
            self._layout(seen, asked),
            *self._precision(seen, asked),
            self._mkldnn(seen, asked),
            weights.read_back(self.model, asked),
            *of_openmp(asked, self._cpus, self._parallel_work),
        ]
        isa = "env.ONEDNN_MAX_CPU_ISA"
        if isa in asked:
            how = "the instruction set in oneDNN's log"
            found.append(ReadBack(isa, asked[isa], seen.isa(), "effective", how))
        if (pages := asked.get("env.THP_MEM_ALLOC_ENABLE")) is not None:
            found.append(evidence.huge_pages(self.torch, pages))
        for knob in ("env.ONEDNN_DEFAULT_FPMATH_MODE", "torch.fp32_precision"):
            if knob in asked:
                with self.torch.inference_mode():
                    ways = evidence.products(self.torch)
                    found.append(products.read_back(knob, asked[knob], ways))
        return found

    def _traced_call(self) -> Callable[[], Any] | None:
        call = self._last_call
        if call is None:
            return None

        def traced() -> None:
            with self.running():
                call()

        return traced

    def _parallel_work(self) -> None:
        """Run a parallel region: from 32768 elements on PyTorch divides them among threads.

        In 64 KiB, because a larger block, once freed, would change how glibc serves later ones.
        """
        x = self.torch.ones(1 << 16, dtype=self.torch.uint8)
        for _ in range(3):
            x += x

    def _layout(self, seen: evidence.Primitives, asked: Mapping[str, Value]) -> ReadBack:
        knob = "torch.memory_format"
        if found := seen.layout():
            return ReadBack(knob, asked.get(knob), found[0], "effective", found[1])
        images = [p for p in self.model.parameters() if p.ndim == 4]
        last = bool(images) and all(
            w.is_contiguous(memory_format=self.torch.channels_last) for w in images
        )
        how = f"layout of {len(images)} weight tensors"
        value = "channels_last" if last else "contiguous"
        return ReadBack(knob, asked.get(knob), value, "accepted", how)

    def _precision(self, seen: evidence.Primitives, asked: Mapping[str, Value]) -> list[ReadBack]:
        """Tell bf16 by autocast from bf16 by converted weights: by the weights themselves."""
        floating = [p for p in self.model.parameters() if p.is_floating_point()]
        converted = sum(p.dtype is self.torch.bfloat16 for p in floating)
        how = f"{converted} of {len(floating)} parameters are bfloat16"
        dtype = "bf16" if floating and converted == len(floating) else "fp32"
        found = seen.is_bf16()
        if found is None:
            with self.running():
                is_on = bool(self.torch.is_autocast_enabled("cpu"))
            told = "torch.is_autocast_enabled('cpu') inside the running context"
            kind: Evidence = "accepted"
        else:
            is_on, told = found[0] and dtype == "fp32", found[1]
            kind = "effective"
            how += f"; {told}"
            dtype = dtype if found[0] else "fp32"
        return [
            ReadBack("torch.autocast", asked.get("torch.autocast"), "bf16" if is_on else "off",
                     kind, told),
            ReadBack("torch.dtype", asked.get("torch.dtype"), dtype, "effective", how),
        ]  # fmt: skip

    def _mkldnn(self, seen: evidence.Primitives, asked: Mapping[str, Value]) -> ReadBack:
        is_on = bool(self.torch.backends.mkldnn.enabled) or bool(seen.compute)
        how = f"torch.backends.mkldnn.enabled; {len(seen.compute)} oneDNN primitives in a call"
        return ReadBack("torch.mkldnn", asked.get("torch.mkldnn"), is_on, "effective", how)


def _is_fresh(norm: Any) -> bool:
    """Tell whether a batch norm has the statistics that it was made with: it saw no data yet."""
    if norm.running_mean is None or norm.weight is None:
        return False
    return bool((norm.running_mean == 0).all() and (norm.running_var == 1).all())
