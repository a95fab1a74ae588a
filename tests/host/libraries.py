"""Describe a system's libraries: files with their names, for tests that need no more of them."""

import ctypes
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from tuner.worker.evidence.process import loaded_libraries

Describe = Callable[..., dict[str, str]]
"""The fixture `system_libraries`: takes names as in search spaces, returns their paths."""

FILES = {
    "tcmalloc": "libtcmalloc_minimal.so.4",
    "jemalloc": "libjemalloc.so.2",
    "libomp": "libomp.so.5",
    "libnuma": "libnuma.so.1",
}
"""As Debian and Ubuntu name them."""
_CONTENT = "libutil.so.1"
"""A library that every glibc brings: the loader takes a copy, and nothing is replaced by it."""


def write_libraries(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Write libraries that can be preloaded and do nothing; return their paths by name."""
    paths = {name: str(folder / FILES[name]) for name in names}
    ctypes.CDLL(_CONTENT)
    content = next(path for path in loaded_libraries() if Path(path).name == _CONTENT)
    for path in paths.values():
        shutil.copyfile(content, path)
    return paths
