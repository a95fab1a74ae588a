"""Every setting of a card, alive and dead, in real workers; skipped where there is no card."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.command import result_of, run
from tests.deploy.recommendations import written
from tests.wants import needs
from tests.worker.workers import TINY, Launched
from tuner.host.environment import untuned
from tuner.record.configuration import Value
from tuner.record.launch import Checked, Prepared
from tuner.record.load import OFFLINE, Load
from tuner.record.outcome import Outcome
from tuner.record.protocol import Failed, Prepare
from tuner.record.workload import CUDA

pytestmark = [pytest.mark.gpu, needs("an NVIDIA GPU")]
STUBBORN = str(Path(TINY).with_name("stubborn.py"))
COMPILED: dict[str, Value] = {"torch.compile.mode": "default"}
# each with whether it changes numerics, and with what a dead variant of it needs
SETTINGS: list[tuple[dict[str, Value], bool]] = [
    (COMPILED, False),
    ({"torch.compile.mode": "freezing"}, False),
    ({**COMPILED, "torch.compile.cuda_graphs": True}, False),
    ({**COMPILED, "torch.compile.max_autotune": True}, False),
    ({"torch.memory_format": "channels_last"}, False),
    ({"torch.cudnn.benchmark": True}, False),
    ({"env.PYTORCH_ALLOC_CONF": "expandable_segments:True"}, False),
    ({"env.OMP_NUM_THREADS": 1}, False),
    ({"torch.float32_matmul_precision": "high"}, True),
    ({"torch.autocast": "bf16"}, True),
    ({"torch.autocast": "fp16"}, True),
    ({"torch.dtype": "bf16"}, True),
    ({"torch.dtype": "fp16"}, True),
]
DEAD: list[tuple[dict[str, Value], str, dict[str, str]]] = [
    (COMPILED, TINY, {"TORCHDYNAMO_DISABLE": "1"}),
    ({**COMPILED, "torch.compile.cuda_graphs": True}, TINY, {"TORCHDYNAMO_DISABLE": "1"}),
    ({**COMPILED, "torch.compile.max_autotune": True}, TINY, {"TORCHDYNAMO_DISABLE": "1"}),
    ({"torch.float32_matmul_precision": "high"}, TINY, {"NVIDIA_TF32_OVERRIDE": "0"}),
    ({"torch.memory_format": "channels_last"}, STUBBORN, {}),
    ({"torch.autocast": "bf16"}, STUBBORN, {}),
    ({"torch.autocast": "fp16"}, STUBBORN, {}),
    ({"torch.dtype": "bf16"}, STUBBORN, {}),
]

APPLIED = """
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
made = [fast(images) for _ in range(3)][-1]
print(json.dumps({
    "drift": float((made.float().cpu() - expected).norm() / expected.norm()),
    "device": made.device.type,
    "precision": torch.get_float32_matmul_precision(),
    "held": torch.cuda.memory_allocated(),
    "missing": tuned.missing,
}))
"""


def label(value: object) -> str:
    return "+".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, Mapping) else ""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("card")


def launched(folder: Path, settings: Mapping[str, Value], **given: Any) -> Launched:
    return Launched(folder, "torch", settings, device=CUDA, **given)


def test_the_default_tells_of_the_card(folder: Path) -> None:
    with launched(folder, {}) as launch:
        prepared: Prepared = launch.prepare()
        taken = [launch.measured().slice for _ in range(3)]
        checked = launch.checked()
    assert all(item.requested is None for item in prepared.read_back)
    observed = {item.knob: item.observed for item in prepared.read_back}
    assert observed["torch.float32_matmul_precision"] == "highest"
    assert (observed["torch.dtype"], observed["torch.autocast"]) == ("fp32", "off")
    assert observed["torch.compile.cuda_graphs"] is False
    memory = prepared.device_memory
    assert memory is not None
    assert 0 < memory.allocated_peak_bytes <= memory.reserved_peak_bytes
    assert sum(s.energy_j or 0 for s in taken) > 0
    assert isinstance(checked, Checked), checked


def test_the_default_is_compared_with_what_is_exact(folder: Path) -> None:
    """cuDNN convolves in TF32: 2.0e-3 on an H100. Small convolutions, as tiny's, may be exact."""
    with launched(folder, {}, model="resnet50") as launch:
        launch.prepare()
        launch.measured()
        checked = launch.checked()
    assert isinstance(checked, Checked), checked
    assert 0 < checked.check.default_drift < 1e-2
    assert checked.check.drift == pytest.approx(checked.check.default_drift, rel=0.2)


