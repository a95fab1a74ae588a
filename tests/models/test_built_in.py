"""The built-in models hold what they state: parameters, multiply-accumulates, graph width."""

import functools
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from tests.worker.workers import needs
from tuner.galleries import MODELS
from tuner.host.environment import untuned
from tuner.measurement.describe import find_model, gallery_cards
from tuner.record.workload import ModelCard, ModelRef

MOST_AMPLIFIED = {("efficientnet-b0", "tensorflow"): 300}
"""By how much noise in the inputs may grow until the outputs. Rounding grows as much: random layers
that amplify it hundredfold make every check of outputs refuse what trained ones bear. Keras's
EfficientNet does, in float32 still within what is allowed."""
ONE_THREAD = {"OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}
"""Small models, beside other tests: more threads would wait for each other."""
SCRIPT = """
import gc, json, math, sys
import msgspec
import numpy as np
from tuner.record.workload import ModelRef
from tuner.worker import inputs
from tuner.worker.frameworks import framework
from tuner.worker.gallery.sources import source_of
from tuner.worker.graph import average_width

name = sys.argv[1]


def mixed(model, made):
    # the operations in which a model mixes its inputs' device with another: on a card they fail;
    # tensors without data stand for those on a card
    import torch
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    found = []

    class Looking(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            leaves = tree_leaves((args, kwargs))
            tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.dim()]
            devices = sorted({tensor.device.type for tensor in tensors})
            if len(devices) > 1 and function is not torch.ops.aten.copy_.default:
                found.append(f"{function} of tensors on {devices}")
            return function(*args, **(kwargs or {}))

    class Agreeing(TorchFunctionMode):
        # answers what asks for a tensor's value, as masks are asked whether they mask
        def __torch_function__(self, function, types, args=(), kwargs=None):
            if function in (torch.Tensor.__bool__, torch.Tensor.item):
                return True
            return function(*args, **(kwargs or {}))

    model, given = model.to("meta"), [torch.from_numpy(a).to("meta") for a in made]
    with Agreeing(), Looking(), torch.inference_mode():
        model(*given)
    return found


draw = np.random.default_rng(0)
adapter = framework(name)
adapter.build.start({})
for line in sys.stdin:
    ref = msgspec.json.decode(line, type=ModelRef)
    source = source_of(ref)
    adapter.build.seed(0)
    adapter.build.adopt(source.build(name))
    adapter.build.place({})
    stated = source.state()
    first = adapter.build.channels_first
    varied = inputs.generate(stated.inputs, 2000, 3, 0, channels_first=first)
    adapter.build.condition(varied, stated.damped_norms)
    made = inputs.generate(stated.inputs, 0, 2, 0, channels_first=first)
    with adapter.work.running():
        call = adapter.work.program(made)
        y = adapter.work.outputs(call())[0]
        shaken = [
            a * (1 + 1e-5 * draw.standard_normal(a.shape, dtype=np.float32))
            if a.dtype.kind == "f" else a
            for a in made
        ]
        z = adapter.work.outputs(adapter.work.program(shaken)())[0]
    found = {
        "parameters": sum(math.prod(p.shape) for p in adapter.evidence.parameters()),
        "width": average_width(adapter.evidence.graph(made)),
        "variety": float(np.linalg.norm(y - y.mean(axis=0)) / np.linalg.norm(y)),
        "shape": y.shape,
        "largest": float(np.abs(y).max()),
        "amplified": float(np.linalg.norm(z - y) / np.linalg.norm(y - y.mean(axis=0)) / 1e-5),
    }
    if name == "torch":
        counted = adapter.evidence.macs(call, len(made[0]))
        found["macs"] = counted and counted[0]
        found["mixed"] = mixed(adapter.build.model, made)
    print(json.dumps(found), flush=True)
    del call, y
    gc.collect()
"""


@functools.cache
def small_models() -> list[tuple[ModelRef, ModelCard]]:
    """Return the small variant of every built-in model of a real framework."""
    found = []
    for card in gallery_cards(MODELS):
        if card.frameworks != ("fake",):
            given = ",".join(f"{k}={v}" for k, v in card.small.items())
            found.append(find_model(f"{card.name}@{given}" if given else card.name, MODELS))
    return found


def found_in(framework: str) -> list[tuple[ModelCard, dict[str, Any]]]:
    """Build them in one child and run each once; return what they turned out to be."""
    models = [(ref, card) for ref, card in small_models() if framework in card.frameworks]
    done = child(SCRIPT, [ref for ref, _ in models], framework)
    return [(card, line) for (_, card), line in zip(models, done, strict=True)]


def child(script: str, models: Sequence[ModelRef], *arguments: str) -> list[Any]:
    """Have a child take models line by line; return its lines, one for each."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", script, *arguments],
        input="".join(msgspec.json.encode(ref).decode() + "\n" for ref in models),
        env={**untuned(os.environ), "TF_CPP_MIN_LOG_LEVEL": "2", **ONE_THREAD},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(lines) == len(models)
    return lines


@pytest.mark.parametrize(
    "framework",
    [pytest.param("torch", marks=needs("torch")),
     pytest.param("tensorflow", marks=needs("tensorflow"))],
)  # fmt: skip
def test_models_hold_what_they_state(framework: str) -> None:
    for card, found in found_in(framework):
        told = f"{card.name}: {found}"
        if not card.differs or framework == "torch":
            assert found["parameters"] == card.n_parameters, told
        assert found["width"] == pytest.approx(card.widths[framework], abs=0.005), told
        assert found["variety"] > 0.05, told
        assert found["largest"] < 1e4, told
        assert found["amplified"] < MOST_AMPLIFIED.get((card.name, framework), 30), told
        if card.n_classes is not None:
            assert found["shape"] == [2, card.n_classes], told
        assert not found.get("mixed"), told
        # what is stated are the model's products; attention's are counted in full, pooling not
        if found.get("macs"):
            assert found["macs"] == pytest.approx(card.macs, rel=0.02), told


def test_the_gallery_is_wide() -> None:
    cards = [card for _, card in small_models()]
    assert not [card.fault for card in cards if card.fault]
    assert len(cards) >= 26
    assert len({card.family for card in cards}) >= 8
    assert all(card.n_parameters and card.macs and card.follows for card in cards)


SAME_MODEL = """
import json, re, sys
import keras
import msgspec
import numpy as np
import tensorflow as tf
import torch
from tuner.record.workload import ModelRef
from tuner.worker import inputs
from tuner.worker.frameworks import framework
from tuner.worker.gallery.sources import source_of

ORDER = {"q_proj": 0, "k_proj": 1, "v_proj": 2, "up_proj": 0, "gate_proj": 1, "down_proj": 2}
built = []  # layers in the order in which they got their weights: that of the data's flow
add_weight = keras.Layer.add_weight

def noted(self, *given, **named):
    if self not in built:
        built.append(self)
    return add_weight(self, *given, **named)

keras.Layer.add_weight = noted

def in_order(module):
    # attention's and the gate's products in one order, whatever the library's
    return sorted(module.named_children(), key=lambda pair: ORDER.get(pair[0], 3))

def pools_of_torch(model):
    pools = {"product": [], "norm": [], "table": [], "lstm": []}
    tables = {id(m.weight) for m in model.modules() if isinstance(m, torch.nn.Embedding)}
    def visit(module):
        kind = type(module).__name__
        def values(*names):
            found = [getattr(module, name, None) for name in names]
            return [v.detach().numpy() for v in found if v is not None]
        if isinstance(module, torch.nn.MultiheadAttention):
            weights, biases = values("in_proj_weight", "in_proj_bias")
            parts = zip(np.split(weights, 3), np.split(biases, 3))
            pools["product"] += [[w.T, b] for w, b in parts]
            visit(module.out_proj)
        elif kind == "Conv1D":  # of GPT-2, (inputs, outputs), its query, key and value in one
            w, b = values("weight", "bias")
            n = 3 if w.shape[1] == 3 * w.shape[0] else 1
            pools["product"] += [list(p) for p in zip(np.split(w, n, 1), np.split(b, n))]
        elif id(getattr(module, "weight", None)) in tables and isinstance(module, torch.nn.Linear):
            pass  # scores by the embedding's own weights
        elif isinstance(module, torch.nn.Linear):
            w, *b = values("weight", "bias")
            pools["product"].append([w.T, *b])
        elif isinstance(module, (torch.nn.Conv1d, torch.nn.Conv2d)):
            w, *b = values("weight", "bias")
            axes = tuple(range(2, w.ndim)) + ((0, 1) if module.groups > 1 else (1, 0))
            pools["product"].append([w.transpose(axes), *b])
        elif isinstance(module, torch.nn.LSTM):
            n_ways = 2 if module.bidirectional else 1
            for layer in range(module.num_layers):
                for end in ["", "_reverse"][:n_ways]:
                    parts = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
                    ih, hh, bi, bh = values(*(f"{part}_l{layer}{end}" for part in parts))
                    pools["lstm"].append([ih.T, hh.T, bi + bh])
        elif "Norm" in kind and list(module.parameters(recurse=False)):
            pools["norm"].append(values("weight", "bias", "running_mean", "running_var"))
        else:
            for p in module.parameters(recurse=False):
                pools["table"].append([p.detach().numpy()])
            for _, part in in_order(module):
                visit(part)
    visit(model)
    return pools

def pools_of_keras(model):
    pools = {"product": [], "norm": [], "table": [], "lstm": []}
    inside = {id(layer) for layer in model._flatten_layers()}
    for layer in built:
        kind = type(layer).__name__
        own = [*layer._trainable_variables, *layer._non_trainable_variables]
        own = [v for v in own if not v.path.endswith("seed_generator_state")]
        if id(layer) not in inside or not own:
            continue
        if "Conv" in kind or "Dense" in kind:
            pools["product"].append(own)
        elif "Norm" in kind:
            pools["norm"].append(own)
        elif kind == "LSTMCell":
            pools["lstm"].append(own)
        else:
            pools["table"] += [[v] for v in own]
    return pools

def vary_norms(model, draw):
    for module in model.modules():
        if "Norm" in type(module).__name__:
            for name, low, high in (("weight", 0.5, 1.5), ("bias", -0.5, 0.5),
                                    ("running_mean", -0.1, 0.1), ("running_var", 0.7, 1.3)):
                held = getattr(module, name, None)
                if held is not None:
                    held.data.copy_(torch.from_numpy(draw.uniform(low, high, held.shape)))

def as_arrays(made):
    held = made if isinstance(made, (list, tuple)) else [made]
    return [np.asarray(each) for each in held]

for line in sys.stdin:
    ref = msgspec.json.decode(line, type=ModelRef)
    source = source_of(ref)
    stated = source.state()
    torch.manual_seed(0)
    ours = source.build("torch").eval()
    vary_norms(ours, np.random.default_rng(0))
    keras.utils.set_random_seed(0)
    keras.backend.clear_session()
    built.clear()
    theirs = source.build("tensorflow")
    counts = {}
    mine, yours = pools_of_torch(ours), pools_of_keras(theirs)
    for pool in mine:
        counts[pool] = [len(mine[pool]), len(yours[pool])]
        if len(mine[pool]) != len(yours[pool]):
            print([[v.shape for v in p] for p in mine[pool]], file=sys.stderr)
            print([[(v.path, v.shape) for v in p] for p in yours[pool]], file=sys.stderr)
            sys.exit(f"{ref.label()}: {pool} {counts[pool]}")
        for values, variables in zip(mine[pool], yours[pool]):
            for value, variable in zip(values, variables, strict=True):
                if value.size != np.prod(variable.shape):
                    sys.exit(f"{ref.label()}: {value.shape} for {variable.path} {variable.shape}")
                variable.assign(value.reshape(variable.shape))
    x_torch, x_keras = (
        inputs.generate(stated.inputs, 0, 4, 0, channels_first=first) for first in (True, False)
    )
    with torch.inference_mode():
        a = as_arrays(ours(*map(torch.from_numpy, x_torch)))
    given = [tf.constant(x) for x in x_keras]
    b = as_arrays(theirs(given if len(given) > 1 else given[0], training=False))
    differences = [
        float(np.linalg.norm(p - q) / np.linalg.norm(p - p.mean(axis=0))) for p, q in zip(a, b)
        if p.shape == q.shape
    ]
    print(json.dumps({"model": ref.label(), "differences": differences}), flush=True)
"""


@needs("torch")
@needs("tensorflow")
def test_a_model_of_both_frameworks_is_one_model() -> None:
    """With the weights of one carried over into the other, outputs agree."""
    pairs = [
        ref
        for ref, card in small_models()
        if {"torch", "tensorflow"} <= set(card.frameworks)
        and (not card.differs or "parameters" in card.differs)
    ]
    assert len(pairs) >= 10
    for found in child(SAME_MODEL, pairs):
        assert found["differences"], found
        assert max(found["differences"]) < 1e-4, found
