"""Evidence is what is used, not what is mapped or asked for. In children: preloads are for life."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tuner.host.identity import probe

LIBRARIES = probe().libraries
DEBIANS_PYTHON = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
"""A position-dependent executable: it has call stubs of its own where others have addresses."""


def in_child(code: str, interpreter: str = sys.executable, **environment: str) -> str:
    done = subprocess.run(
        [interpreter, "-P", "-c", f"from tuner.worker import evidence\n{code}"],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=True,
    )
    return done.stdout.strip()


def needs(library: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(library not in LIBRARIES, reason=f"{library} is not installed here")


INTERPRETERS = [
    sys.executable,
    pytest.param(
        DEBIANS_PYTHON,
        marks=pytest.mark.skipif(
            not Path(DEBIANS_PYTHON).exists(), reason=f"there is no {DEBIANS_PYTHON} here"
        ),
    ),
]


def allocator_in(interpreter: str, **environment: str) -> str:
    """Ask an interpreter that has this one's packages."""
    foreign = [p for p in sys.path if "site-packages" in p or not p.startswith(sys.base_prefix)]
    packages = os.pathsep.join(path for path in foreign if path)
    code = "print(evidence.allocator())"
    return in_child(code, interpreter, PYTHONPATH=packages, **environment)


@pytest.mark.parametrize("interpreter", INTERPRETERS)
def test_without_a_preload_it_is_glibc(interpreter: str) -> None:
    assert allocator_in(interpreter) == "glibc"


@pytest.mark.parametrize("interpreter", INTERPRETERS)
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=needs(n)) for n in ("tcmalloc", "jemalloc")]
)
def test_a_preloaded_allocator_is_in_use(name: str, interpreter: str) -> None:
    assert allocator_in(interpreter, LD_PRELOAD=LIBRARIES[name]) == name


@needs("tcmalloc")
def test_an_allocator_that_is_mapped_but_unused_is_not_in_force() -> None:
    """The dead variant: loaded late, so every symbol is bound to glibc's malloc already."""
    code = f"""
import ctypes
ctypes.CDLL({LIBRARIES.get("tcmalloc")!r})
mapped = any("tcmalloc" in line for line in open("/proc/self/maps"))
print(mapped, evidence.allocator())
found = evidence.of_process({{"launch.allocator": "tcmalloc"}})[0]
print(found.in_force)
"""
    assert in_child(code).split() == ["True", "glibc", "False"]


def test_echoing_the_environment_is_marked_as_such() -> None:
    code = """
(item,) = evidence.of_environment({"env.MY_KNOB": 3, "env.KNOWN": 1}, {"env.KNOWN"})
print(item.evidence, item.in_force)
"""
    assert in_child(code, MY_KNOB="3").split() == ["environment_only", "True"]
    assert in_child(code).split() == ["environment_only", "False"]


def test_what_c_libraries_print_is_caught() -> None:
    code = """
import ctypes, os
with evidence.captured_stdout() as lines:
    ctypes.CDLL(None).puts(b"from C")
    os.write(1, b"raw\\n")
print(sorted(lines))
"""
    assert in_child(code) == "['from C', 'raw']"
