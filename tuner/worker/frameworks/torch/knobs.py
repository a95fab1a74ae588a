"""How each knob of PyTorch is applied and read back: one entry each, in the order of applying.

Environment variables are applied before the process starts, and forms (torch.compile and the like)
by forms.py. OpenMP's variables are read back as in any framework (tuner/worker/evidence/openmp.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

from tuner.record.configuration import Value
from tuner.record.launch import Evidence, ReadBack
from tuner.record.workload import CPU, CUDA
from tuner.space.knobs_of.torch import LOADER_PREFETCH, LOADER_WORKERS, RANKS
from tuner.worker.evidence.allocator import has_huge_pages
from tuner.worker.frameworks import Setter, products
from tuner.worker.frameworks.torch import forms, weights
from tuner.worker.frameworks.torch.account import Account
from tuner.worker.frameworks.torch.kernels import GRAPH_LAUNCH, Kernels
from tuner.worker.frameworks.torch.onednn import Primitives, multiplications
from tuner.worker.frameworks.training import ACCUMULATION, OPTIMIZER

MEMORY_FORMAT, DTYPE, AUTOCAST = "torch.memory_format", "torch.dtype", "torch.autocast"
_MKLDNN, _PRECISION = "torch.mkldnn", "torch.fp32_precision"
_THREADS, _INTEROP = "env.OMP_NUM_THREADS", "torch.interop_threads"
_CAPABILITY, _DENORMAL = "env.ATEN_CPU_CAPABILITY", "torch.flush_denormal"
_ISA, _PAGES = "env.ONEDNN_MAX_CPU_ISA", "env.THP_MEM_ALLOC_ENABLE"
_FPMATH = "env.ONEDNN_DEFAULT_FPMATH_MODE"
_MATMUL, _BENCHMARK = "torch.float32_matmul_precision", "torch.cudnn.benchmark"
_SEGMENTS = "env.PYTORCH_ALLOC_CONF"
_TYPES = {"bf16": "bfloat16", "fp16": "float16"}


def type_of(torch: Any, value: Value | None) -> Any:
    """Return PyTorch's type for a setting of reduced precision; None for fp32, off or unset."""
    return getattr(torch, _TYPES[str(value)]) if value in _TYPES else None


class Seen:
    """Observations of a placed model after a call."""

    def __init__(
        self,
        torch: Any,
        model: Any,
        requested: dict[str, Value],
        account: Account,
        forms: Mapping[str, ReadBack],
        *,
        autocast: Any,
        traces: bool,
        updates: Mapping[str, int] = {},
        n_passes: int = 0,
        loading: Mapping[str, ReadBack] = {},
    ) -> None:
        """Take the observations.

        forms: the form's report, by knob. autocast: the type if calls run in it, or None. traces:
        whether the report was to contain everything that can be seen. updates: the operators of an
        optimizer's update, by the way in which it is made; none if nothing learns. n_passes: the
        backward passes of a step. loading: the report of the loader of its batches, by knob.
        """
        self.torch = torch
        self.model = model
        self.requested = requested
        self.account = account
        self.forms = forms
        self.autocast = autocast
        self.traces = traces
        self.updates = updates
        self.n_passes = n_passes
        self.loading = loading

    @property
    def primitives(self) -> Primitives:
        """The report of oneDNN, for computation on the CPU."""
        return cast("Primitives", self.account)

    @property
    def kernels(self) -> Kernels:
        """The card's report, for computation there."""
        return cast("Kernels", self.account)

    def converted(self) -> tuple[str, str]:
        """Return the reduced precision that all weights have, and how many have it; or fp32."""
        floating = [p.dtype for p in self.model.parameters() if p.is_floating_point()]
        found = floating[0] if floating else None
        name = next((n for n in _TYPES if found is type_of(self.torch, n)), "bf16")
        type_ = type_of(self.torch, name)
        n = sum(each is type_ for each in floating)
        text = f"{n} of {len(floating)} parameters are {_TYPES[name]}"
        return (name if floating and n == len(floating) else "fp32"), text

    def name_of(self, type_: Any) -> str:
        """Return the setting that stands for a type of reduced precision; off for none."""
        return next((n for n in _TYPES if type_ is type_of(self.torch, n)), "off")


class KnobAdapter(NamedTuple):
    """How a knob is read back, and how it is applied if this process does so."""

    read: Callable[[Seen], ReadBack | None]
    """None if the setting was not requested and there is nothing to report."""
    at_start: Callable[[Any, Value], None] | None = None
    """Given torch, before any work."""
    to_model: Callable[[Any, Any, Value], Any] | None = None
    """Given torch and the model; returns the model."""


