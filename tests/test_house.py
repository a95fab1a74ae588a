"""The structure: one import direction, a wall around the worker, nothing heavy at the door."""

import ast
import functools
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest

import tuner

PACKAGE = Path(tuner.__file__).parent
# From the top floor to the ground; a room imports only rooms below it.
FLOORS = [
    "cli",
    "api",
    "fleet",
    "app",
    "output",
    "deploy",
    "analysis",
    "guidelines",
    "study",
    "search",
    "measurement",
    "launchers",
    "worker",
    "space",
    "host",
    "record",
    "frameworks",
    "engines",
    "supervisor",
    "galleries",
    "interrupts",
    "errors",
    "version",
]
# The same within app.
APP = [
    "tune_many",
    "tune",
    "grants",
    "study_setup",
    "explain",
    "verify",
    "time_to_target",
    "lint",
    "recommend",
    "advice",
    "plan",
    "compatibility",
    "request",
]
ADAPTERS = "tuner.worker.frameworks"
MOST_LINES, MOST_METHODS = 500, 15


def test_a_wheel_holds_every_room() -> None:
    listed = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())["tool"]["setuptools"]
    rooms = {
        ".".join(p.parent.relative_to(PACKAGE.parent).parts) for p in PACKAGE.rglob("__init__.py")
    }
    assert set(listed["packages"]) - set(listed["package-dir"]) | {"tuner"} == rooms


@functools.cache
def modules() -> tuple[Path, ...]:
    return tuple(sorted(PACKAGE.rglob("*.py")))


def room_of(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


class Module(NamedTuple):
    """What a module's text holds, parsed once for all tests."""

    imports: tuple[str, ...]
    classes: tuple[ast.ClassDef, ...]


@functools.cache
def read(path: Path) -> Module:
    names, classes = [], []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef):
            classes.append(node)
        elif isinstance(node, ast.ImportFrom) and node.module:
            if node.module == "tuner":
                names += [f"tuner.{alias.name}" for alias in node.names]
            names.append(node.module)
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    return Module(tuple(names), tuple(classes))


def imports_of(path: Path) -> tuple[str, ...]:
    return read(path).imports


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_room_imports_only_rooms_below_it(path: Path) -> None:
    room = room_of(path)
    if room == "__init__":
        shown = {name for name in imports_of(path) if name.startswith("tuner")}
        assert shown == {"tuner.version", "tuner.api", "tuner.deploy.apply"}
        return
    floor = FLOORS.index(room)
    for name in imports_of(path):
        parts = name.split(".")
        if parts[0] == "tuner" and len(parts) > 1:
            assert parts[1] in FLOORS, f"{path} imports {name}, which stands on no floor"
            assert FLOORS.index(parts[1]) >= floor, f"{path} imports {name}, which is above it"
        if room == "app" and parts[:2] == ["tuner", "app"] and len(parts) > 2:
            own = APP.index(path.stem)
            assert APP.index(parts[2]) > own, f"{path} imports {name}, which is above it"


def test_no_room_of_the_parent_imports_the_worker() -> None:
    for path in modules():
        if room_of(path) != "worker":
            found = {n for n in imports_of(path) if n.startswith("tuner.worker")}
            assert found == ({ADAPTERS} if path.match("deploy/apply.py") else set()), path


def test_what_applies_inside_a_program_knows_records_and_one_adapter_only() -> None:
    rooms = {name for name in imports_of(PACKAGE / "deploy/apply.py") if name.startswith("tuner")}
    assert {name for name in rooms if not name.startswith("tuner.record.")} == {
        "tuner.errors",
        "tuner.host.identity",  # of an index, that of this kind of host
        "tuner.space.catalogue",
        "tuner.space.chosen",
        "tuner.space.recommended",
        ADAPTERS,
    }


def test_no_recommendation_is_read_without_the_catalogue() -> None:
    """tuner/space/recommended.py checks what record/files.py reads."""
    reading = [p for p in modules() if "read_recommendation" in p.read_text()]
    assert {str(p.relative_to(PACKAGE)) for p in reading} == {
        "record/files.py",
        "space/recommended.py",
    }


def test_the_supervisor_needs_the_standard_library_alone() -> None:
    for name in imports_of(PACKAGE / "supervisor.py"):
        assert name == "__future__" or name.split(".")[0] in sys.stdlib_module_names


@pytest.mark.parametrize(
    "code", ["import tuner", "import sys; sys.argv = ['x', '--help']; import tuner.cli.main"]
)
def test_nothing_heavy_is_imported_at_the_door(code: str) -> None:
    heavy = ("torch", "tensorflow", "keras", "optuna", "pandas", "numpy", "scipy", "sqlalchemy")
    script = f"{code}\nimport sys\nprint([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_help_imports_nothing_heavy() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-X", "importtime", "-m", "tuner.cli.main", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "--model" in done.stdout
    imported = {line.rpartition("|")[2].strip().split(".")[0] for line in done.stderr.splitlines()}
    assert not imported & {"torch", "tensorflow", "optuna", "pandas", "numpy", "scipy"}


def test_the_environment_is_written_in_one_place_only() -> None:
    """Environment changes are values; the supervisor hands them to exec."""
    for path in modules():
        text = path.read_text()
        assert "os.environ[" not in text.replace('os.environ["FAKE_THREADS"]', ""), path
        assert "putenv" not in text, path


def test_analysis_and_files_know_nothing_of_each_other() -> None:
    """A Result stands between them: what was computed, and what is rendered from it."""
    apart = {
        "analysis": ("cli", "output"),
        "output": ("analysis", "study", "search", "measurement", "worker"),
    }
    for path in modules():
        strangers = tuple(f"tuner.{room}." for room in apart.get(room_of(path), ()))
        found = [n for n in imports_of(path) if strangers and f"{n}.".startswith(strangers)]
        assert not found, f"{path} imports {found}"


def test_nobody_reaches_into_samplers() -> None:
    """The search is asked, told and settled through tuner/search/search.py."""
    inside = {f"tuner.search.{p.stem}" for p in (PACKAGE / "search").glob("*.py")}
    door = {f"tuner.search.{name}" for name in ("search", "proposals", "terminator", "transfer")}
    for path in modules():
        if room_of(path) != "search":
            assert not (inside - door) & set(imports_of(path)), path


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_is_read_in_one_sitting(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MOST_LINES


def test_a_class_is_one_noun() -> None:
    """More public methods than this are those of two."""
    found = {
        f"{path.relative_to(PACKAGE)}: {node.name}": [
            each.name
            for each in node.body
            if isinstance(each, ast.FunctionDef) and not each.name.startswith("_")
        ]
        for path in modules()
        for node in read(path).classes
    }
    assert {name: each for name, each in found.items() if len(each) > MOST_METHODS} == {}
