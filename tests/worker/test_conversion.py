"""Files of converted models: made once in a study, removed elsewhere, refused in one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.wants import needs
from tuner.errors import UsageError
from tuner.host.environment import untuned
from tuner.record.output_check import MAX_DRIFT_INT8
from tuner.space.knobs_of.engines import DYNAMIC_INT8, STATIC_INT8
from tuner.worker.engines.conversion import PACKAGES, converted

SETTINGS = {"engine.name": "openvino"}
EXAMPLE = [np.zeros((4, 3), np.float32)]


class Converter:
    """Writes two files, as OpenVINO does, and counts."""

    def __init__(self) -> None:
        self.n = 0

    def __call__(self, path: Path) -> None:
        self.n += 1
        path.write_text("graph")
        path.with_suffix(".bin").write_text("weights")


def test_launches_of_a_study_share_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PACKAGES, str(tmp_path))
    convert = Converter()
    for _ in range(2):
        with converted(SETTINGS, convert, EXAMPLE) as path:
            assert path.name == "model.xml"
            assert path.read_text() == "graph"
            assert path.with_suffix(".bin").read_text() == "weights"
    assert convert.n == 1
    with converted(SETTINGS, convert, [np.zeros((8, 3), np.float32)]):
        assert convert.n == 2
    with converted({"engine.name": "onnxruntime"}, convert, EXAMPLE) as path:
        assert path.name == "model.onnx"
    assert convert.n == 3
    assert len([*tmp_path.glob("engine-*/")]) == len([*tmp_path.glob("*.lock")]) == 3
    assert len([*tmp_path.iterdir()]) == 6  # and nothing half made


def test_of_several_instances_one_converts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PACKAGES, str(tmp_path))
    convert = Converter()
    found: list[str] = []

    def launch() -> None:
        with converted(SETTINGS, convert, EXAMPLE) as path:
            found.append(path.read_text())

    def slowly(path: Path) -> None:
        convert(path)
        others = [threading.Thread(target=launch) for _ in range(3)]
        for each in others:
            each.start()
        started.extend(others)

    started: list[threading.Thread] = []
    with converted(SETTINGS, slowly, EXAMPLE) as path:
        found.append(path.read_text())
    for each in started:
        each.join()
    assert found == ["graph"] * 4
    assert convert.n == 1


QUANTISE = """
import json, sys
import numpy as np
import torch
from tuner.errors import UsageError
from tuner.worker.engines import load
from tuner.worker.engines.conversion import converted

engine, quantization = sys.argv[1:]
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8))
example = [torch.randn(32, 64).numpy()]
settings = {"engine.name": engine, "engine.quantization": quantization}

def convert(path):
    program = torch.export.export(model, (torch.from_numpy(example[0]),))
    if engine == "onnxruntime":
        torch.onnx.export(program, dynamo=True, verbose=False).save(str(path))
    else:
        from tuner.worker.engines import openvino_engine
        openvino = openvino_engine.imported()
        openvino.save_model(openvino.convert_model(program), str(path), compress_to_fp16=False)

try:
    with converted(settings, convert, example) as path:
        made = load(path, settings, 1, example, 1)
except UsageError as error:
    print(json.dumps(str(error)))
    sys.exit()
x = torch.randn(32, 64)
y, own = made.run([x.numpy()])[0], model(x).detach().numpy()
drift = float(np.linalg.norm(y - own) / np.linalg.norm(own - own.mean(0)))
(read,) = [each for each in made.read_back() if each.knob == "engine.quantization"]
print(json.dumps([drift, read.observed, read.evidence]))
"""


def quantised(engine: str, quantization: str, folder: Path) -> Any:
    """Quantise a small model, and return its drift and what is read back, or the refusal."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", QUANTISE, engine, quantization],
        env={**untuned(os.environ), PACKAGES: str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "quantization"),
    [
        pytest.param("onnxruntime", DYNAMIC_INT8, marks=needs("torch", "onnxruntime")),
        pytest.param("onnxruntime", STATIC_INT8, marks=needs("torch", "onnxruntime")),
        pytest.param("openvino", STATIC_INT8, marks=needs("torch", "openvino", "nncf")),
    ],
)
def test_a_real_model_computes_in_int8(engine: str, quantization: str, tmp_path: Path) -> None:
    """Only the engines show whether what they were given is carried out in eight bits."""
    drift, observed, evidence = quantised(engine, quantization, tmp_path)
    assert (observed, evidence) == (quantization, "effective")
    assert 1e-4 < drift < MAX_DRIFT_INT8
    files = sorted(each.name for each in tmp_path.glob("engine-*/*") if each.suffix != ".lock")
    assert len([*tmp_path.glob("engine-*/")]) == 2  # the model in its own types is kept as well
    assert not any("prepared" in name for name in files)


@pytest.mark.slow
@needs("torch", "openvino", "nncf")
def test_openvino_refuses_ranges_from_each_call(tmp_path: Path) -> None:
    """NNCF alone has no such quantization."""
    found = quantised("openvino", DYNAMIC_INT8, tmp_path)
    assert found == "OpenVINO has no dynamic quantization of activations"


@pytest.mark.parametrize("error", [MemoryError(), OSError(28, "No space left on device")])
def test_what_fails_for_the_moment_is_no_fault_of_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setenv(PACKAGES, str(tmp_path))

    def convert(path: Path) -> None:
        raise error

    with pytest.raises(type(error)), converted(SETTINGS, convert, EXAMPLE):
        pass


def test_outside_of_a_study_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(PACKAGES, raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with converted(SETTINGS, Converter(), EXAMPLE) as path:
        assert path.is_file()
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_converted_is_refused_with_the_converters_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PACKAGES, str(tmp_path))

    def convert(path: Path) -> None:
        raise RuntimeError("\n  no rule for operator aten::odd  \nmore")

    with (
        pytest.raises(UsageError, match="cannot be converted for openvino: RuntimeError: no rule"),
        converted(SETTINGS, convert, EXAMPLE),
    ):
        pass
    assert [each.suffix for each in tmp_path.iterdir()] == [".lock"]


TELLS_NOBODY = """
import torch
from tuner.worker.engines import load, openvino_engine
from tuner.worker.engines.conversion import converted
openvino = openvino_engine.imported()

def convert(path):
    model = openvino.convert_model(torch.export.export(torch.nn.ReLU(), (torch.ones(2, 3),)))
    openvino.save_model(model, str(path))

example = [-torch.ones(2, 3).numpy()]
with converted({"engine.name": "openvino"}, convert, example) as path:
    engine = load(path, {"engine.name": "openvino"}, 1, example, 1)
print(engine.run(example)[0].sum())
"""


@pytest.mark.slow
@needs("torch", "openvino")
def test_openvino_leaves_nothing_in_the_home_folder(tmp_path: Path) -> None:
    """OpenVINO alone shows what it writes there: the identity under which it sends usage data."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", TELLS_NOBODY],
        env={**untuned(os.environ), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines()[-1:] == ["0.0"], done.stderr[-2000:]
    assert list(tmp_path.iterdir()) == []
