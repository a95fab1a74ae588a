"""The forms in which a PyTorch model can run: from a placed model to a function of its arguments.

Each form takes the model's arguments and returns what the model returns: keywords, dictionaries,
tuples, data classes, None. It reports whether calls run in that form, because a compiler that falls
back to eager execution does not say so.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from tuner.engines import FRAMEWORK
from tuner.record.configuration import Value
from tuner.record.launch import ReadBack
from tuner.space.knobs_of import engines
from tuner.space.knobs_of.engines import ENGINE
from tuner.worker.engines.conversion import PACKAGES
from tuner.worker.frameworks import Calibration, no_inputs
from tuner.worker.frameworks.torch.engine_form import EngineForm
from tuner.worker.frameworks.torch.flattened import Flattened

COMPILE, CPP_WRAPPER = "torch.compile.mode", "torch.compile.cpp_wrapper"
AUTOTUNE = "torch.compile.max_autotune"
GRAPHS = "torch.compile.cuda_graphs"
"""On a card only; read back from what the host launches there."""
JIT, EXPORT = "torch.jit.mode", "torch.export.mode"
KNOBS = (COMPILE, AUTOTUNE, CPP_WRAPPER, JIT, EXPORT, *(knob.id for knob in engines.KNOBS))
"""Settings that choose the form in which a model runs."""


class Form(Protocol):
    """One way to run a model."""

    is_built: bool
    """Whether functions are built for shapes and structures; else any arguments will do."""

    def function(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[..., Any]:
        """Return a function of arguments like these; compiling may wait until the first call.

        Like these: of the same structure, with tensors of the same shapes and types, contiguous
        ones or with their channels last as they were given, and with the same constants.
        Raises UsageError for outputs that the form cannot return.
        """

    def read_back(self) -> list[ReadBack]:
        """Tell what form the calls really have."""


def form_of(
    torch: Any, model: Any, settings: Mapping[str, Value], calibration: Calibration = no_inputs
) -> Form:
    """Return the form that the settings ask for; at most one of them is set."""
    if settings.get(ENGINE, FRAMEWORK) != FRAMEWORK:
        return _InEngine(torch, model, settings, calibration)
    if JIT in settings:
        return _Script(torch, model, settings)
    if EXPORT in settings:
        return _AheadOfTime(torch, model, settings)
    if COMPILE in settings:
        return _Compiled(torch, model, settings)
    return _Eager(model)


def _others(*but: str) -> list[ReadBack]:
    """Return the read-backs of the forms that are not in use."""
    off: dict[str, Value] = {
        COMPILE: "off", AUTOTUNE: False, CPP_WRAPPER: False, JIT: "off", EXPORT: "off",
        ENGINE: FRAMEWORK,
    }  # fmt: skip
    how = "the program does not use it"
    return [ReadBack(k, None, v, "effective", how) for k, v in off.items() if k not in but]


class _Eager:
    is_built = False

    def __init__(self, model: Any) -> None:
        self._model = model

    def function(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[..., Any]:
        model: Callable[..., Any] = self._model
        return model

    def read_back(self) -> list[ReadBack]:
        return _others()


class _InEngine(EngineForm):
    def read_back(self) -> list[ReadBack]:
        """Ask the engine."""
        own = super().read_back()
        return [*_others(*(item.knob for item in own)), *own]


class _Compiled:
    """torch.compile; freezing, tuning and the C++ wrapper are TorchInductor's own switches."""

    is_built = True

    def __init__(self, torch: Any, model: Any, settings: Mapping[str, Value]) -> None:
        import torch._inductor.config as inductor

        # TorchInductor writes the number of threads into what it compiles, and before PyTorch 2.13
        # its cache does not tell them apart (pytorch/pytorch#167463): code for one thread would be
        # measured under two
        torch.compiler.config.cache_key_tag = f"{torch.get_num_threads()} threads"
        self._settings = settings
        self._mode = str(settings[COMPILE])
        inductor.freezing = self._mode == "freezing"
        inductor.max_autotune = bool(settings.get(AUTOTUNE))
        inductor.cpp_wrapper = bool(settings.get(CPP_WRAPPER))
        inductor.triton.cudagraphs = bool(settings.get(GRAPHS))
        self._model = model
        # each batch size gets its static graph, as in a deployment that has only one
        self._compiled = torch.compile(model, dynamic=False)

    def function(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[..., Any]:
        compiled: Callable[..., Any] = self._compiled
        return compiled

    def read_back(self) -> list[ReadBack]:
        """Find out whether calls run compiled code: a fallback leaves no generated module."""
        from torch._dynamo.utils import counters
        from torch._inductor.codecache import PyCodeCache

        frames, breaks = counters["frames"], sum(counters["graph_break"].values())
        modules = PyCodeCache.modules
        # counts what the trial chose, also where the choice was in the compiler's cache already
        n_tuned = counters["inductor"]["cpp_templated_kernel_counter"]
        n_tuned += sum(_TEMPLATE in _source(module) for module in modules)
        is_compiled = bool(modules and frames["ok"] and frames["ok"] == frames["total"])
        n_frozen = sum(name.startswith("_frozen_param") for m in modules for name in vars(m))
        n_wrapped = sum("CppWrapperCodeCache" in _source(module) for module in modules)
        n_backward = sum(_TANGENTS in _source(module) for module in modules)
        if self._model.training:  # a graph of the forward pass alone leaves gradients to autograd
            is_compiled = is_compiled and n_backward > 0
        how = (
            f"{frames['ok']} of {frames['total']} frames compiled, {breaks} graph breaks, "
            f"{len(modules)} generated modules, {n_frozen} frozen parameters"
            + (f", {n_backward} of backward passes" if self._model.training else "")
        )
        mode = ("freezing" if n_frozen else "default") if is_compiled else "off"
        requested = self._settings
        return [
            *_others(COMPILE, AUTOTUNE, CPP_WRAPPER),
            ReadBack(COMPILE, self._mode, mode, "effective", how),
            ReadBack(
                AUTOTUNE,
                requested.get(AUTOTUNE),
                is_compiled and n_tuned > 0,
                "effective",
                f"{n_tuned} product kernels of TorchInductor's own were chosen by trial",
            ),
            ReadBack(
                CPP_WRAPPER,
                requested.get(CPP_WRAPPER),
                is_compiled and n_wrapped > 0,
                "effective",
                f"{n_wrapped} of {len(modules)} generated modules call from C++",
            ),
        ]


_TANGENTS = "tangents_"
"""How TorchInductor names what a backward pass is given."""
_TEMPLATE = "triton_tem_"
"""How the names of TorchInductor's product kernels on a card begin. Its counters count trials
there, and none where an earlier compilation tried the same products."""


def _source(module: Any) -> str:
    try:
        return Path(module.__file__).read_text()
    except (AttributeError, OSError, TypeError):
        return ""


class _Script:
    """TorchScript: traced at the batch size, parameters folded in; optionally oneDNN's layouts."""

    is_built = True

    def __init__(self, torch: Any, model: Any, settings: Mapping[str, Value]) -> None:
        self._torch = torch
        self._model = model
        self._mode = str(settings[JIT])
        self._scripted: Any = None

    def function(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[..., Any]:
        jit = self._torch.jit
        if isinstance(self._model, jit.ScriptModule):  # of itself it takes and returns structures
            function: Callable[..., Any] = self._frozen(self._model)
            return function
        flat = Flattened(self._torch, self._model, args, kwargs)
        flat.call_once()
        traced = jit.trace(flat.module, flat.tensors, check_trace=False)
        return flat.with_structure(self._frozen(traced))

    def _frozen(self, module: Any) -> Any:
        self._scripted = self._torch.jit.freeze(module)
        if self._mode == "optimize":
            self._scripted = self._torch.jit.optimize_for_inference(self._scripted)
        return self._scripted

    def read_back(self) -> list[ReadBack]:
        graph = str(self._scripted.graph)
        n_left = graph.count("prim::GetAttr")
        n_mkldnn = graph.count("mkldnn")
        mode = "off" if n_left else "optimize" if n_mkldnn else "freeze"
        how = f"TorchScript graph with {n_left} attribute reads, {n_mkldnn} oneDNN operators"
        return [*_others(JIT), ReadBack(JIT, self._mode, mode, "effective", how)]


class _AheadOfTime:
    """torch.export and AOTInductor; the package is kept next to the compiler's cache."""

    is_built = True

    def __init__(self, torch: Any, model: Any, settings: Mapping[str, Value]) -> None:
        self._torch = torch
        self._model = model
        self._settings = settings

    def function(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[..., Any]:
        from torch._inductor import aoti_compile_and_package, aoti_load_package

        kept = os.environ.get(PACKAGES)
        flat = Flattened(self._torch, self._model, args, kwargs)
        with tempfile.TemporaryDirectory(dir=kept) as folder:
            package = Path(folder) / "model.pt2"
            if kept:
                package = Path(kept) / self._name(flat.tensors)
            if not package.exists():
                exported = self._torch.export.export(flat.module, flat.distinct())
                made = aoti_compile_and_package(
                    exported, package_path=str(Path(folder) / "made.pt2")
                )
                Path(made).replace(package)
            function: Callable[..., Any] = aoti_load_package(str(package))
        # unpacked below /tmp and removed by its destructor, which a killed process never runs
        for library in self._mapped():
            shutil.rmtree(_unpacked_folder(library), ignore_errors=True)
        return flat.with_structure(function)

    def _name(self, tensors: Sequence[Any]) -> str:
        """Name a kept package by all that its code may depend on: settings, shapes and types.

        A study has one model, one set of weights and one structure of arguments; elsewhere nothing
        is kept.
        """
        shapes = [(t.shape, t.dtype) for t in tensors]
        key = repr(("flattened", sorted(self._settings.items()), shapes))
        return f"aoti-{hashlib.sha256(key.encode()).hexdigest()[:16]}.pt2"

    def _mapped(self) -> set[Path]:
        """Return the mapped libraries of unpacked packages, removed ones too."""
        lines = Path("/proc/self/maps").read_text().splitlines()
        return {
            Path(line.split(maxsplit=5)[5].removesuffix(" (deleted)"))
            for line in lines
            if "/aotinductor_" in line and ".so" in line
        }

    def read_back(self) -> list[ReadBack]:
        loaded = self._mapped()
        mode = "aot_inductor" if loaded else "off"
        how = f"{len(loaded)} libraries of AOTInductor packages are mapped"
        return [
            *_others(EXPORT),
            ReadBack(EXPORT, self._settings[EXPORT], mode, "effective", how),
        ]


def _unpacked_folder(library: Path) -> Path:
    return next(p for p in library.parents if p.name.startswith("aotinductor_"))
