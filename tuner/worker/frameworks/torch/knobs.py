"""How each knob of PyTorch is applied and read back: one entry each, in the order of applying.

What is set by the environment is applied before the process starts, and forms (torch.compile and
the like) by forms.py; the read-backs of OpenMP's variables are those of any framework
(tuner/worker/evidence/openmp.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tuner.record.configuration import Value
from tuner.record.launch import ReadBack
from tuner.worker.evidence.allocator import has_huge_pages
from tuner.worker.frameworks import products
from tuner.worker.frameworks.torch import forms, weights
from tuner.worker.frameworks.torch.onednn import Primitives, multiplications

MEMORY_FORMAT, DTYPE, AUTOCAST = "torch.memory_format", "torch.dtype", "torch.autocast"
_MKLDNN, _PRECISION = "torch.mkldnn", "torch.fp32_precision"
_THREADS, _INTEROP = "env.OMP_NUM_THREADS", "torch.interop_threads"
_CAPABILITY, _DENORMAL = "env.ATEN_CPU_CAPABILITY", "torch.flush_denormal"
_ISA, _PAGES = "env.ONEDNN_MAX_CPU_ISA", "env.THP_MEM_ALLOC_ENABLE"
_FPMATH = "env.ONEDNN_DEFAULT_FPMATH_MODE"


class Seen:
    """What can be seen of a placed model after a call."""

    def __init__(
        self,
        torch: Any,
        model: Any,
        asked: dict[str, Value],
        primitives: Primitives,
        forms: Mapping[str, ReadBack],
        *,
        autocasts: bool,
    ) -> None:
        """forms: what the form says, by knob. autocasts: whether that is so where calls run."""
        self.torch = torch
        self.model = model
        self.asked = asked
        self.primitives = primitives
        self.forms = forms
        self.autocasts = autocasts

    def is_converted(self) -> tuple[bool, str]:
        """Tell whether all weights are bf16, and how many are."""
        floating = [p for p in self.model.parameters() if p.is_floating_point()]
        converted = sum(p.dtype is self.torch.bfloat16 for p in floating)
        told = f"{converted} of {len(floating)} parameters are bfloat16"
        return bool(floating) and converted == len(floating), told


class Way(NamedTuple):
    """How a knob is read back, and applied where that is this process's doing."""

    read: Callable[[Seen], ReadBack | None]
    """None where nobody asked and nothing is to be said."""
    at_start: Callable[[Any, Value], None] | None = None
    """Given torch, before any work."""
    to_model: Callable[[Any, Any, Value], Any] | None = None
    """Given torch and the model; returns the model."""


def _threads(seen: Seen) -> ReadBack:
    n, how = seen.torch.get_num_threads(), "torch.get_num_threads()"
    return ReadBack(_THREADS, seen.asked.get(_THREADS), n, "effective", how)


def _interop(seen: Seen) -> ReadBack:
    how = "torch.get_num_interop_threads(); idle outside TorchScript fork"
    n = seen.torch.get_num_interop_threads()
    return ReadBack(_INTEROP, seen.asked.get(_INTEROP), n, "accepted", how)


def _capability(seen: Seen) -> ReadBack:
    value = str(seen.torch.backends.cpu.get_cpu_capability()).lower()
    how = "torch.backends.cpu.get_cpu_capability()"
    return ReadBack(_CAPABILITY, seen.asked.get(_CAPABILITY), value, "effective", how)


def _denormal(seen: Seen) -> ReadBack:
    flushes = not bool((seen.torch.full((64,), 1e-30) * 1e-10).count_nonzero())
    how = f"1e-30 x 1e-10 is {'0' if flushes else 'not 0'}"
    return ReadBack(_DENORMAL, seen.asked.get(_DENORMAL), flushes, "effective", how)


def _mapped(torch: Any, model: Any, value: Value) -> Any:
    if value == "mapped":
        weights.map_weights(torch, model)
    return model


def _laid_out(torch: Any, model: Any, value: Value) -> Any:
    is_last = value == "channels_last"
    return model.to(memory_format=torch.channels_last) if is_last else model


def _layout(seen: Seen) -> ReadBack:
    asked = seen.asked.get(MEMORY_FORMAT)
    if found := seen.primitives.layout():
        return ReadBack(MEMORY_FORMAT, asked, found[0], "effective", found[1])
    images = [p for p in seen.model.parameters() if p.ndim == 4]
    channels_last = seen.torch.channels_last
    is_last = bool(images) and all(w.is_contiguous(memory_format=channels_last) for w in images)
    value = "channels_last" if is_last else "contiguous"
    how = f"layout of {len(images)} weight tensors"
    return ReadBack(MEMORY_FORMAT, asked, value, "accepted", how)


