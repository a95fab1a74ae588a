"""Shared libraries, compilers and packages that settings need, found without loading them."""

from __future__ import annotations

import fnmatch
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

import msgspec

from tuner.engines import ENGINE_DISTRIBUTIONS, ENGINES
from tuner.errors import MissingFramework
from tuner.frameworks import DISTRIBUTIONS, FRAMEWORKS, OFFERED
from tuner.record.workload import CUDA

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

PIP_PACKAGES = {"mimalloc": "cmeel-mimalloc", "libiomp5": "intel-openmp"}
"""The Python distribution that brings a library, where one does."""
DEBIAN_PACKAGES = {
    "tcmalloc": "libtcmalloc-minimal4",
    "jemalloc": "libjemalloc2",
    "mimalloc": "libmimalloc2.0",
    "libomp": "libomp5",
    "libnuma": "libnuma1",
}
"""The Debian and Ubuntu package that brings a library, where one does."""

STANDS_IN = "TUNE_FRAMEWORK_TEST_LIBRARIES"
"""A variable for tests: the one folder in which libraries of the system are searched."""
HIDDEN = "none"
"""Its value that hides every library of the system."""
ENGINES_STAND_IN = "TUNE_FRAMEWORK_TEST_ENGINES"
"""A variable for tests: its value HIDDEN hides every engine."""

_OF_A_SYSTEM = re.compile(r"/(usr/(local/)?)?lib(32|64|x32)?/|/opt/")
"""How the paths of libraries begin that a system's own packages or its administrator installed
(Filesystem Hierarchy Standard 3.0, 3.9, 3.13, 4.6, 4.9)."""

# Distributions whose version changes results. The tool's own libraries do not.
_VERSIONED = (*DISTRIBUTIONS, *ENGINE_DISTRIBUTIONS, "numpy")


def library_folders(root: Path = Path("/")) -> list[Path]:
    """List where shared libraries may lie, environments first, then Debian's multiarch folders."""
    own = [prefix / "lib" for prefix in _environments()] if root == Path("/") else []
    return [*dict.fromkeys(own), *_described_folders(root), *_system_folders(root)]


def searched_folders(root: Path = Path("/")) -> list[Path]:
    """List where libraries are searched that a setting can use: tests may hide the system's."""
    folders = library_folders(root)
    is_hidden = root == Path("/") and os.environ.get(STANDS_IN)
    hidden = _system_folders(root) if is_hidden else []
    return [folder for folder in folders if folder not in hidden]


def _described_folders(root: Path) -> list[Path]:
    named = os.environ.get(STANDS_IN) if root == Path("/") else None
    return [Path(named)] if named and named != HIDDEN else []


def _system_folders(root: Path) -> list[Path]:
    """List the system's library folders, Debian's multiarch ones among them."""
    multiarch = sysconfig.get_config_var("MULTIARCH") or f"{platform.machine()}-linux-gnu"
    folders = ("usr/local/lib", f"usr/lib/{multiarch}", "usr/lib64", "usr/lib", f"lib/{multiarch}")
    return [root / folder for folder in folders]


def _environments() -> list[Path]:
    """Return the folders of the Python environments that are in use here."""
    prefixes = [os.environ.get("CONDA_PREFIX"), os.environ.get("VIRTUAL_ENV"), sys.prefix]
    return [Path(prefix) for prefix in prefixes if prefix and prefix not in ("/usr", "/usr/local")]


def is_of_environment(path: str) -> bool:
    """Tell whether a library lies in a Python environment, which another host has elsewhere."""
    return any(Path(path).is_relative_to(prefix) for prefix in _environments())


def find_libraries(folders: Iterable[Path]) -> dict[str, str]:
    """Return the path of each known library that one of the folders holds.

    A path that LD_PRELOAD cannot hold is passed over.
    """
    places = list(folders)
    found: dict[str, str] = {}
    for name, patterns in _PATTERNS.items():
        for pattern in patterns:
            hits = [hit for folder in places for hit in sorted(folder.glob(pattern))]
            hits = [hit for hit in hits if not _separators(str(hit))]
            if hits and name not in found:
                found[name] = str(hits[0])
    return found


def lies_among_libraries(path: str) -> bool:
    """Tell whether a file is where libraries are installed, on this host or another.

    A name alone is: the loader finds it in such a folder. A folder that everyone may write to is
    not.
    """
    if "/" not in path:
        return True
    if os.path.normpath(path) != path:
        return False
    return bool(_OF_A_SYSTEM.match(path)) or Path(path).parent in library_folders()


def library_named(path: str) -> str | None:
    """Return which known library a file is by its name, in any folder; None if it is not known."""
    file = Path(path).name
    for name, patterns in _PATTERNS.items():
        if any(fnmatch.fnmatchcase(file, pattern) for pattern in patterns):
            return name
    return None


