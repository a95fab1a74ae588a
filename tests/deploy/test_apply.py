"""tuner.apply in a user's own program: real processes, each with its framework."""

import json
import os
import subprocess
import sys
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tuner
from tests.deploy.recommendations import recommendation, written
from tests.wants import needs
from tuner.host.environment import untuned
from tuner.host.identity import probe
from tuner.record.configuration import Configuration, Value
from tuner.record.files import write_recommendation
from tuner.space.launching import plan_launch

TORCH = """
import json, sys
import tuner
tuned = tuner.apply(sys.argv[1])
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 36, 8)).eval()
images = torch.randn(4, 3, 8, 8)
with torch.inference_mode():
    expected = model(images)
fast = tuned.prepare(model)
made = fast(images)
again = fast(images[:2])
from torch._dynamo.utils import counters
from tuner.errors import UsageError
late = ""
try:
    tuner.apply(sys.argv[1])
except UsageError as error:
    late = str(error)
print(json.dumps({
    "late": late,
    "drift": float((made - expected).norm() / expected.norm()),
    "again": float((again - expected[:2]).norm() / expected.norm()),
    "compiled": counters["frames"]["ok"],
    "inter-op": torch.get_num_interop_threads(),
    "grad": made.requires_grad,
    "missing": tuned.missing,
    "batch": tuned.batch,
}))
"""
TENSORFLOW = """
import json, sys
import tuner
tuned = tuner.apply(sys.argv[1])
import numpy as np
import tensorflow as tf
tf.keras.utils.set_random_seed(0)
layers = tf.keras.layers
model = tf.keras.Sequential([layers.Input((16,)), layers.Dense(32, "relu"), layers.Dense(8)])
x = np.random.default_rng(0).standard_normal((4, 16), dtype=np.float32)
expected = model(x, training=False).numpy()
fast = tuned.prepare(model)
made = fast(x).numpy()
from tuner.errors import UsageError
try:
    tuner.apply(sys.argv[2])
except UsageError as error:
    late = str(error)
print(json.dumps({
    "late": late,
    "drift": float(np.linalg.norm(made - expected) / np.linalg.norm(expected)),
    "missing": tuned.missing,
}))
"""


