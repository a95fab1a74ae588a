"""What a host can do is measured by a framework's own operators."""

from __future__ import annotations

import pytest

from tuner.galleries import MODELS
from tuner.launchers.asking import Deadline, ask
from tuner.record.protocol import MeasureBest
from tuner.record.why import HostBest
from tuner.record.workload import ModelRef
from tuner.worker.frameworks.fake.parts import BYTES_PER_S, FLOPS

ANY = ModelRef("fake", str(MODELS / "fake.py"))


def best(framework: str, *dtypes: str) -> HostBest:
    found = ask(MeasureBest(framework, dtypes), [ANY], Deadline())
    assert isinstance(found, HostBest)
    return found


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