class Packaged(msgspec.Struct, frozen=True):
    """A library that pip installed into the environment of this Python."""

    path: str
    package: str
    """The requirement for pip: NAME==VERSION."""
    fault: str = ""
    """Why it cannot be preloaded here, and what mends that; empty if it can."""


def find_packaged() -> dict[str, Packaged]:
    """Return each known library that pip installed where this Python looks for packages.

    The record of the installed package tells where its files are: they may lie in a folder that no
    convention names, or in another environment that a .pth file adds to this one.
    """
    found = {}
    for name, package in PIP_PACKAGES.items():
        try:
            distribution = importlib.metadata.distribution(package)
        except importlib.metadata.PackageNotFoundError:
            continue
        path = _file_of(distribution, _PATTERNS[name])
        if path is not None:
            found[name] = Packaged(str(path), f"{package}=={distribution.version}", _fault(path))
    return found


def _file_of(distribution: importlib.metadata.Distribution, patterns: Iterable[str]) -> Path | None:
    """Return the first of a distribution's files that is there and has one of the names."""
    files = sorted(distribution.files or (), key=str)
    for pattern in patterns:
        for file in files:
            path = Path(str(distribution.locate_file(file)))
            if fnmatch.fnmatchcase(file.name, pattern) and path.is_file():
                return path.parent.resolve() / path.name
    return None


def _fault(path: Path) -> str:
    """Return why a library cannot be preloaded, as the loader says it; empty if it can.

    A preload that is not found is passed over with a message, but a library that is missing behind
    it ends every program at its start (ld.so of glibc 2.36). cmeel-mimalloc needs libatomic.so.1,
    which the slim images of Debian do not have.
    """
    if separators := _separators(str(path)):
        return (
            f"its path {path} has {separators}, which separates names in LD_PRELOAD: "
            "make the environment in another folder"
        )
    listed = subprocess.run(
        [sys.executable, "-c", ""],
        # the loader lists what it would load, and runs nothing (ld.so(8))
        env={**os.environ, "LD_TRACE_LOADED_OBJECTS": "1", "LD_PRELOAD": str(path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=False,
    ).stdout
    missing = [line.split()[0] for line in listed.splitlines() if line.endswith("not found")]
    if "libatomic.so.1" in missing:
        return "libatomic.so.1 is missing: apt-get install libatomic1"
    if missing:
        return f"{', '.join(missing)} is missing: install it"
    return "" if str(path) in listed else "the loader of this system does not take it"


def _separators(path: str) -> str:
    """Name the characters of a path at which LD_PRELOAD would end it (ld.so(8))."""
    return " and ".join(
        name for character, name in {" ": "a space", ":": "a colon"}.items() if character in path
    )


def how_to_install(name: str) -> str:
    """Return the command that installs a library: pip if possible, which needs no root."""
    if name in PIP_PACKAGES:
        return f"pip install {PIP_PACKAGES[name]}"
    return f"apt-get install {DEBIAN_PACKAGES[name]}"


def find_cxx() -> str | None:
    """Return the C++ compiler that TorchInductor would use, or None."""
    named = os.environ.get("CXX", "").split()[:1]  # what follows are its options, a user's own
    return next((shutil.which(name) or name for name in named), None) or (
        shutil.which("g++") or shutil.which("clang++")
    )


def installed_frameworks() -> tuple[str, ...]:
    """Name the frameworks that can be imported, without importing them."""
    return tuple(
        name for name, entry in FRAMEWORKS.items() if importlib.util.find_spec(entry.package)
    )


def installed_devices(framework: str) -> tuple[str, ...]:
    """Name the devices that an installed framework is measured on here, without importing it.

    torch says in its version.py which CUDA it was built with.
    """
    devices = FRAMEWORKS[framework].devices
    found = importlib.util.find_spec(FRAMEWORKS[framework].package)
    if CUDA not in devices or found is None or found.origin is None:
        return devices if found is not None else ()
    version = Path(found.origin).with_name("version.py")
    text = version.read_text() if version.is_file() else ""
    is_without = re.search(r"^cuda\b[^=]*= *None", text, re.MULTILINE)
    return tuple(device for device in devices if device != CUDA or not is_without)


def missing_framework(name: str) -> MissingFramework:
    """Return the one-line complaint about a framework that is not installed."""
    command = FRAMEWORKS[name].install if name in OFFERED else "see --help"
    return MissingFramework(f"{name} is not installed here; type: {command}")


def find_engines() -> tuple[str, ...]:
    """Return the engines that are installed with their converters, without importing them."""
    if os.environ.get(ENGINES_STAND_IN) == HIDDEN:
        return ()
    return tuple(
        name
        for name, entry in ENGINES.items()
        if all(importlib.util.find_spec(package) is not None for package in entry.packages)
    )


def find_quantizers() -> tuple[str, ...]:
    """Return the engines whose models can be quantised here."""
    return tuple(
        name
        for name in find_engines()
        if all(importlib.util.find_spec(package) for package in ENGINES[name].quantizers)
    )


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