def setters(torch: Any) -> tuple[Setter, ...]:
    """Return the functions by which a program sets its threads itself."""
    intra, inter = "set_num_threads", "set_num_interop_threads"
    return (
        Setter(_THREADS, torch, intra, f"torch.{intra}", torch.get_num_threads),
        Setter(_INTEROP, torch, inter, f"torch.{inter}"),
    )


def _threads(seen: Seen) -> ReadBack:
    n, how = seen.torch.get_num_threads(), "torch.get_num_threads()"
    return ReadBack(_THREADS, seen.requested.get(_THREADS), n, "effective", how)


def _interop(seen: Seen) -> ReadBack:
    how = "torch.get_num_interop_threads(); idle outside TorchScript fork"
    n = seen.torch.get_num_interop_threads()
    return ReadBack(_INTEROP, seen.requested.get(_INTEROP), n, "accepted", how)


def _capability(seen: Seen) -> ReadBack:
    value = str(seen.torch.backends.cpu.get_cpu_capability()).lower()
    how = "torch.backends.cpu.get_cpu_capability()"
    return ReadBack(_CAPABILITY, seen.requested.get(_CAPABILITY), value, "effective", how)


def _denormal(seen: Seen) -> ReadBack:
    flushes = not bool((seen.torch.full((64,), 1e-30) * 1e-10).count_nonzero())
    how = f"1e-30 x 1e-10 is {'0' if flushes else 'not 0'}"
    return ReadBack(_DENORMAL, seen.requested.get(_DENORMAL), flushes, "effective", how)


def _mapped(torch: Any, model: Any, value: Value) -> Any:
    if value == "mapped":
        weights.map_weights(torch, model)
    return model


def _laid_out(torch: Any, model: Any, value: Value) -> Any:
    is_last = value == "channels_last"
    return model.to(memory_format=torch.channels_last) if is_last else model


def _layout(seen: Seen) -> ReadBack:
    requested = seen.requested.get(MEMORY_FORMAT)
    if found := seen.account.layout():
        return ReadBack(MEMORY_FORMAT, requested, found[0], "effective", found[1])
    images = [p for p in seen.model.parameters() if p.ndim == 4]
    channels_last = seen.torch.channels_last
    is_last = bool(images) and all(w.is_contiguous(memory_format=channels_last) for w in images)
    value = "channels_last" if is_last else "contiguous"
    how = f"layout of {len(images)} weight tensors"
    return ReadBack(MEMORY_FORMAT, requested, value, "accepted", how)


def _converted(torch: Any, model: Any, value: Value) -> Any:
    type_ = type_of(torch, value)
    return model if type_ is None else model.to(type_)


def _dtype(seen: Seen) -> ReadBack:
    value, how = seen.converted()
    if (ran := seen.account.low()) is not None:
        value, how = (value if ran[0] == value else "fp32"), f"{how}; {ran[1]}"
    return ReadBack(DTYPE, seen.requested.get(DTYPE), value, "effective", how)


def _autocast(seen: Seen) -> ReadBack:
    """Tell it from converted weights: by the weights themselves."""
    requested = seen.requested.get(AUTOCAST)
    if (ran := seen.account.low()) is not None:
        value = ran[0] if ran[0] and seen.converted()[0] == "fp32" else "off"
        return ReadBack(AUTOCAST, requested, value, "effective", ran[1])
    how = "torch.is_autocast_enabled() inside the running context"
    return ReadBack(AUTOCAST, requested, seen.name_of(seen.autocast), "accepted", how)


def _with_mkldnn(torch: Any, model: Any, value: Value) -> Any:
    torch.backends.mkldnn.set_flags(bool(value))
    return model


def _mkldnn(seen: Seen) -> ReadBack:
    n = len(seen.primitives.compute)
    is_on = bool(seen.torch.backends.mkldnn.enabled) or n > 0
    how = f"torch.backends.mkldnn.enabled; {n} oneDNN primitives in a call"
    return ReadBack(_MKLDNN, seen.requested.get(_MKLDNN), is_on, "effective", how)


def _with_precision(torch: Any, model: Any, value: Value) -> Any:
    torch.backends.mkldnn.matmul.fp32_precision = value
    torch.backends.mkldnn.conv.fp32_precision = value
    return model


def _by_products(knob: str) -> Callable[[Seen], ReadBack | None]:
    """Return what reads a precision back by the rounding of products."""

    def read(seen: Seen) -> ReadBack | None:
        if knob not in seen.requested:
            return None
        with seen.torch.inference_mode():
            return products.read_back(knob, seen.requested[knob], multiplications(seen.torch))

    return read


