"""Evidence is what is used, not what is mapped or asked for. In children: preloads are for life."""

import os
import subprocess
import sys

import pytest

from tests.wants import DEBIANS_PYTHON, host, needs

LIBRARIES = host().libraries

IMPORTS = """
from tuner.worker.evidence.allocator import allocator, of_allocator
from tuner.worker.evidence.output import captured
from tuner.worker.evidence.variables import of_environment
"""


def in_child(code: str, interpreter: str = sys.executable, **environment: str) -> str:
    done = subprocess.run(
        [interpreter, "-P", "-c", f"{IMPORTS}\n{code}"],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=True,
    )
    return done.stdout.strip()


INTERPRETERS = [sys.executable, pytest.param(DEBIANS_PYTHON, marks=needs("Debian's Python"))]
"""Debian's is position-dependent: it has call stubs of its own where others have addresses."""


def allocator_in(interpreter: str, **environment: str) -> str:
    """Ask an interpreter that has this one's packages."""
    foreign = [p for p in sys.path if "site-packages" in p or not p.startswith(sys.base_prefix)]
    packages = os.pathsep.join(path for path in foreign if path)
    code = "print(allocator())"
    return in_child(code, interpreter, PYTHONPATH=packages, **environment)


@pytest.mark.parametrize("interpreter", INTERPRETERS)
def test_without_a_preload_it_is_glibc(interpreter: str) -> None:
    assert allocator_in(interpreter) == "glibc"


@pytest.mark.parametrize("interpreter", INTERPRETERS)
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=needs(n)) for n in ("tcmalloc", "jemalloc", "mimalloc")]
)
def test_a_preloaded_allocator_is_in_use(name: str, interpreter: str) -> None:
    assert allocator_in(interpreter, LD_PRELOAD=LIBRARIES[name]) == name


TOLD = {"tcmalloc": "perftools", "jemalloc": ": jemalloc 5.", "mimalloc": ": mimalloc "}


@pytest.mark.parametrize("name", [pytest.param(n, marks=needs(n)) for n in TOLD])
def test_the_allocator_in_use_tells_its_version(name: str) -> None:
    code = "(item,) = of_allocator({}); print(item.how)"
    how = in_child(code, LD_PRELOAD=LIBRARIES[name])
    assert TOLD[name] in how
    package = host().packages.get(name, "")
    assert package.partition("==")[2] in how


@needs("tcmalloc")
def test_an_allocator_that_is_mapped_but_unused_is_not_in_force() -> None:
    """The dead variant: loaded late, so every symbol is bound to glibc's malloc already."""
    code = f"""
import ctypes
ctypes.CDLL({LIBRARIES.get("tcmalloc")!r})
mapped = any("tcmalloc" in line for line in open("/proc/self/maps"))
print(mapped, allocator())
found = of_allocator({{"launch.allocator": "tcmalloc"}})[0]
print(found.in_force)
"""
    assert in_child(code).split() == ["True", "glibc", "False"]


def test_echoing_the_environment_is_marked_as_such() -> None:
    code = """
(item,) = of_environment({"env.MY_KNOB": 3, "env.KNOWN": 1}, {"env.KNOWN"}, "fake")
print(item.evidence, item.in_force)
"""
    assert in_child(code, MY_KNOB="3").split() == ["environment_only", "True"]
    assert in_child(code).split() == ["environment_only", "False"]


def test_what_c_libraries_print_is_caught() -> None:
    code = """
import ctypes, os
with captured() as lines:
    ctypes.CDLL(None).puts(b"from C")
    os.write(1, b"raw\\n")
print(sorted(lines))
"""
    assert in_child(code) == "['from C', 'raw']"


@needs("jemalloc")
def test_each_option_of_a_tuning_string_is_judged() -> None:
    text = "dirty_decay_ms:77,thp:always,no_such_option:1"
    code = f"""
item = of_allocator({{"env.MALLOC_CONF": "{text}"}})[1]
print(item.in_force, item.evidence)
print(item.how)
"""
    preload = {"LD_PRELOAD": LIBRARIES["jemalloc"]}
    good, how = in_child(code, MALLOC_CONF=text, **preload).splitlines()[-2:]
    assert good == "True environment_only"  # one option cannot be asked for
    assert how == "dirty_decay_ms:77; thp:always; no_such_option:1"
    _dead, how = in_child(code, **preload).splitlines()[-2:]
    assert "dirty_decay_ms:77 (opt.dirty_decay_ms is 10000)" in how
    assert "thp:always (opt.thp is default)" in how


@needs("glibc")
def test_a_threshold_of_glibc_is_seen_in_its_blocks() -> None:
    text = "glibc.malloc.mmap_threshold=33554432"
    code = f"""
item = of_allocator({{"env.GLIBC_TUNABLES": "{text}"}})[1]
print(item.in_force, item.evidence)
"""
    assert in_child(code, GLIBC_TUNABLES=text) == "True effective"
    assert in_child(code) == "False effective"
    both = f"{text}:glibc.malloc.trim_threshold=2147483648"  # the second cannot be observed
    code = code.replace(text, both)
    assert in_child(code, GLIBC_TUNABLES=both) == "True environment_only"
    assert in_child(code) == "False effective"
    assert in_child(code.replace("33554432", "many")) == "False effective"
