"""What the house promises: a new scenario, framework, objective or export is a few files.

Each addition is a patch (tests/additions/) of at most four files of the product. It is applied to a
copy of the tree, where a study is then run with what it adds.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.command import HANGS_S, VIRTUAL, result_of

ROOT = Path(__file__).parent.parent
ADDITIONS = Path(__file__).parent / "additions"
PRODUCT = ("tuner", "search_spaces", "models", "reports/templates", "tests")
MOST_FILES = 4
FAKE = ("--model", "fake@seed=2,noise=0.003", "--hw", "fake", "--budget", "8s", "--out", "out")


def files_of(patch: str) -> list[str]:
    return re.findall(r"^\+\+\+ b/(.+)$", patch, re.MULTILINE)


def with_addition(name: str, folder: Path) -> Path:
    """Copy the product to a folder, apply an addition there; return the folder."""
    tree = folder / "tree"
    for part in PRODUCT:
        shutil.copytree(
            ROOT / part, tree / part, ignore=shutil.ignore_patterns("__pycache__", "additions")
        )
    applied = subprocess.run(
        ["git", "apply", "-C1", str(ADDITIONS / f"{name}.patch")],
        cwd=tree, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert applied.returncode == 0, applied.stderr
    return tree


def run_there(tree: Path, *arguments: str) -> str:
    """Run the command of a tree, not the installed one; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-P", str(tree / VIRTUAL.relative_to(ROOT)), *arguments],
        cwd=tree.parent,
        env={**os.environ, "PYTHONPATH": str(tree)},
        capture_output=True, text=True, timeout=HANGS_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def study_there(tree: Path, *arguments: str) -> dict[str, Any]:
    return result_of(run_there(tree, *arguments, "--json"))


@pytest.mark.parametrize("patch", sorted(ADDITIONS.glob("*.patch")), ids=lambda path: path.stem)
def test_an_addition_is_a_few_files(patch: Path) -> None:
    assert 1 <= len(files_of(patch.read_text())) <= MOST_FILES


def test_a_new_scenario(tmp_path: Path) -> None:
    tree = with_addition("scenario", tmp_path)
    result = study_there(tree, *FAKE, "--scenario", "sporadic")
    assert (result["scenario"], result["objective"]["unit"]) == ("sporadic", "ms")
    assert result["default"]["value"]["point"] > 0
    assert "sporadic" in (tmp_path / "out/report.md").read_text()


def test_a_new_objective(tmp_path: Path) -> None:
    tree = with_addition("objective", tmp_path)
    result = study_there(tree, *FAKE, "--scenario", "single-stream", "--goal", "prompt")
    assert (result["objective"]["metric"], result["goal"]) == ("latency_p50", "prompt")
    report = (tmp_path / "out/report.md").read_text()
    assert "median latency" in report.lower()


def test_a_new_export(tmp_path: Path) -> None:
    tree = with_addition("export", tmp_path)
    study_there(tree, *FAKE)
    text = run_there(tree, "export", "out/recommended.toml", "--to", "compose", "--", "serve")
    service = json.loads("".join(line for line in text.splitlines() if not line.startswith("#")))
    assert service["services"]["model"]["command"] == ["serve"]
