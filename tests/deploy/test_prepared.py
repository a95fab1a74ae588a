"""Programs as people write them, with the prepared model in the place of their own."""

import functools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import of_all_processes
from tests.deploy.recommendations import written
from tests.once import once
from tests.wants import needs
from tuner.engines import ENGINES
from tuner.host.environment import untuned

PROGRAMS = Path(__file__).parent / "programs"
NAMES = sorted(p.stem for p in PROGRAMS.glob("*_*.py") if p.stem != "run_all")
Ran = dict[str, tuple[int, str]]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Ran]:
    """Run a framework's programs, in copies of one process that has it imported: once for all."""

    @functools.cache
    def of(framework: str) -> Ran:
        folder = of_all_processes(tmp_path_factory, f"prepared-{framework}")
        with once(folder) as is_to_be_run:
            if is_to_be_run:
                run_all(framework, folder)
        found: Ran = json.loads((folder / "ran.json").read_text())
        return found

    return of


def run_all(framework: str, folder: Path) -> None:
    """Run its programs below a folder, and write there how each ended."""
    root = folder / "programs"
    for program in PROGRAMS.glob(f"{framework}_*.py"):
        (root / program.stem).mkdir(parents=True, exist_ok=True)
        (caught,) = re.findall(r"^# settings: (.*)$", program.read_text(), re.MULTILINE)
        written(root / program.stem, json.loads(caught), framework)
    done = subprocess.run(
        [sys.executable, "-P", str(PROGRAMS / "run_all.py"), framework, str(root)],
        env=untuned(os.environ), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    (folder / "ran.json").write_text(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=needs(name.partition("_")[0])) for name in NAMES]
)
def test_a_program_works_with_the_prepared_model_as_with_its_own(
    name: str, ran: Callable[[str], Ran]
) -> None:
    """In each kind of program that people write: a framework's own words decide what it meets."""
    code, output = ran(name.partition("_")[0])[name]
    assert code == 0, output[-3000:]


@pytest.mark.parametrize("engine", [pytest.param(name, marks=needs(name)) for name in ENGINES])
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=needs(name.partition("_")[0]))
        for name in (
            "torch_threads",
            "torch_weights",
            "torch_structures",
            "tensorflow_predict",
            "tensorflow_many_outputs",
        )
    ],
)
def test_so_it_does_where_another_engine_carries_it_out(
    name: str, engine: str, tmp_path: Path
) -> None:
    """Threads, changed weights, structures: what a converted file could get wrong."""
    written(tmp_path, {"engine.name": engine}, name.partition("_")[0])
    done = subprocess.run(
        [sys.executable, "-P", str(PROGRAMS / f"{name}.py")],
        env=untuned(os.environ), cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