def _converted(torch: Any, model: Any, value: Value) -> Any:
    return model.to(torch.bfloat16) if value == "bf16" else model


def _dtype(seen: Seen) -> ReadBack:
    is_converted, how = seen.is_converted()
    if (ran := seen.primitives.is_bf16()) is not None:
        is_converted, how = is_converted and ran[0], f"{how}; {ran[1]}"
    value = "bf16" if is_converted else "fp32"
    return ReadBack(DTYPE, seen.asked.get(DTYPE), value, "effective", how)


def _autocast(seen: Seen) -> ReadBack:
    """Tell it from converted weights: by the weights themselves."""
    asked = seen.asked.get(AUTOCAST)
    if (ran := seen.primitives.is_bf16()) is not None:
        is_on = ran[0] and not seen.is_converted()[0]
        return ReadBack(AUTOCAST, asked, "bf16" if is_on else "off", "effective", ran[1])
    how = "torch.is_autocast_enabled('cpu') inside the running context"
    return ReadBack(AUTOCAST, asked, "bf16" if seen.autocasts else "off", "accepted", how)


def _with_mkldnn(torch: Any, model: Any, value: Value) -> Any:
    torch.backends.mkldnn.set_flags(bool(value))
    return model


def _mkldnn(seen: Seen) -> ReadBack:
    n = len(seen.primitives.compute)
    is_on = bool(seen.torch.backends.mkldnn.enabled) or n > 0
    how = f"torch.backends.mkldnn.enabled; {n} oneDNN primitives in a call"
    return ReadBack(_MKLDNN, seen.asked.get(_MKLDNN), is_on, "effective", how)


def _with_precision(torch: Any, model: Any, value: Value) -> Any:
    torch.backends.mkldnn.matmul.fp32_precision = value
    torch.backends.mkldnn.conv.fp32_precision = value
    return model


def _by_products(knob: str) -> Callable[[Seen], ReadBack | None]:
    """Return what reads a precision back by the rounding of products."""

    def read(seen: Seen) -> ReadBack | None:
        if knob not in seen.asked:
            return None
        with seen.torch.inference_mode():
            return products.read_back(knob, seen.asked[knob], multiplications(seen.torch))

    return read


def _isa(seen: Seen) -> ReadBack | None:
    if _ISA not in seen.asked:
        return None
    how = "the instruction set in oneDNN's log"
    return ReadBack(_ISA, seen.asked[_ISA], seen.primitives.isa(), "effective", how)


def _pages(seen: Seen) -> ReadBack | None:
    """Look at the mapping of a large tensor."""
    if _PAGES not in seen.asked:
        return None
    tensor = seen.torch.zeros(1 << 24)
    is_advised = has_huge_pages(tensor.data_ptr())
    how = f"a tensor of 64 MiB {'is' if is_advised else 'is not'} advised to use huge pages"
    return ReadBack(_PAGES, seen.asked[_PAGES], int(is_advised), "effective", how)


def _of_form(knob: str) -> Way:
    return Way(lambda seen: seen.forms[knob])


WAYS: dict[str, Way] = {
    _THREADS: Way(_threads),
    _INTEROP: Way(_interop, at_start=lambda torch, n: torch.set_num_interop_threads(int(n))),
    _CAPABILITY: Way(_capability),
    _DENORMAL: Way(_denormal, at_start=lambda torch, on: torch.set_flush_denormal(bool(on))),
    # mapped before anything converts them: what a file holds is what the model states
    weights.WEIGHTS: Way(lambda seen: weights.read_back(seen.model, seen.asked), to_model=_mapped),
    MEMORY_FORMAT: Way(_layout, to_model=_laid_out),
    DTYPE: Way(_dtype, to_model=_converted),
    _MKLDNN: Way(_mkldnn, to_model=_with_mkldnn),
    _PRECISION: Way(_by_products(_PRECISION), to_model=_with_precision),
    AUTOCAST: Way(_autocast),
    **{knob: _of_form(knob) for knob in forms.KNOBS},
    _ISA: Way(_isa),
    _PAGES: Way(_pages),
    _FPMATH: Way(_by_products(_FPMATH)),
}
