"""What a host can do is measured by a framework's own operators."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.galleries import MODELS
from tuner.host.limits import read_memory
from tuner.launchers.asking import Deadline, ask
from tuner.record.protocol import MeasureBest
from tuner.record.why import HostBest
from tuner.record.workload import ModelRef
from tuner.worker.frameworks.fake.parts import BYTES_PER_S, FLOPS
from tuner.worker.host_best import _streamed_bytes

ANY = ModelRef("fake", str(MODELS / "fake.py"))


def best(framework: str, *dtypes: str) -> HostBest:
    found = ask(MeasureBest(framework, dtypes), [ANY], Deadline())
    assert isinstance(found, HostBest)
    return found


def test_an_array_is_larger_than_all_last_level_caches(tmp_path: Path) -> None:
    for cpu, shared in enumerate(("0-1", "0-1", "2-3", "2-3")):
        for index, (level, size) in enumerate(((1, "32K"), (3, "393216K"))):
            folder = tmp_path / f"sys/devices/system/cpu/cpu{cpu}/cache/index{index}"
            folder.mkdir(parents=True)
            own = str(cpu) if level == 1 else shared
            for name, value in (("level", level), ("size", size), ("shared_cpu_list", own)):
                (folder / name).write_text(f"{value}\n")
    most = read_memory() // 16
    assert _streamed_bytes(tmp_path) == pytest.approx(min(2 * 2 * 384 * 2**20, most), abs=1)
    assert _streamed_bytes(tmp_path / "none") == min(2**28, most)


def test_the_fastest_operator_counts() -> None:
    found = best("fake", "fp32", "bf16")
    assert found.flops == pytest.approx(FLOPS)
    assert found.fastest == {"fp32": "product", "bf16": "product"}
    assert found.bytes_per_s == pytest.approx(BYTES_PER_S)
    assert found.stream == "sum"


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
def test_real_operators_multiply(framework: str) -> None:
    """Real frameworks alone can show that their operators run as they are called."""
    found = best(framework, "fp32")
    assert set(found.flops) == {"fp32"}
    assert 1e9 < found.flops["fp32"] < 1e15
    assert found.fastest["fp32"].partition(" ")[0] in ("mm", "matmul", "linear", "convolution")
    assert 1e8 < found.bytes_per_s < 1e14
