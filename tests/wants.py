"""What tests need of a host that not every host has: how it is found, and what brings it.

No test skips but through this module. A run ends with the number of tests that were skipped for
want of each thing, and with the commands that bring what is missing.
"""

import functools
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple, NoReturn

import pytest

from tuner.engines import ENGINES
from tuner.host import identity
from tuner.host.gpus import read_gpus
from tuner.host.identity import Host, probe
from tuner.host.libraries import (
    DEBIAN_PACKAGES,
    PIP_PACKAGES,
    STANDS_IN,
    find_cxx,
    installed_devices,
    installed_frameworks,
)
from tuner.record.workload import CUDA

DEBIANS_PYTHON = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
_PREFIX = "for want of "


@functools.cache
def host() -> Host:
    """Return the host that is here, whatever machine is described; its libraries may be hidden."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(identity.STANDS_IN, raising=False)
        return probe()


def _is_root() -> bool:
    return os.geteuid() == 0


def _has_glibc() -> bool:
    return "CS_GNU_LIBC_VERSION" in os.confstr_names and bool(os.confstr("CS_GNU_LIBC_VERSION"))


def _has_bf16() -> bool:
    return bool({"avx512_bf16", "amx_bf16"} & set(host().processor.isa))


def _has_bf16_products() -> bool:
    """Tell whether oneDNN multiplies numbers of 32 bits in bf16 here."""
    return bool({"amx_bf16", "bf16"} & set(host().processor.isa))


def _has_docker() -> bool:
    """Tell whether there is a daemon, and not only its client."""
    if shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0


def _only_tried() -> bool:
    """Leave it to the test, which tries and calls `lack`."""
    return True


class Want(NamedTuple):
    """A thing that tests may need."""

    is_there: Callable[[], bool]
    apt: str = ""
    """Debian's packages that bring it, if any do."""
    pip: str = ""
    """What pip is to install for it, if it comes from there."""


def _program(name: str, apt: str) -> Want:
    return Want(lambda: shutil.which(name) is not None, apt)


def _framework(name: str) -> Want:
    return Want(lambda: name in installed_frameworks(), pip=f"-e '.[{name}]'")


def _module(name: str, extra: str) -> Want:
    return Want(lambda: find_spec(name) is not None, pip=f"-e '.[{extra}]'")


def _engine(name: str) -> Want:
    packages = ENGINES[name].packages
    return Want(lambda: all(map(find_spec, packages)), pip=f"-e '.[{name}]'")


def _library(name: str) -> Want:
    pip = PIP_PACKAGES.get(name, "")
    apt = "" if pip else DEBIAN_PACKAGES[name]
    return Want(lambda: name in host().libraries, apt, pip)


