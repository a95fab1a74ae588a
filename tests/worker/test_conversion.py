"""Files of converted models: made once in a study, removed elsewhere, refused in one line."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.wants import needs
from tuner.errors import UsageError
from tuner.host.environment import untuned
from tuner.worker.engines.conversion import PACKAGES, converted

SETTINGS = {"engine.name": "openvino"}
SHAPES = [((4, 3), "float32")]


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
        with converted(SETTINGS, SHAPES, convert) as path:
            assert path.name == "model.xml"
            assert path.read_text() == "graph"
            assert path.with_suffix(".bin").read_text() == "weights"
    assert convert.n == 1
    with converted(SETTINGS, [((8, 3), "float32")], convert):
        assert convert.n == 2
    with converted({"engine.name": "onnxruntime"}, SHAPES, convert) as path:
        assert path.name == "model.onnx"
    assert convert.n == 3
    assert len([*tmp_path.glob("engine-*/")]) == len([*tmp_path.glob("*.lock")]) == 3
    assert len([*tmp_path.iterdir()]) == 6  # and nothing half made


def test_of_several_instances_one_converts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PACKAGES, str(tmp_path))
    convert = Converter()
    found: list[str] = []

    def launch() -> None:
        with converted(SETTINGS, SHAPES, convert) as path:
            found.append(path.read_text())

    def slowly(path: Path) -> None:
        convert(path)
        others = [threading.Thread(target=launch) for _ in range(3)]
        for each in others:
            each.start()
        started.extend(others)

    started: list[threading.Thread] = []
    with converted(SETTINGS, SHAPES, slowly) as path:
        found.append(path.read_text())
    for each in started:
        each.join()
    assert found == ["graph"] * 4
    assert convert.n == 1


@pytest.mark.parametrize("error", [MemoryError(), OSError(28, "No space left on device")])
def test_what_fails_for_the_moment_is_no_fault_of_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setenv(PACKAGES, str(tmp_path))

    def convert(path: Path) -> None:
        raise error

    with pytest.raises(type(error)), converted(SETTINGS, SHAPES, convert):
        pass


def test_outside_of_a_study_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(PACKAGES, raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with converted(SETTINGS, SHAPES, Converter()) as path:
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
        converted(SETTINGS, SHAPES, convert),
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

with converted({"engine.name": "openvino"}, [], convert) as path:
    example = [-torch.ones(2, 3).numpy()]
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
