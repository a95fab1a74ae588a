"""Every form of a PyTorch model takes and returns the structures that the model itself does."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import of_all_processes
from tests.once import once
from tests.wants import needs
from tuner.host.environment import untuned
from tuner.record.configuration import Value

pytestmark = pytest.mark.slow
FORMS: dict[str, dict[str, Value]] = {
    "eager": {},
    "freeze": {"torch.jit.mode": "freeze"},
    "optimize": {"torch.jit.mode": "optimize"},
    "compile": {"torch.compile.mode": "default"},
    "ahead of time": {"torch.export.mode": "aot_inductor"},
    "ahead of time, from a kept package": {"torch.export.mode": "aot_inductor"},
    "ONNX Runtime": {"engine.name": "onnxruntime"},
    "OpenVINO": {"engine.name": "openvino"},
    "OpenVINO, from a kept file": {"engine.name": "openvino"},
}
REFUSING = ("torch.jit.mode", "torch.export.mode", "engine.name")
"""What traces or exports; a compiler goes back to Python for what it does not know."""
PROGRAM = """
import json, os, sys, traceback
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from tuner.worker.frameworks import framework

import torch
from torch import nn
from transformers.modeling_outputs import SequenceClassifierOutput

Pair = namedtuple("Pair", "low high")

@dataclass
class Scores:
    value: torch.Tensor
    more: torch.Tensor | None = None

class Structured(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x, pair, *, named, scale=1.0, mask=None):
        x = torch.relu(self.first(x)) * scale + pair[0] + pair[1] + named["a"] - named["b"]["c"]
        y = self.last(x if mask is None else x * mask)
        return {
            "logits": y,
            "list": [y + 1, (y + 2, None)],
            "pair": Pair(y + 3, y + 4),
            "ordered": OrderedDict(second=y + 5, first=y + 6),
            "output": SequenceClassifierOutput(logits=y + 7, hidden_states=(y + 8, y + 9)),
            "scores": Scores(y + 10),
            "none": None,
        }

class Number(Structured):
    def forward(self, x):
        return self.last(torch.relu(self.first(x))), 3

class Size(Structured):
    def forward(self, x):
        return {"y": self.last(torch.relu(self.first(x))), "n": x.shape[0]}

class Found(Structured):  # one output, of as many rows as the input's values tell
    def forward(self, x):
        return {"found": torch.nonzero(self.first(x)[:, 0] > -100)}

class Two(nn.Module):  # what is given the same tensor twice at first
    def forward(self, a, b):
        return a - 2 * b

class Script(nn.Module):
    def forward(self, x: torch.Tensor, scale: float = 1.0) -> dict[str, torch.Tensor]:
        return {"y": x * scale}

def arguments(later=True):
    named = {"b": {"c": torch.randn(3, 16)}, "a": torch.randn(3, 16)}
    pair = (torch.randn(3, 16), torch.randn(16, 3).t() if later else torch.randn(3, 16))
    return (torch.randn(3, 8), pair), {"named": named, "scale": 2.0, "mask": torch.rand(3, 16)}

def same(a, b):
    assert type(a) is type(b), (type(a), type(b))
    if a is None:
        return
    if torch.is_tensor(a):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    elif isinstance(a, Scores):
        same([a.value, a.more], [b.value, b.more])
    elif isinstance(a, dict):
        assert list(a) == list(b)
        same([*a.values()], [*b.values()])
    else:
        assert len(a) == len(b)
        [same(x, y) for x, y in zip(a, b)]

def built(model, settings, args, kwargs):
    adapter.build.adopt(model)
    adapter.build.place(settings)
    return adapter.work.function(args, kwargs)

def run(settings):
    global adapter
    adapter = framework("torch")
    adapter.build.start(settings)
    torch.manual_seed(0)
    with adapter.work.running():
        for model, take in (
            (Structured(), arguments),
            (Found(), lambda later=True: ((torch.randn(4, 8),), {})),
        ):
            function = built(model, settings, *take(later=False))
            for _ in range(2):
                args, kwargs = take()
                given = adapter.work.arguments(args, kwargs)  # however its tensors lie in memory
                same(function(*given.args, **given.kwargs), model(*args, **kwargs))
        found = {item.knob: item.observed for item in adapter.build.form.read_back()}
        x, y = torch.randn(3, 8), torch.randn(3, 8)
        twice = built(Two(), settings, (x, x), {})
        same(twice(x, y), x - 2 * y)
        assert all(v == "optimize" or found[k] == v for k, v in settings.items()), found
        if "torch.jit.mode" in settings:
            script = torch.jit.script(Script())
            x = torch.randn(3, 8)
            same(built(script, settings, (x,), {"scale": 2.0})(x, scale=2.0), {"y": 2 * x})
        said = set()
        for model in (Number(), Size()):  # a constant, and what a tracer makes a tensor of
            try:
                built(model, settings, (torch.randn(3, 8),), {})
                said.add("")
            except Exception as error:
                said.add(f"{type(error).__name__}: {error}")
        (one,) = said
        return one

refusals = {}
for name, settings in json.loads(sys.argv[1]).items():
    reads, writes = os.pipe()
    if os.fork() == 0:
        try:
            said = run(settings)
        except BaseException:
            said = traceback.format_exc()
        os.write(writes, said.encode())
        os._exit(0)
    os.close(writes)
    refusals[name] = open(reads).read()
    os.wait()
print(json.dumps(refusals))
"""


@pytest.fixture(scope="module")
def refusals(tmp_path_factory: pytest.TempPathFactory, compiled: Path) -> dict[str, str]:
    """What each form said, in a copy of a process that has the framework imported."""
    folder = of_all_processes(tmp_path_factory, "forms")
    with once(folder) as is_first:
        if is_first:
            (folder / "refusals").write_text(_refusals(folder, compiled))
    found: dict[str, str] = json.loads((folder / "refusals").read_text())
    return found


def _refusals(folder: Path, compiled: Path) -> str:
    program = folder / "program.py"  # TorchScript and the compilers read its source
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-P", str(program), json.dumps(FORMS)],
        env={**untuned(os.environ), "TORCHINDUCTOR_CACHE_DIR": str(compiled),
             "TUNE_FRAMEWORK_PACKAGES": str(folder)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()[-1]


@needs("torch", "onnxruntime", "openvino")
@pytest.mark.parametrize("form", FORMS)
def test_a_form_takes_and_returns_what_the_model_does(form: str, refusals: dict[str, str]) -> None:
    """Dictionaries, tuples, keywords, constants, data classes; what it cannot return is refused."""
    refused = "UsageError: the model returns a value of type int among its outputs"
    assert (
        refusals[form].startswith(refused)
        if FORMS[form].keys() & REFUSING
        else refusals[form] == ""
    )