def _isa(seen: Seen) -> ReadBack | None:
    if _ISA not in seen.requested:
        return None
    how = "the instruction set in oneDNN's log"
    return ReadBack(_ISA, seen.requested[_ISA], seen.primitives.isa(), "effective", how)


def _pages(seen: Seen) -> ReadBack | None:
    """Look at the mapping of a large tensor."""
    if _PAGES not in seen.requested:
        return None
    tensor = seen.torch.zeros(1 << 24)
    is_advised = has_huge_pages(tensor.data_ptr())
    how = f"a tensor of 64 MiB {'is' if is_advised else 'is not'} advised to use huge pages"
    return ReadBack(_PAGES, seen.requested[_PAGES], int(is_advised), "effective", how)


def _with_matmul_precision(torch: Any, model: Any, value: Value) -> Any:
    torch.set_float32_matmul_precision(str(value))
    return model


def _matmul_precision(seen: Seen) -> ReadBack:
    """Look at the model's own matrix products, else at the rounding of one of ours.

    In a model with convolutions nothing tells products apart: cuDNN has cuBLAS do some of them.
    """
    requested = seen.requested.get(_MATMUL)
    spent = {} if seen.kernels.n_convolutions else seen.kernels.precisions()
    shares = {p: us / sum(spent.values()) for p, us in spent.items() if p in ("tf32", "fp32")}
    if shares:
        value = "high" if max(shares, key=lambda p: shares[p]) == "tf32" else "highest"
        text = ", ".join(f"{share:.0%} in {p}" for p, share in shares.items())
        return ReadBack(_MATMUL, requested, value, "effective", f"time of matrix products: {text}")
    with seen.torch.inference_mode():
        rounding, error = products.precision_of([_product_on_the_card(seen.torch)])
    value = {"strict": "highest", "tf32": "high"}.get(rounding, "medium")
    how = f"a product of ours has a relative error of {error:.1g}; the model's own are not told"
    evidence: Evidence = "effective" if requested is not None and value != requested else "accepted"
    return ReadBack(_MATMUL, requested, value, evidence, how)


def _product_on_the_card(torch: Any) -> products.Multiply:
    def multiply(a: Any, b: Any) -> Any:
        return (torch.from_numpy(a).to(CUDA) @ torch.from_numpy(b).to(CUDA)).cpu().numpy()

    return multiply


def _with_benchmark(torch: Any, model: Any, value: Value) -> Any:
    torch.backends.cudnn.benchmark = bool(value)
    return model


def _benchmark(seen: Seen) -> ReadBack:
    value, how = bool(seen.torch.backends.cudnn.benchmark), "torch.backends.cudnn.benchmark"
    return ReadBack(_BENCHMARK, seen.requested.get(_BENCHMARK), value, "accepted", how)


def _graphs(seen: Seen) -> ReadBack:
    """Count what the host launches: a graph that was not captured has no effect."""
    requested = seen.requested.get(forms.GRAPHS)
    if not seen.kernels.all and seen.traces:
        how = "the trace of a call holds no kernels: the profiler cannot look at this card"
        return ReadBack(forms.GRAPHS, requested, None, "environment_only", how)
    if not seen.kernels.all:
        compiles = seen.forms[forms.COMPILE].observed != "off"
        how = "as another launch of the same settings showed; no call was traced in this one"
        return ReadBack(forms.GRAPHS, requested, bool(requested) and compiles, "accepted", how)
    n = seen.kernels.graph_launches
    how = f"{n} x {GRAPH_LAUNCH} in a call of {sum(k.calls for k in seen.kernels.all)} kernels"
    return ReadBack(forms.GRAPHS, requested, n > 0, "effective", how)


def _segments(seen: Seen) -> ReadBack | None:
    """Look at the allocator's segments."""
    if _SEGMENTS not in seen.requested:
        return None
    segments = seen.torch.cuda.memory_snapshot()
    n = sum(bool(segment.get("is_expandable")) for segment in segments)
    requested = str(seen.requested[_SEGMENTS])
    wanted = re.search(r"expandable_segments:(true|false)", requested, re.IGNORECASE)
    how = f"{n} of {len(segments)} segments of PyTorch's allocator are expandable"
    if wanted is None:
        return ReadBack(
            _SEGMENTS, requested, requested, "accepted", f"torch was imported with it; {how}"
        )
    is_as_asked = bool(n) == (wanted[1].lower() == "true")
    is_all = wanted[0] == requested  # of anything besides nothing is seen
    evidence: Evidence = "effective" if is_all or not is_as_asked else "accepted"
    return ReadBack(_SEGMENTS, requested, requested if is_as_asked else how, evidence, how)