LIBRARIES = ("jemalloc", "tcmalloc", "mimalloc", "libomp", "libiomp5", "libnuma")
WANTS = {
    **{name: _library(name) for name in LIBRARIES},
    **{name: _framework(name) for name in ("torch", "tensorflow")},
    "mlperf_loadgen": _module("mlperf_loadgen", "loadgen"),
    "nncf": _module("nncf", "nncf"),
    **{name: _engine(name) for name in ENGINES},
    "ray": _module("ray", "fleet"),
    "psycopg": _module("psycopg", "fleet"),
    "pymysql": _module("pymysql", "fleet"),
    "kernel_tuner": _module("kernel_tuner", "peers"),
    "smac": _module("smac", "peers"),
    "optuna_dashboard": _module("optuna_dashboard", "test"),
    "fastapi": _module("fastapi", "test"),
    "uvicorn": _module("uvicorn", "test"),
    "chromium": Want(
        lambda: any(map(shutil.which, ("chromium", "chromium-browser"))), apt="chromium"
    ),
    "a C++ compiler": Want(lambda: find_cxx() is not None, apt="g++"),
    "a static C library": Want(_only_tried, apt="gcc libc6-dev"),
    "Debian's Python": Want(Path(DEBIANS_PYTHON).exists, apt=Path(DEBIANS_PYTHON).name),
    "docker": Want(_has_docker, apt="docker.io"),
    "systemd": _program("systemd-analyze", "systemd"),
    "iproute2": _program("ip", "iproute2"),
    "postgresql": Want(_only_tried, apt="postgresql"),
    "mysql": Want(_only_tried, apt="mariadb-server-core mariadb-client-core"),
    "a guest": Want(_only_tried, apt="qemu-system-x86 busybox-static cpio libnuma1"),
    "root": Want(_is_root),
    "a user who is not root": Want(lambda: not _is_root()),
    "two cores": Want(lambda: host().usable_cores > 1),
    "glibc": Want(_has_glibc),
    "bf16 instructions": Want(_has_bf16),
    "products without bf16": Want(lambda: not _has_bf16_products()),
    "an NVIDIA GPU": Want(lambda: bool(read_gpus())),
    "PyTorch without CUDA": Want(lambda: CUDA not in installed_devices("torch")),
    "a cgroup of one's own": Want(_only_tried),
    "a mount of one's own": Want(_only_tried),
    "a network of one's own": Want(_only_tried),
}


@functools.cache
def is_here(name: str) -> bool:
    """Tell whether this host has a thing of WANTS."""
    return WANTS[name].is_there()


def needs(*names: str) -> pytest.MarkDecorator:
    """Return the mark of a test that is skipped where one of these things is missing."""
    assert WANTS.keys() >= set(names), names
    return pytest.mark.needs(*names)


def require(*names: str) -> None:
    """Skip the test under way if one of these things is missing."""
    if missing := [name for name in dict.fromkeys(names) if not is_here(name)]:
        lack(*missing)


def lack(*names: str, detail: str = "") -> NoReturn:
    """Skip the test under way for want of these things. detail: how the test found it out."""
    assert WANTS.keys() >= set(names), names
    pytest.skip(_PREFIX + ", ".join(names) + (f": {detail}" if detail else ""))


def wants_of(reason: str) -> list[str]:
    """Return which things a test was skipped for want of, from pytest's reason."""
    _, prefix, rest = reason.partition(_PREFIX)
    return rest.partition(":")[0].split(", ") if prefix else [reason.removeprefix("Skipped: ")]


def summary(reasons: Iterable[str]) -> list[str]:
    """Return the last lines of a run from the reason of each skipped test."""
    counts = Counter(want for reason in reasons for want in wants_of(reason))
    if not counts:
        return ["no test was skipped"]
    lines = ["skipped for want of: " + ", ".join(f"{w} {n}" for w, n in sorted(counts.items()))]
    known = [(name, WANTS[name]) for name in sorted(counts.keys() & WANTS.keys())]
    hidden = [name for name, _ in known if name in LIBRARIES] if os.environ.get(STANDS_IN) else []
    apt = [want.apt for name, want in known if want.apt and name not in hidden]
    pip = [want.pip for name, want in known if want.pip and name not in hidden]
    commands = [
        *([f"unset {STANDS_IN}"] if hidden else []),
        *([f"apt-get install {' '.join(dict.fromkeys(' '.join(apt).split()))}"] if apt else []),
        *([f"pip install {' '.join(dict.fromkeys(pip))}"] if pip else []),
    ]
    return lines + ([f"to run them: {'; '.join(commands)}"] if commands else [])


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known."""
    config.addinivalue_line("markers", "needs(*names): is skipped where one of WANTS is missing")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip before any fixture is made."""
    require(*(name for mark in item.iter_markers("needs") for name in mark.args))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter,
) -> Generator[None, object, object]:
    """End the run with what was skipped."""
    done = yield
    reports = terminalreporter.stats.get("skipped", [])
    for line in summary(str(report.longrepr[2]) for report in reports):
        terminalreporter.write_line(line)
    return done
