"""The paths of preloaded libraries: fixed, or found at start where pip installed them.

A path of the measured environment means nothing elsewhere. A recommendation names such a library by
its file, and states the package that holds it.
"""

from __future__ import annotations

import shlex

import msgspec

from tuner.record.recommendation import Recommendation
from tuner.space.launching import PRELOAD

_DEBIAN = {
    "libtcmalloc_minimal": "libtcmalloc-minimal4",
    "libtcmalloc": "libgoogle-perftools4",
    "libjemalloc": "libjemalloc2",
    "libmimalloc": "libmimalloc2.0",
    "libomp": "libomp5",
}
_PYPI = {"libiomp5": "intel-openmp"}
"""What earlier files do not name."""
_BEHIND = {"libmimalloc": "libatomic1"}
"""Debian packages that hold the dependencies of a pip package's library (host/libraries.py)."""
_LINKS = "/usr/local/lib"
"""Where an image has what pip installs, at a path that does not depend on Python's version."""
_FIND = (
    "import importlib.metadata as m, sys; "
    "print(next(f.locate().resolve() for f in m.files(sys.argv[1]) if f.name == sys.argv[2]))"
)


class Library(msgspec.Struct, frozen=True):
    """A library that the loader loads first."""

    path: str
    """Its path on the host where it was measured; for pip's, the file's name alone."""
    debian: str = ""
    """The Debian or Ubuntu package that holds it there, or its dependencies."""
    pypi: str = ""
    """The requirement for pip."""

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path.rpartition("/")[2]

    @property
    def in_image(self) -> str:
        """The path in an image that was built by the lines of `--to docker`."""
        return f"{_LINKS}/{self.name}" if self.pypi else self.path

    @property
    def distribution(self) -> str:
        """The name of the package that pip installs, without its version."""
        return self.pypi.partition("==")[0]


def libraries(recommendation: Recommendation) -> list[Library]:
    """Return the libraries that are preloaded, in order."""
    r = recommendation
    paths = r.environment.get(PRELOAD, "").split(":")
    return [_library(path, r.packages.get(path, "")) for path in paths if path]


def _library(path: str, package: str) -> Library:
    stem = path.rpartition("/")[2].partition(".so")[0]
    if package:
        return Library(path, _BEHIND.get(stem, ""), package)
    return Library(path, _DEBIAN.get(stem, ""), _PYPI.get(stem, ""))


def are_found_at_start(recommendation: Recommendation) -> bool:
    """Tell whether a path is known only when the program is started."""
    return bool(recommendation.packages)


def in_image(recommendation: Recommendation) -> dict[str, str]:
    """Return the environment variables with the paths of an image."""
    paths = [library.in_image for library in libraries(recommendation)]
    preload = {PRELOAD: ":".join(paths)} if paths else {}
    return dict(recommendation.environment) | preload


def in_a_shell(recommendation: Recommendation) -> dict[str, str]:
    """Return the environment variables as a person types them: NAME=VALUE, found where needed.

    The values of variables that are not found at start are as they are, without quotes.
    """
    if not are_found_at_start(recommendation):
        return dict(recommendation.environment)
    parts = [
        f"$(python3 -c {shlex.quote(_FIND)} {library.distribution} {library.name})"
        if library.path in recommendation.packages
        else library.path
        for library in libraries(recommendation)
    ]
    return {**recommendation.environment, PRELOAD: f'"{":".join(parts)}"'}


def exports(recommendation: Recommendation, script: str, *, first_is_program: bool) -> list[str]:
    """Return shell lines that export every variable.

    script: names the script in its messages. first_is_program: whether its first argument is the
    program; if that is a Python, its environment is searched. If pip did not install a library
    there, the script ends with 125, because the program would run without a confirmed setting.
    """
    r = recommendation
    fixed = dict(r.environment)
    lines: list[str] = []
    if are_found_at_start(r):
        fixed.pop(PRELOAD)
        lines = _finding(first_is_program=first_is_program)
        for library in libraries(r):
            if library.path in r.packages:
                missing = f"{script}: no {library.name} here; type: pip install {library.pypi}"
                lines += [
                    f"preload=$preload:$(found {library.distribution} {library.name}) || {{",
                    f"  echo {shlex.quote(missing)} >&2; exit 125",
                    "}",
                ]
            else:
                lines.append(f"preload=$preload:{shlex.quote(library.path)}")
    own = f"${{{PRELOAD}:+:${PRELOAD}}}"  # what the shell preloads besides comes after, as in `run`
    for name, value in sorted(fixed.items()):
        besides = f'"{own}"' if name == PRELOAD else ""
        lines.append(f"export {name}={shlex.quote(value)}{besides}")
    if are_found_at_start(r):
        lines.append(f'export {PRELOAD}="${{preload#:}}{own}"')
    return lines


def _finding(*, first_is_program: bool) -> list[str]:
    lines = [
        "# where pip installed what is preloaded: set PYTHON to the Python of that environment",
        "preload= python=${PYTHON:-python3}",
    ]
    if first_is_program:
        names = "python|python[23]|python3.[0-9]|python3.[0-9][0-9]"
        lines.append(f'[ -n "$PYTHON" ] || case "${{1##*/}}" in {names}) python=$1 ;; esac')
    return [*lines, f'found() {{ "$python" -c {shlex.quote(_FIND)} "$@" 2>/dev/null; }}']


def needed(library: Library) -> str:
    """Say what brings a library."""
    package = f"pip install {library.pypi}" if library.pypi else ""
    debian = f"Debian package {library.debian}" if library.debian else ""
    source = ", ".join(filter(None, [package, debian]))
    # the loader passes over a preload that is not there, but not over what a preload needs itself
    lack = "the loader goes on without what it lacks"
    if package and debian:
        lack += f", but without {library.debian} starts no program"
    return f"needs {library.path}{f' ({source})' if source else ''}: {lack}"
