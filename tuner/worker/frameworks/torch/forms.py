"""The forms in which a PyTorch model can run: from a placed model to a call.

Each form turns the model into a function of tensors and can tell whether calls run in that form. A
compiler that fell back to eager execution says nothing of it otherwise.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from tuner.record.configuration import Value
from tuner.record.launch import ReadBack

COMPILE, CPP_WRAPPER = "torch.compile.mode", "torch.compile.cpp_wrapper"
AUTOTUNE = "torch.compile.max_autotune"
JIT, EXPORT = "torch.jit.mode", "torch.export.mode"


class Form(Protocol):
    """One way to run a model."""

    def bind(self, tensors: Sequence[Any]) -> Callable[[], Any]:
        """Return a call on these tensors; compiling may wait until the first call."""

    def read_back(self) -> list[ReadBack]:
        """Tell what form the calls really have."""


def form_of(torch: Any, model: Any, settings: Mapping[str, Value]) -> Form:
    """Return the form that the settings ask for; at most one of them is set."""
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
        COMPILE: "off", AUTOTUNE: False, CPP_WRAPPER: False, JIT: "off", EXPORT: "off"
    }  # fmt: skip
    how = "the program does not use it"
    return [ReadBack(k, None, v, "effective", how) for k, v in off.items() if k not in but]


class _Eager:
    def __init__(self, model: Any) -> None:
        self._model = model

    def bind(self, tensors: Sequence[Any]) -> Callable[[], Any]:
        model = self._model
        return lambda: model(*tensors)

    def read_back(self) -> list[ReadBack]:
        return _others()


class _Compiled:
    """torch.compile; freezing, tuning and the C++ wrapper are TorchInductor's own switches."""

    def __init__(self, torch: Any, model: Any, settings: Mapping[str, Value]) -> None:
        import torch._inductor.config as inductor

        self._settings = settings
        self._mode = str(settings[COMPILE])
        inductor.freezing = self._mode == "freezing"
        inductor.max_autotune = bool(settings.get(AUTOTUNE))
        inductor.cpp_wrapper = bool(settings.get(CPP_WRAPPER))
        # each batch size gets its static graph, as in a deployment that has only one
        self._function = torch.compile(model, dynamic=False)

    def bind(self, tensors: Sequence[Any]) -> Callable[[], Any]:
        function = self._function
        return lambda: function(*tensors)

    def read_back(self) -> list[ReadBack]:
        """Find out whether calls run compiled code: a fallback leaves no generated module."""
        from torch._dynamo.utils import counters
        from torch._inductor.codecache import PyCodeCache

        frames, breaks = counters["frames"], sum(counters["graph_break"].values())
        modules = PyCodeCache.modules
        # counts what the trial chose, also where the choice was in the compiler's cache already
        n_tuned = counters["inductor"]["cpp_templated_kernel_counter"]
        is_compiled = bool(modules and frames["ok"] and frames["ok"] == frames["total"])
        n_frozen = sum(name.startswith("_frozen_param") for m in modules for name in vars(m))
        n_wrapped = sum("CppWrapperCodeCache" in _source(module) for module in modules)
        how = (
            f"{frames['ok']} of {frames['total']} frames compiled, {breaks} graph breaks, "
            f"{len(modules)} generated modules, {n_frozen} frozen parameters"
        )
        mode = ("freezing" if n_frozen else "default") if is_compiled else "off"
        asked = self._settings
        return [
            *_others(COMPILE, AUTOTUNE, CPP_WRAPPER),
            ReadBack(COMPILE, self._mode, mode, "effective", how),
            ReadBack(
                AUTOTUNE,
                asked.get(AUTOTUNE),
                is_compiled and n_tuned > 0,
                "effective",
                f"{n_tuned} product kernels of TorchInductor's own were chosen by trial",
            ),
            ReadBack(
                CPP_WRAPPER,
                asked.get(CPP_WRAPPER),
                is_compiled and n_wrapped > 0,
                "effective",
                f"{n_wrapped} of {len(modules)} generated modules call from C++",
            ),
        ]


def _source(module: Any) -> str:
    try:
        return Path(module.__file__).read_text()
    except (AttributeError, OSError, TypeError):
        return ""


class _Script:
    """TorchScript: traced at the batch size, parameters folded in; optionally oneDNN's layouts."""

    def __init__(self, torch: Any, model: Any, settings: Mapping[str, Value]) -> None:
        self._torch = torch
        self._model = model
        self._mode = str(settings[JIT])
        self._scripted: Any = None

    def bind(self, tensors: Sequence[Any]) -> Callable[[], Any]:
        jit = self._torch.jit
        scripted = jit.freeze(jit.trace(self._model, tuple(tensors), check_trace=False))
        if self._mode == "optimize":
            scripted = jit.optimize_for_inference(scripted)
        self._scripted = scripted
        return lambda: scripted(*tensors)

    def read_back(self) -> list[ReadBack]:
        graph = str(self._scripted.graph)
        n_left = graph.count("prim::GetAttr")
        n_mkldnn = graph.count("mkldnn")
        mode = "off" if n_left else "optimize" if n_mkldnn else "freeze"
        how = f"TorchScript graph with {n_left} attribute reads, {n_mkldnn} oneDNN operators"
        return [*_others(JIT), ReadBack(JIT, self._mode, mode, "effective", how)]


class _AheadOfTime:
    """torch.export and AOTInductor; the package is kept beside the compiler's cache."""

    def __init__(self, torch: Any, model: Any, settings: Mapping[str, Value]) -> None:
        self._torch = torch
        self._model = model
        self._settings = settings

    def bind(self, tensors: Sequence[Any]) -> Callable[[], Any]:
        from torch._inductor import aoti_compile_and_package, aoti_load_package

        package = self._package(tensors)
        if not package.exists():
            package.parent.mkdir(parents=True, exist_ok=True)
            exported = self._torch.export.export(self._model, tuple(tensors))
            with tempfile.TemporaryDirectory(dir=package.parent) as folder:
                made = aoti_compile_and_package(
                    exported, package_path=str(Path(folder) / package.name)
                )
                Path(made).replace(package)
        function = aoti_load_package(str(package))
        # unpacked below /tmp and removed by its destructor, which a killed process never runs
        for library in self._mapped():
            shutil.rmtree(_unpacked_folder(library), ignore_errors=True)
        return lambda: function(*tensors)

    def _package(self, tensors: Sequence[Any]) -> Path:
        """Name the package by all that its code may depend on: settings, shapes and types.

        It lies in the study's cache: another study has another model, or other weights.
        """
        key = repr((sorted(self._settings.items()), [(t.shape, t.dtype) for t in tensors]))
        folder = os.environ.get("TORCHINDUCTOR_CACHE_DIR") or tempfile.mkdtemp()
        return Path(folder) / f"aoti-{hashlib.sha256(key.encode()).hexdigest()[:16]}.pt2"

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