@pytest.mark.parametrize(("settings", "reduced"), SETTINGS, ids=label)
def test_each_setting_takes_effect_and_keeps_the_outputs(
    folder: Path, settings: dict[str, Value], reduced: bool
) -> None:
    with launched(folder, settings) as launch:
        read_back = launch.read_back()
        launch.measured()
        checked = launch.checked(reduced=reduced)
    for knob, value in settings.items():
        item = read_back[knob]
        assert item.requested == value
        assert item.observed == value, item.how
        assert item.evidence in ("effective", "accepted")
    assert isinstance(checked, Checked), checked


@pytest.mark.parametrize(("settings", "model", "environment"), DEAD, ids=label)
def test_what_does_not_take_effect_is_not_in_force(
    folder: Path, settings: dict[str, Value], model: str, environment: dict[str, str]
) -> None:
    *_, knob = settings
    with launched(folder, settings, model=model, environment=environment) as launch:
        item = launch.read_back()[knob]
    assert not item.in_force, item.how


def test_a_card_without_room_is_an_outcome(tmp_path: Path) -> None:
    model = tmp_path / "greedy.py"
    model.write_text(
        Path(STUBBORN).read_text().replace(
            "            with torch.autocast",
            "            if len(x) > 8:\n"
            "                torch.empty(1 << 45, device=x.device)\n"
            "            with torch.autocast",
        )
    )  # fmt: skip
    with launched(tmp_path, {}, model=str(model)) as launch:
        launch.begin()
        reply = launch.ask(Prepare(Load(OFFLINE, 32)))
    assert isinstance(reply, Failed)
    assert reply.outcome is Outcome.OUT_OF_MEMORY
    assert "CUDA out of memory" in reply.reason


def test_a_study_of_a_card_says_what_it_measured_there(tmp_path: Path) -> None:
    done = run("--model", TINY, "--hw", "auto", "--budget", "150s", "--out", "out", "--json",
               cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = result_of(done.stdout)
    assert result["device"] == CUDA
    assert result["framework"] == "torch"
    assert result["host"]["identity"]["gpus"][0]["name"] in (tmp_path / "out/report.md").read_text()
    assert result["batches"] == [8, 32, 128, 512]
    names = {b["name"] for b in result["baselines"] if b["applicable"]}
    assert {"torch_tf32", "torch_gpu_guide", "torch_gpu_guide_same"} <= names
    assert result["default"]["device_memory"]["reserved_peak_bytes"] > 0
    assert result["default"]["joules_per_item"] > 0


def test_processes_share_the_card(tmp_path: Path) -> None:
    done = run("--model", TINY, "--hw", "cuda", "--budget", "50s", "--batch", "8", "--out", "out",
               "--numerics", "same", "--fix", "launch.instances=2", "--json",
               cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = result_of(done.stdout)
    shared = [
        trial for trial in result["trials"] if trial["configuration"].get("launch.instances") == 2
    ]
    ended = [(trial["outcome"], trial["reason"]) for trial in shared]
    assert ("measured", "") in ended, ended


def test_a_program_computes_on_the_card_under_what_was_found(tmp_path: Path) -> None:
    settings: dict[str, Value] = {
        **COMPILED,
        "torch.compile.cuda_graphs": True,
        "torch.float32_matmul_precision": "high",
        "torch.memory_format": "channels_last",
    }
    path = written(tmp_path, settings, device=CUDA)
    done = subprocess.run(
        [sys.executable, "-P", "-c", APPLIED, str(path)],
        env={**untuned(os.environ), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["drift"] < 5e-3
    assert found["device"] == CUDA
    assert found["precision"] == "high"
    assert found["held"] > 0
    assert found["missing"] == []
