"""Installed and missing software, each with the command that installs it."""

from __future__ import annotations

import msgspec

from tuner.frameworks import FRAMEWORKS, OFFERED
from tuner.host.finding import Finding, Surroundings
from tuner.host.identity import Host
from tuner.host.libraries import how_to_install


def _frameworks(s: Surroundings) -> list[Finding]:
    return [
        Finding(
            f"no_{name}",
            "missing",
            f"{name} is not installed: its models cannot be tuned",
            FRAMEWORKS[name].install,
        )
        for name in OFFERED
        if name not in s.frameworks
    ]


def _libraries(s: Surroundings) -> list[Finding]:
    wanted = {
        "tcmalloc": "the tcmalloc allocator cannot be tried",
        "jemalloc": "the jemalloc allocator cannot be tried",
        "mimalloc": "the mimalloc allocator cannot be tried",
        "libnuma": "processes cannot be bound to NUMA nodes",
    }
    return [
        _missing_library(s.host, name, f"no_{name}", f"{name} is not installed: {loss}")
        for name, loss in wanted.items()
        if name not in s.host.libraries
    ]


def _missing_library(host: Host, name: str, id: str, message: str) -> Finding:
    """Say how to install a library, or why the one that pip installed cannot be used."""
    if name not in host.unusable:
        return Finding(id, "missing", message, how_to_install(name))
    fault, _, remedy = host.unusable[name].rpartition(": ")
    return Finding(id, "missing", f"{name} cannot be preloaded: {fault}", remedy)


def _openmp(s: Surroundings) -> list[Finding]:
    is_there = {"libiomp5", "libomp"} & s.host.libraries.keys()  # either stands in for the other
    if is_there or "torch" not in s.frameworks:
        return []
    message = (
        "neither Intel's OpenMP runtime (libiomp5) nor LLVM's (libomp) is installed: none but "
        "PyTorch's own can be tried"
    )
    found = _missing_library(s.host, "libiomp5", "no_openmp", message)
    if "libiomp5" in s.host.unusable:
        return [found]
    remedy = f"on x86-64: {found.remedy}; or {how_to_install('libomp')}"
    return [msgspec.structs.replace(found, remedy=remedy)]


def _compiler(s: Surroundings) -> list[Finding]:
    if s.host.cxx:
        return []
    return [
        Finding(
            "no_cxx",
            "missing",
            "no C++ compiler: torch.compile cannot be tried",
            "apt-get install g++",
        )
    ]
