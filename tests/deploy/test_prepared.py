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


OF_ENGINES = (
    "torch_threads",
    "torch_weights",
    "torch_structures",
    "tensorflow_predict",
    "tensorflow_many_outputs",
)
"""Programs that another engine carries out as well: what a converted file could get wrong."""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Ran]:
    """Run a framework's programs, in copies of one process that has it imported: once for all."""

    @functools.cache
    def of(framework: str, *engine: str) -> Ran:
        folder = of_all_processes(tmp_path_factory, "-".join(("prepared", framework, *engine)))
        with once(folder) as is_to_be_run:
            if is_to_be_run:
                run_all(folder, framework, *engine)
        found: Ran = json.loads((folder / "ran.json").read_text())
        return found

    return of


def run_all(folder: Path, framework: str, *engine: str) -> None:
    """Run its programs below a folder, and write there how each ended."""
    root = folder / "programs"
    for program in PROGRAMS.glob(f"{framework}_*.py"):
        if engine and program.stem not in OF_ENGINES:
            continue
        (root / program.stem).mkdir(parents=True, exist_ok=True)
        (stated,) = re.findall(r"^# settings: (.*)$", program.read_text(), re.MULTILINE)
        settings = {"engine.name": engine[0]} if engine else json.loads(stated)
        written(root / program.stem, settings, framework)
    done = subprocess.run(
        [sys.executable, "-P", str(PROGRAMS / "run_all.py"), framework, str(root), *engine],
        env=untuned(os.environ), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    (folder / "ran.json").write_text(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=needs(name.partition("_")[0])) for name in NAMES]
)
def test_a_program_works_with_the_prepared_model_as_with_its_own(
    name: str, ran: Callable[..., Ran]
) -> None:
    """In each kind of program that people write: a framework's own words decide what it meets."""
    code, output = ran(name.partition("_")[0])[name]
    assert code == 0, output[-3000:]


@pytest.mark.parametrize("engine", [pytest.param(name, marks=needs(name)) for name in ENGINES])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=needs(name.partition("_")[0])) for name in OF_ENGINES]
)
def test_so_it_does_where_another_engine_carries_it_out(
    name: str, engine: str, ran: Callable[..., Ran]
) -> None:
    """Threads, changed weights, structures: what a converted file could get wrong."""
    code, output = ran(name.partition("_")[0], engine)[name]
    assert code == 0, output[-3000:]
