"""The denominator of every speedup is what a user's own twenty lines compute, and no more.

How fast both are is measured by benchmarks/default_agrees.py. Here the two are held to the same
work, operator by operator.
"""

import json
import os
import subprocess
import sys

import pytest

from benchmarks.default_agrees import HERE, image_size
from tests.models.tiny import MODEL
from tests.wants import needs
from tests.worker.conftest import Ask
from tests.worker.workers import TINY
from tuner.host.environment import untuned
from tuner.record.launch import Profiled
from tuner.record.workload import ModelFacts
from tuner.worker.gallery import Image

# Each runs a plain script without letting it measure, then looks at one call of it.
_TORCH = """
from collections import Counter
import torch

model, x = script["model"], script["x"]
with torch.inference_mode():
    model(x)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
        model(x)
calls = {event.key: event.count for event in seen.key_averages()}
"""
_TENSORFLOW = """
import tensorflow as tf
from tuner.worker.frameworks.tensorflow.profile import operators

serve, x = script["serve"], script["x"]
serve(x).numpy()
calls = {o.name: o.calls for o in operators(tf, lambda: serve(x).numpy())}
"""
_LOOK = {"torch": _TORCH, "tensorflow": _TENSORFLOW}


def plain(framework: str, height: int, width: int, batch: int) -> dict[str, int]:
    """Return how often a call of the plain script runs each operator."""
    path = HERE / f"plain_{framework}.py"
    arguments = [str(path), TINY, *map(str, (height, width, batch, 0.25))]
    program = (
        "import io, json, runpy, sys\n"
        f"sys.argv, sys.stdin = {arguments!r}, io.StringIO()\n"
        f"script = runpy.run_path({str(path)!r})\n"
        f"{_LOOK[framework]}"
        "print(json.dumps(calls))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=untuned(os.environ), capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return found


def of_default(told: Ask, framework: str) -> tuple[dict[str, float], dict[str, int]]:
    """Return how often a call of the default runs each operator, and a call of the script."""
    profiled = told(framework, {}).profiled
    assert isinstance(profiled, Profiled)
    (image,) = MODEL.inputs
    assert isinstance(image, Image)
    script = plain(framework, image.height, image.width, MODEL.reference_batch)
    return {o.name: o.calls for o in profiled.operators}, script


@pytest.mark.slow
@needs("torch")
def test_the_default_of_torch_does_what_a_script_of_twenty_lines_does(told: Ask) -> None:
    default, script = of_default(told, "torch")
    assert default == script


@pytest.mark.slow
@needs("tensorflow")
def test_the_default_of_tensorflow_does_what_a_script_of_twenty_lines_does(told: Ask) -> None:
    """TensorFlow stops tracing an operator once it has proved cheap: those may be told too few."""
    default, script = of_default(told, "tensorflow")
    for heavy in ("Conv2D", "MatMul", "AvgPool", "Relu"):
        found = [{n: c for n, c in calls.items() if heavy in n} for calls in (default, script)]
        assert found[0] == found[1] != {}
    assert all(n <= script.get(name, 0) for name, n in default.items()), (default, script)


@pytest.mark.parametrize(
    ("framework", "shape"), [("torch", (3, 24, 32)), ("tensorflow", (24, 32, 3))]
)
def test_the_script_is_given_images_of_the_models_size(
    framework: str, shape: tuple[int, ...]
) -> None:
    facts = ModelFacts(0, (shape,), {framework: "2"}, {}, {}, 0.0, "", 0.0, 0.0, 0.0)
    assert image_size(facts) == (24, 32)
