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
from tests.virtual import STARTS
from tuner.record.store import Store

ROOT = Path(__file__).parent.parent
ADDITIONS = Path(__file__).parent / "additions"
PRODUCT = ("tuner", "search_spaces", "models", "reports/templates", "tests")
MOST_FILES = 4
FAKE = ("--model", "fake@seed=2,noise=0.003", "--hw", "fake", "--budget", "5s", "--out", "out")

LAYERS = """
from numpy.random import standard_normal
from tuner.worker.gallery import Features, Model

MODEL = Model(title="Two layers", task="none", kind="mlp", inputs=(Features(64),),
              reference_batch=8, batches=(8,))


def numpy():
    return [standard_normal((64, 64)).astype("float32") / 8 for _ in range(2)]
"""


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


def run_there(tree: Path, *arguments: str, is_started: bool = False) -> str:
    """Run the command of a tree, not the installed one; return what it printed."""
    started = {STARTS: "1"} if is_started else {}
    done = subprocess.run(
        [sys.executable, "-P", str(tree / VIRTUAL.relative_to(ROOT)), *arguments],
        cwd=tree.parent,
        env={**os.environ, **started, "PYTHONPATH": str(tree)},
        capture_output=True, text=True, timeout=HANGS_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def study_there(tree: Path, *arguments: str, is_started: bool = False) -> dict[str, Any]:
    return result_of(run_there(tree, *arguments, "--json", is_started=is_started))


@pytest.mark.parametrize("patch", sorted(ADDITIONS.glob("*.patch")), ids=lambda path: path.stem)
def test_an_addition_is_a_few_files(patch: Path) -> None:
    assert 1 <= len(files_of(patch.read_text())) <= MOST_FILES


def test_a_new_scenario(tmp_path: Path) -> None:
    tree = with_addition("scenario", tmp_path)
    (scenario,) = (tree / "tuner/worker/scenarios").glob("sporadic.py")
    written = scenario.read_text()
    assert "= 64 * 2**20" in written  # more than caches hold: calls of the fake do without
    scenario.write_text(written.replace("= 64 * 2**20", "= 2**20"))
    result = study_there(tree, *FAKE, "--scenario", "sporadic")
    assert (result["scenario"], result["objective"]["unit"]) == ("sporadic", "ms")
    assert result["default"]["value"]["point"] > 0
    assert "sporadic" in (tmp_path / "out/report.md").read_text()


def test_a_new_framework(tmp_path: Path) -> None:
    """Its model computes for real: a file of the user's, in the words of the new framework."""
    tree = with_addition("framework", tmp_path)
    (tmp_path / "layers.py").write_text(LAYERS)
    arguments = ("--model", "layers.py", "--hw", "numpy", "--budget", "2s", "--out", "out")
    result = study_there(tree, *arguments, is_started=True)
    assert result["framework"] == "numpy"
    tried = [t for t in result["trials"] if t["configuration"] == {"numpy.order": "F"}]
    assert [t["outcome"] for t in tried] == ["measured"]
    assert result["model_facts"]["macs"] == 2 * 64 * 64
    with Store(tmp_path / "out") as store:
        seen = [
            item
            for record in store.launches.values()
            if record.prepared is not None and record.request.configuration.settings
            for item in record.prepared.read_back
        ]
    assert {(i.observed, i.evidence) for i in seen if i.knob == "numpy.order"} == {
        ("F", "effective")
    }


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
