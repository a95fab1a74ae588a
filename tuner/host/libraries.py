"""Shared libraries, compilers and packages that settings need, found without loading them."""

from __future__ import annotations

import fnmatch
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

from tuner.errors import MissingFramework

# File patterns by the name used in search spaces, the preferred file first. run_cpu globs only the
# unversioned names and misses every one on Debian, where they come with the -dev package.
_PATTERNS = {
    "tcmalloc": ("libtcmalloc_minimal.so*", "libtcmalloc.so*"),
    "jemalloc": ("libjemalloc.so*",),
    "mimalloc": ("libmimalloc.so*",),
    "libiomp5": ("libiomp5.so*",),
    "libomp": ("libomp.so*",),
    "libnuma": ("libnuma.so.1*",),
}

# Distributions whose version changes results. The tool's own libraries do not.
_VERSIONED = ("torch", "tensorflow", "keras", "numpy")

FRAMEWORK_PACKAGES = {"torch": "torch", "tensorflow": "tensorflow", "fake": "tuner"}
INSTALL_COMMANDS = {
    "torch": "pip install 'tune-framework[torch]'",
    "tensorflow": "pip install 'tune-framework[tensorflow]'",
}


def library_folders(root: Path = Path("/")) -> list[Path]:
    """List where shared libraries may lie, environments first, then Debian's multiarch folders."""
    multiarch = sysconfig.get_config_var("MULTIARCH") or f"{platform.machine()}-linux-gnu"
    prefixes = [os.environ.get("CONDA_PREFIX"), os.environ.get("VIRTUAL_ENV"), sys.prefix]
    own = [Path(prefix) / "lib" for prefix in prefixes if prefix] if root == Path("/") else []
    system = ["usr/local/lib", f"usr/lib/{multiarch}", "usr/lib64", "usr/lib", f"lib/{multiarch}"]
    return [*dict.fromkeys(own), *(root / folder for folder in system)]


def find_libraries(folders: Iterable[Path]) -> dict[str, str]:
    """Return the path of each known library that one of the folders holds."""
    places = list(folders)
    found: dict[str, str] = {}
    for name, patterns in _PATTERNS.items():
        for pattern in patterns:
            hits = [hit for folder in places for hit in sorted(folder.glob(pattern))]
            if hits and name not in found:
                found[name] = str(hits[0])
    return found


def library_named(path: str) -> str | None:
    """Return which known library a file is by its name, wherever it lies; None if it is none."""
    file = Path(path).name
    for name, patterns in _PATTERNS.items():
        if any(fnmatch.fnmatchcase(file, pattern) for pattern in patterns):
            return name
    return None


def find_cxx() -> str | None:
    """Return the C++ compiler that TorchInductor would use, or None."""
    named = os.environ.get("CXX", "").split()[:1]  # what follows are its options, a user's own
    return next((shutil.which(name) or name for name in named), None) or (
        shutil.which("g++") or shutil.which("clang++")
    )


def installed_frameworks() -> tuple[str, ...]:
    """Name the frameworks that can be imported, without importing them."""
    return tuple(
        name for name, package in FRAMEWORK_PACKAGES.items() if importlib.util.find_spec(package)
    )


def missing_framework(name: str) -> MissingFramework:
    """Return the one-line complaint about a framework that is not installed."""
    command = INSTALL_COMMANDS.get(name, "see --help")
    return MissingFramework(f"{name} is not installed here; type: {command}")


def read_versions() -> dict[str, str]:
    """Return the versions of Python, the C library, the kernel and the packages that compute."""
    versions = {
        "python": platform.python_version(),
        "libc": " ".join(platform.libc_ver()),
        "kernel": platform.release(),
    }
    for name in _VERSIONED:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
