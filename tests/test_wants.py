"""What a test needs of a host is counted where it is missing, with the command that brings it."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import wants
from tests.wants import WANTS, summary
from tuner.host.libraries import HIDDEN, STANDS_IN

SKIPPING = {"skip", "skipif", "importorskip", "skipIf", "skipUnless", "skipTest", "xfail"}
ROOT = Path(__file__).parent.parent


def test_no_test_skips_but_for_want_of_what_is_counted() -> None:
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        if path != Path(wants.__file__):
            tree = ast.parse(path.read_text())
            named = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
            assert not named & SKIPPING, f"{path} skips: see tests/wants.py"
            taken = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
            assert not [node for node in taken if node.module in ("pytest", "unittest")], path


def test_a_run_ends_with_what_was_missing_and_the_command_that_brings_it(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "from tests.wants import *\n"
        "WANTS['tea'] = Want(lambda: False, apt='kettle')\n"
        "WANTS['luck'] = Want(lambda: False)\n"
        "WANTS['milk'] = Want(lambda: False, apt='cow kettle', pip='cream')\n"
        "WANTS['air'] = Want(lambda: True)\n"
    )
    (tmp_path / "test_it.py").write_text(
        "import pytest\n"
        "from tests.wants import lack, needs, require\n"
        "@pytest.fixture\n"
        "def never(): raise AssertionError\n"
        "@needs('tea', 'air')\n"
        "def test_1(never): pass\n"
        "@needs('tea')\n"
        "@needs('luck')\n"
        "def test_2(never): pass\n"
        "def test_3():\n"
        "    require('air')\n"
        "    lack('milk', detail='it is: sour, really')\n"
        "@needs('air')\n"
        "def test_4(): pass\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "xdist", "-n", "1", "-rs"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": "",
             "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    *_, missing, commands, counts = done.stdout.splitlines()
    assert missing == "skipped for want of: luck 1, milk 1, tea 2"
    assert commands == "to run them: apt-get install cow kettle; pip install cream"
    assert "1 passed, 3 skipped" in counts


def test_what_is_hidden_is_to_be_shown_again_and_not_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lacks = ["Skipped: for want of jemalloc", "Skipped: for want of jemalloc, iproute2"]
    monkeypatch.setenv(STANDS_IN, HIDDEN)
    assert summary(lacks)[1] == f"to run them: unset {STANDS_IN}; apt-get install iproute2"
    monkeypatch.delenv(STANDS_IN)
    assert summary(lacks) == [
        "skipped for want of: iproute2 1, jemalloc 2",
        "to run them: apt-get install iproute2 libjemalloc2",
    ]


def test_a_skip_that_names_no_want_is_counted_under_its_reason() -> None:
    assert summary(["Skipped: got empty parameter set"]) == [
        "skipped for want of: got empty parameter set 1"
    ]
    assert summary([]) == ["no test was skipped"]


@pytest.mark.parametrize("name", WANTS)
def test_whether_a_want_is_met_can_be_told_on_every_host(name: str) -> None:
    assert isinstance(WANTS[name].is_there(), bool)
    assert not set(name) & {",", ":"}, "which part a reason"
