"""One full small study per framework: real model, real settings, every phase, every file."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.command import MARKER, new_marker, result_of, run, wait_until_gone
from tests.wants import needs
from tests.worker.workers import TINY
from tuner.record.files import RECOMMENDATION_SCHEMA, RESULT_SCHEMA
from tuner.record.journal import PREDICTED
from tuner.search.sampler import SOURCES

pytestmark = pytest.mark.alone

STUDIES = {
    # one batch size and few knobs: the phases are all there, the time is that of a test
    "torch": ("--batch", "8", "--exclude", "torch.compile.mode", "--exclude", "env.MALLOC_CONF",
              "--exclude", "env.GOMP_CPU_AFFINITY"),
    "tensorflow": ("--batch", "8", "--exclude", "tensorflow.jit_compile", "--exclude",
                   "env.TF_NUM_INTEROP_THREADS", "--exclude", "env.TF_NUM_INTRAOP_THREADS"),
}  # fmt: skip


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=needs(name)) for name in STUDIES],
)
def studied(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any], str]:
    framework: str = request.param
    cwd = tmp_path_factory.mktemp(framework)
    marker = new_marker()
    done = run("--model", TINY, "--framework", framework, "--hw", "auto", "--budget", "60s",
               "--numerics", "same", *STUDIES[framework], "--out", "out", "--json", cwd=cwd,
               environment={MARKER: marker})  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert wait_until_gone(marker) == []
    return cwd, result_of(done.stdout), framework


def test_a_real_study_goes_through_every_phase(
    studied: tuple[Path, dict[str, Any], str],
) -> None:
    cwd, result, framework = studied
    assert set(result["phases"]) == {
        "baselines",
        "explore",
        "race",
        "minimise",
        "confirm",
        "explain",
    }
    stored = json.loads((cwd / "out/result.json").read_text())
    jsonschema.validate(stored, json.loads(RESULT_SCHEMA.read_text()))
    assert result["framework"] == framework
    assert framework in result["versions"]
    sources = {t["source"] for t in result["trials"]}
    assert "default" in sources
    proposed = sources & {*SOURCES, PREDICTED}
    if not proposed:  # a slow machine's budget may not suffice
        assert result["phases"]["explore"] == "the rest of the budget is for the later phases"
        assert "to try anything beyond the default" in " ".join(result["warnings"])
    assert any(t["outcome"] == "measured" for t in result["trials"])


def test_its_claims_rest_on_rounds_and_checked_outputs(
    studied: tuple[Path, dict[str, Any], str],
) -> None:
    _, result, _ = studied
    rounds = result["confirmation"]["rounds"]
    if not rounds:  # nothing to confirm is a result too, and so is no time for it, if it says so
        has_time = "nothing scored above the default" in result["phases"]["confirm"]
        assert has_time or "to confirm anything" in " ".join(result["warnings"])
    for winner_class in ("no_code", "same_precision"):
        winner = result["winners"][winner_class]
        assert winner["verdict"] in ("faster", "keep_default", "ambiguous")
        if winner["verdict"] == "faster":
            assert winner["n_rounds"] >= 4
            assert winner["speedup"]["low"] > 1
            assert winner["speedup"]["point"] > 1 + result["noise_floor"]
            assert winner["not_in_force"] == []
            check = winner["output_drift"]
            assert check["drift"] <= 1e-4
        for item in winner["read_back"]:
            assert item["evidence"] in ("effective", "accepted", "environment_only")
    assert result["seconds"]["scored"] > 0
    assert math.isfinite(result["noise_floor"])


def test_what_it_ships_runs(studied: tuple[Path, dict[str, Any], str]) -> None:
    import tomllib

    cwd, result, _ = studied
    plain = tomllib.loads((cwd / "out/recommended.toml").read_text())
    jsonschema.validate(plain, json.loads(RECOMMENDATION_SCHEMA.read_text()))
    # as in an activated environment: a library that pip brought is found by its Python
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [cwd / "out/run.sh", "env"],
        env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    environment = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    if result["verdict"] != "faster":
        assert plain["settings"] == []
    for setting in plain["settings"]:
        knob, value = setting["knob"], str(setting["value"])
        if knob.startswith("env."):
            assert environment[knob.removeprefix("env.")] == value
        if knob == "launch.allocator" and value != "glibc":
            assert value in environment["LD_PRELOAD"]
    assert result["model"] in (cwd / "out/report.md").read_text()
