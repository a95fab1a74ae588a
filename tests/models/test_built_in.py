"""The built-in models hold what they state: parameters, multiply-accumulates, graph width."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.worker.workers import needs
from tuner.galleries import MODELS
from tuner.host.environment import untuned
from tuner.measurement.describe import find_model
from tuner.record.workload import ModelCard

NAMES = [
    "resnet50", "mobilenet-v1", "bert-base@length=32", "gpt2", "gpt2@mode=decode",
    "dlrm-rmc2@row_scale=0.001", "ncf", "fc-512", "matmul-256",
]  # fmt: skip
SCRIPT = """
import json, math, sys
import msgspec
import numpy as np
from tuner.record.workload import ModelRef
from tuner.worker import inputs
from tuner.worker.frameworks import framework
from tuner.worker.gallery.sources import source_of
from tuner.worker.graph import average_width

name = sys.argv[1]
adapter = framework(name)
adapter.build.start({})
for line in sys.stdin:
    ref = msgspec.json.decode(line, type=ModelRef)
    source = source_of(ref)
    adapter.build.seed(0)
    adapter.build.adopt(source.build(name))
    adapter.build.place({})
    stated = source.state()
    made = inputs.generate(stated.inputs, 0, 2, 0, channels_first=adapter.build.channels_first)
    with adapter.work.running():
        call = adapter.work.program(made)
        y = adapter.work.outputs(call())[0]
    found = {
        "parameters": sum(math.prod(p.shape) for p in adapter.evidence.parameters()),
        "width": average_width(adapter.evidence.graph(made)),
        "variety": float(np.linalg.norm(y - y.mean(axis=0)) / np.linalg.norm(y)),
    }
    if name == "torch":
        found["macs"], _ = adapter.evidence.macs(call, len(made[0]))
    print(json.dumps(found), flush=True)
"""


def found_in(framework: str) -> list[tuple[str, ModelCard, dict[str, Any]]]:
    models = [find_model(name, MODELS) for name in NAMES]
    import msgspec

    done = subprocess.run(
        [sys.executable, "-P", "-c", SCRIPT, framework],
        input="".join(msgspec.json.encode(ref).decode() + "\n" for ref, _ in models),
        env={**untuned(os.environ), "TF_CPP_MIN_LOG_LEVEL": "2"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(lines) == len(NAMES)
    return [(n, card, line) for n, (_, card), line in zip(NAMES, models, lines, strict=True)]


@pytest.mark.parametrize(
    "framework",
    [pytest.param("torch", marks=needs("torch")),
     pytest.param("tensorflow", marks=needs("tensorflow"))],
)  # fmt: skip
def test_models_hold_what_they_state(framework: str) -> None:
    for name, card, found in found_in(framework):
        assert found["parameters"] == card.n_parameters, name
        assert found["width"] == pytest.approx(card.widths[framework], abs=0.005), name
        assert found["variety"] > 0.05, name
        # what is stated are the model's products; attention's are counted in full, pooling not
        if "macs" in found:
            assert found["macs"] == pytest.approx(card.macs, rel=0.02), name