def run(
    script: str,
    folder: Path,
    settings: dict[str, Value],
    framework: str = "torch",
    *arguments: str,
    compiled: Path | None = None,
) -> str:
    """compiled: the compiler's cache, for a program that compiles."""
    path = written(folder, settings, framework)
    done = subprocess.run(
        [sys.executable, "-P", "-c", script, str(path), *arguments],
        env={**untuned(os.environ), "TORCHINDUCTOR_CACHE_DIR": str(compiled or folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def told(output: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


@pytest.mark.slow
@needs("torch")
def test_a_program_sets_what_only_it_can_and_names_what_it_was_not_started_under(
    tmp_path: Path,
) -> None:
    """To apply them again is too late: which only a PyTorch that has worked can say."""
    settings: dict[str, Value] = {
        "torch.interop_threads": 3,
        "torch.memory_format": "channels_last",
        "torch.jit.mode": "freeze",
        "env.OMP_NUM_THREADS": 1,
    }
    found = told(run(TORCH, tmp_path, settings))
    assert found["drift"] < 1e-5
    assert found["again"] < 1e-5
    assert found["inter-op"] == 3
    assert not found["grad"]
    assert found["missing"] == ["OMP_NUM_THREADS=1"]
    assert "torch has begun to work before tuner.apply(" in found["late"]
    assert "call it first" in found["late"]


@pytest.mark.slow
@needs("torch")
def test_reduced_precision_and_a_compiler_are_in_force(tmp_path: Path, compiled: Path) -> None:
    settings: dict[str, Value] = {"torch.autocast": "bf16", "torch.compile.mode": "default"}
    found = told(run(TORCH, tmp_path, settings, compiled=compiled))
    assert 1e-4 < found["drift"] < 5e-2
    assert found["compiled"] >= 1
    assert found["missing"] == []


@pytest.mark.slow
@needs("tensorflow")
def test_a_keras_model_is_frozen_and_compiled_and_what_comes_too_late_is_one_clear_line(
    tmp_path: Path,
) -> None:
    (tmp_path / "late").mkdir()
    late = written(tmp_path / "late", {"tensorflow.keras_policy": "mixed_bfloat16"}, "tensorflow")
    settings: dict[str, Value] = {"tensorflow.frozen": True, "tensorflow.jit_compile": True}
    found = told(run(TENSORFLOW, tmp_path, settings, "tensorflow", str(late)))
    assert "tensorflow has begun to work before tuner.apply(" in found.pop("late")
    assert found == {"drift": pytest.approx(0, abs=1e-5), "missing": []}


@pytest.mark.slow
@needs("tensorflow")
@pytest.mark.parametrize(
    "engine", [pytest.param(name, marks=needs(name)) for name in ("onnxruntime", "openvino")]
)
def test_a_keras_model_is_carried_out_by_another_engine(tmp_path: Path, engine: str) -> None:
    (tmp_path / "late").mkdir()
    late = written(tmp_path / "late", {"tensorflow.keras_policy": "mixed_bfloat16"}, "tensorflow")
    found = told(run(TENSORFLOW, tmp_path, {"engine.name": engine}, "tensorflow", str(late)))
    assert found["drift"] == pytest.approx(0, abs=1e-5)


AHEAD = """
import json, sys
import tuner
tuned = tuner.apply(sys.argv[1])
import torch
torch.manual_seed(int(sys.argv[2]))
model = torch.nn.Linear(8, 4)
x = torch.ones(2, 8)
with torch.inference_mode():
    expected = model(x).clone()
print(json.dumps(float((tuned.prepare(model)(x) - expected).abs().max())))
"""


@pytest.mark.slow
@needs("torch")
@pytest.mark.parametrize(
    "settings",
    [
        {"torch.export.mode": "aot_inductor"},
        pytest.param({"engine.name": "onnxruntime"}, marks=needs("onnxruntime")),
        pytest.param({"engine.name": "openvino"}, marks=needs("openvino")),
    ],
)
def test_compiled_ahead_of_time_the_weights_are_those_of_this_model(
    tmp_path: Path, compiled: Path, settings: dict[str, Value]
) -> None:
    """Two programs that share the compiler's cache and differ in their weights alone."""
    for seed in ("0", "1"):
        told = run(AHEAD, tmp_path, settings, "torch", seed, compiled=compiled)
        assert json.loads(told) < 1e-5


def test_preloads_that_are_there_are_not_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "recommended.toml"
    found = recommendation({"launch.allocator": "tcmalloc"}, probe(), "fake")
    preload = {"LD_PRELOAD": "/opt/a/libtcmalloc.so"}
    write_recommendation(path, msgspec.structs.replace(found, environment=preload))
    monkeypatch.setenv("LD_PRELOAD", "")
    with pytest.warns(UserWarning, match="without LD_PRELOAD=.*: tune-framework run ") as told:
        assert tuner.apply(path).missing == ("LD_PRELOAD=/opt/a/libtcmalloc.so",)
    assert told[0].filename == __file__
    monkeypatch.setenv("LD_PRELOAD", "/b.so:/opt/a/libtcmalloc.so:/c.so")
    assert tuner.apply(path).missing == ()


def test_a_library_of_the_environment_is_there_whatever_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "recommended.toml"
    told = recommendation({"launch.allocator": "mimalloc"}, probe(), "fake")
    named = {"environment": {"LD_PRELOAD": "libmimalloc.so"},
             "packages": {"libmimalloc.so": "cmeel-mimalloc==3.4.3"}}  # fmt: skip
    write_recommendation(path, msgspec.structs.replace(told, **named))
    for preload, missing in (("/a/venv/lib/libmimalloc.so:/l/other.so", ()),
                             ("/l/libtcmalloc.so", ("LD_PRELOAD=libmimalloc.so",))):  # fmt: skip
        monkeypatch.setenv("LD_PRELOAD", preload)
        with pytest.warns(UserWarning) if missing else nullcontext():
            assert tuner.apply(path).missing == missing


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, "sets nothing, so that apply does nothing: keep the default"),
        ({"launch.cpus": "one_per_core"}, "no setting that a program applies.*launch.cpus=one_per"),
        ({"workload.batch": 16}, "no setting that a program applies.*batches of 16"),
        ({"server.max_wait_ms": 5}, "does nothing; it holds server.max_wait_ms=5 .the program its"),
    ],
)
def test_an_apply_that_does_nothing_says_so(
    settings: dict[str, Value], told: str, tmp_path: Path
) -> None:
    path = written(tmp_path, settings, "fake")
    with pytest.warns(UserWarning, match=f"{path} .*{told}") as found:
        applied = tuner.apply(path)
    assert (applied.settings, len(found), found[0].filename) == ({}, 1, __file__)


def test_a_program_that_was_started_as_it_says_is_not_warned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, {"launch.cpus": "one_per_core"}, "fake")
    (plan,) = plan_launch(Configuration.of({"launch.cpus": "one_per_core"}), probe())
    for name, value in plan.variables().items():
        monkeypatch.setenv(name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tuner.apply(path).missing == ()
