"""Programs as people write them, with the prepared model in the place of their own."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.recommendations import written
from tests.wants import needs
from tuner.host.environment import untuned
from tuner.host.libraries import installed_frameworks

PROGRAMS = Path(__file__).parent / "programs"
NAMES = sorted(p.stem for p in PROGRAMS.glob("*_*.py") if p.stem != "run_all")
Ran = dict[str, tuple[int, str]]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Run all programs: of each framework in copies of one process, which has it imported."""
    found: Ran = {}
    for framework in ("torch", "tensorflow"):
        if framework not in installed_frameworks():
            continue
        root = tmp_path_factory.mktemp(framework)
        for name in NAMES:
            if name.startswith(f"{framework}_"):
                (root / name).mkdir()
                text = (PROGRAMS / f"{name}.py").read_text()
                (caught,) = re.findall(r"^# settings: (.*)$", text, re.MULTILINE)
                written(root / name, json.loads(caught), framework)
        done = subprocess.run(
            [sys.executable, "-P", str(PROGRAMS / "run_all.py"), framework, str(root)],
            env=untuned(os.environ), capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]
        found |= json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=needs(name.partition("_")[0])) for name in NAMES]
)
def test_a_program_works_with_the_prepared_model_as_with_its_own(name: str, ran: Ran) -> None:
    code, output = ran[name]
    assert code == 0, output[-3000:]
