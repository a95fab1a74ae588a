"""What the house promises: a new scenario, framework, objective or export is a few files.

Each addition is a patch (tests/additions/) of at most four files of the product. They are applied
to a copy of the tree, where a study is then run with what they add.
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
from tuner.record.store import Store

ROOT = Path(__file__).parent.parent
ADDITIONS = Path(__file__).parent / "additions"
PRODUCT = ("tuner", "search_spaces", "models", "reports/templates", "tests")
MOST_FILES = 4

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


def with_additions(folder: Path, *names: str) -> Path:
    """Copy the product to a folder, apply additions there; return the folder."""
    tree = folder / "tree"
    for part in PRODUCT:
        shutil.copytree(
            ROOT / part, tree / part, ignore=shutil.ignore_patterns("__pycache__", "additions")
        )
    for name in names:
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
    return result_of(run_there(tree, *arguments, "--out", "out", "--json"))


def test_an_addition_is_a_few_files_that_apply_and_shares_none_with_another() -> None:
    changed = [files_of(patch.read_text()) for patch in ADDITIONS.glob("*.patch")]
    assert all(1 <= len(files) <= MOST_FILES for files in changed)
    assert len({file for files in changed for file in files}) == sum(map(len, changed))
    for patch in ADDITIONS.glob("*.patch"):
        applied = subprocess.run(
            ["git", "apply", "--check", "-C1", str(patch)],
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert applied.returncode == 0, applied.stderr


@pytest.mark.slow
def test_a_new_scenario_a_new_objective_and_a_new_export_of_what_was_found(tmp_path: Path) -> None:
    """Apart from each other they are in different files; together they need one study."""
    tree = with_additions(tmp_path, "scenario", "objective", "export")
    scenario = tree / "tuner/worker/scenarios/sporadic.py"
    written = scenario.read_text()
    assert "= 64 * 2**20" in written  # more than caches hold: calls of the fake do without
    scenario.write_text(written.replace("= 64 * 2**20", "= 2**20"))
    asked = ("--model", "fake@seed=2,noise=0.003", "--hw", "fake", "--scenario", "sporadic")
    result = study_there(tree, *asked, "--goal", "prompt", "--budget", "2s")
    assert (result["scenario"], result["objective"]["unit"]) == ("sporadic", "ms")
    assert (result["objective"]["metric"], result["goal"]) == ("latency_p50", "prompt")
    assert result["default"]["value"]["point"] > 0
    report = (tmp_path / "out/report.md").read_text()
    assert "sporadic" in report
    assert "median latency" in report.lower()
    text = run_there(tree, "export", "out/recommended.toml", "--to", "compose", "--", "serve")
    service = json.loads("".join(line for line in text.splitlines() if not line.startswith("#")))
    assert service["services"]["model"]["command"] == ["serve"]


@pytest.mark.slow
def test_a_new_framework_whose_model_computes_for_real(tmp_path: Path) -> None:
    """A file of the user's, in the words of the new framework."""
    tree = with_additions(tmp_path, "framework")
    (tmp_path / "layers.py").write_text(LAYERS)
    result = study_there(tree, "--model", "layers.py", "--hw", "numpy", "--budget", "2s")
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