def _optimizer(seen: Seen) -> ReadBack | None:
    """Look at the operators of an update: a fused one has one for all parameters."""
    if not seen.updates:
        return None
    way = next((w for w in ("fused", "foreach") if seen.updates.get(w)), "for_loop")
    others = sum(seen.updates.values()) - seen.updates[way]
    how = f"{seen.updates[way]} operators of an update are {way}"
    how += f", {others} of others, such as counts of steps" if others else ""
    return ReadBack(OPTIMIZER, seen.requested.get(OPTIMIZER), way, "effective", how)


def _ranks(seen: Seen) -> ReadBack | None:
    """Ask the group of processes how many they are."""
    if not seen.updates:
        return None
    distributed = seen.torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return ReadBack(RANKS, seen.requested.get(RANKS), 1, "effective", "no group of processes")
    n, kind = distributed.get_world_size(), distributed.get_backend()
    how = f"torch.distributed.get_world_size() of a {kind} group"
    return ReadBack(RANKS, seen.requested.get(RANKS), n, "effective", how)


def _accumulation(seen: Seen) -> ReadBack | None:
    if not seen.n_passes:
        return None
    how = f"{seen.n_passes} backward passes before an update"
    return ReadBack(ACCUMULATION, seen.requested.get(ACCUMULATION), seen.n_passes, "effective", how)


def _of_loader(knob: str) -> KnobAdapter:
    return KnobAdapter(lambda seen: seen.loading.get(knob))


def _of_form(knob: str) -> KnobAdapter:
    return KnobAdapter(lambda seen: seen.forms.get(knob))


_ON_THE_CPU: dict[str, KnobAdapter] = {
    _THREADS: KnobAdapter(_threads),
    _INTEROP: KnobAdapter(
        _interop, at_start=lambda torch, n: torch.set_num_interop_threads(int(n))
    ),
    _CAPABILITY: KnobAdapter(_capability),
    _DENORMAL: KnobAdapter(
        _denormal, at_start=lambda torch, on: torch.set_flush_denormal(bool(on))
    ),
    # mapped before anything converts them: what a file holds is what the model states
    weights.WEIGHTS: KnobAdapter(
        lambda seen: weights.read_back(seen.model, seen.requested), to_model=_mapped
    ),
    MEMORY_FORMAT: KnobAdapter(_layout, to_model=_laid_out),
    DTYPE: KnobAdapter(_dtype, to_model=_converted),
    _MKLDNN: KnobAdapter(_mkldnn, to_model=_with_mkldnn),
    _PRECISION: KnobAdapter(_by_products(_PRECISION), to_model=_with_precision),
    AUTOCAST: KnobAdapter(_autocast),
    **{knob: _of_form(knob) for knob in forms.KNOBS},
    _ISA: KnobAdapter(_isa),
    _PAGES: KnobAdapter(_pages),
    _FPMATH: KnobAdapter(_by_products(_FPMATH)),
    OPTIMIZER: KnobAdapter(_optimizer),
    ACCUMULATION: KnobAdapter(_accumulation),
    RANKS: KnobAdapter(_ranks),
    LOADER_WORKERS: _of_loader(LOADER_WORKERS),
    LOADER_PREFETCH: _of_loader(LOADER_PREFETCH),
}

_ON_A_CARD: dict[str, KnobAdapter] = {
    _THREADS: KnobAdapter(_threads),
    MEMORY_FORMAT: KnobAdapter(_layout, to_model=_laid_out),
    DTYPE: KnobAdapter(_dtype, to_model=_converted),
    _MATMUL: KnobAdapter(_matmul_precision, to_model=_with_matmul_precision),
    _BENCHMARK: KnobAdapter(_benchmark, to_model=_with_benchmark),
    AUTOCAST: KnobAdapter(_autocast),
    forms.COMPILE: _of_form(forms.COMPILE),
    forms.AUTOTUNE: _of_form(forms.AUTOTUNE),
    forms.GRAPHS: KnobAdapter(_graphs),
    _SEGMENTS: KnobAdapter(_segments),
    OPTIMIZER: KnobAdapter(_optimizer),
    ACCUMULATION: KnobAdapter(_accumulation),
    LOADER_WORKERS: _of_loader(LOADER_WORKERS),
    LOADER_PREFETCH: _of_loader(LOADER_PREFETCH),
}
ADAPTERS: dict[str, dict[str, KnobAdapter]] = {CPU: _ON_THE_CPU, CUDA: _ON_A_CARD}
"""By device."""
