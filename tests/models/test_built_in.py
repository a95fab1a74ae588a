"""The built-in models hold what they state: parameters, multiply-accumulates, graph width."""

import functools
import importlib.util
import json
import os
import subprocess
import sys
from typing import Any, NamedTuple

import msgspec
import pytest

from tests.conftest import of_all_processes
from tests.once import once
from tests.wants import needs
from tuner.galleries import MODELS
from tuner.host.environment import untuned
from tuner.launchers.describe import gallery_cards, read_cards, ref_of
from tuner.record.workload import ModelCard, ModelRef

MOST_AMPLIFIED = {("efficientnet-b0", "tensorflow"): 300}
"""By how much noise in the inputs may grow until the outputs. Rounding grows as much: random layers
that amplify it hundredfold make every check of outputs refuse what trained ones bear. Keras's
EfficientNet does, in float32 still within what is allowed."""
FRAMEWORKS = ("torch", "tensorflow")
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

ORDER = {"q_proj": 0, "k_proj": 1, "v_proj": 2, "up_proj": 0, "gate_proj": 1, "down_proj": 2}
names = sys.argv[1:]
adapters = {name: framework(name) for name in names}
for adapter in adapters.values():
    adapter.build.start({})
draw = np.random.default_rng(0)
built = []  # layers in the order in which they got their weights: that of the data's flow


def mixed(model, stated):
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

    made = inputs.generate(stated.inputs, 0, 2, 0, channels_first=True)
    model, given = model.to("meta"), [torch.from_numpy(a).to("meta") for a in made]
    with Agreeing(), Looking(), torch.inference_mode():
        model(*given)
    return found


def note_layers():
    # those of Keras, as they get their weights
    import keras

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
    import torch

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
    import torch

    for module in model.modules():
        if "Norm" in type(module).__name__:
            for name, low, high in (("weight", 0.5, 1.5), ("bias", -0.5, 0.5),
                                    ("running_mean", -0.1, 0.1), ("running_var", 0.7, 1.3)):
                held = getattr(module, name, None)
                if held is not None:
                    held.data.copy_(torch.from_numpy(draw.uniform(low, high, held.shape)))


def carry_over(ours, theirs):
    # the weights of PyTorch's model into Keras's
    vary_norms(ours, np.random.default_rng(0))
    mine, yours = pools_of_torch(ours), pools_of_keras(theirs)
    for pool in mine:
        if len(mine[pool]) != len(yours[pool]):
            print([[v.shape for v in p] for p in mine[pool]], file=sys.stderr)
            print([[(v.path, v.shape) for v in p] for p in yours[pool]], file=sys.stderr)
            raise ValueError(f"{pool}: {len(mine[pool])} and {len(yours[pool])}")
        for values, variables in zip(mine[pool], yours[pool]):
            for value, variable in zip(values, variables, strict=True):
                if value.size != np.prod(variable.shape):
                    raise ValueError(f"{value.shape} for {variable.path} {variable.shape}")
                variable.assign(value.reshape(variable.shape))


def outputs_of(adapter, made):
    with adapter.work.running():
        return adapter.work.outputs(adapter.work.program(made)())


def facts_of(adapter, model, stated):
    adapter.build.adopt(model)
    adapter.build.place({})
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
    z = outputs_of(adapter, shaken)[0]
    found = {
        "parameters": sum(math.prod(p.shape) for p in adapter.evidence.parameters()),
        "width": average_width(adapter.evidence.graph(made)),
        "variety": float(np.linalg.norm(y - y.mean(axis=0)) / np.linalg.norm(y)),
        "shape": y.shape,
        "largest": float(np.abs(y).max()),
        "amplified": float(np.linalg.norm(z - y) / np.linalg.norm(y - y.mean(axis=0)) / 1e-5),
    }
    if adapter is adapters.get("torch"):
        counted = adapter.evidence.macs(call, len(made[0]))
        found["macs"] = counted and counted[0]
    return found


def difference(stated, ours, theirs):
    # of the outputs of one model in both frameworks, where they have one shape; as many samples as
    # before, for which programs are traced already
    carry_over(ours, theirs)
    a, b = (
        outputs_of(
            adapters[name],
            inputs.generate(
                stated.inputs, 0, 2, 0, channels_first=adapters[name].build.channels_first
            ),
        )
        for name in ("torch", "tensorflow")
    )
    return [
        float(np.linalg.norm(p - q) / np.linalg.norm(p - p.mean(axis=0)))
        for p, q in zip(a, b)
        if p.shape == q.shape
    ]


if "tensorflow" in names:
    note_layers()
for line in sys.stdin:
    ref, of, is_one = msgspec.json.decode(line, type=tuple[ModelRef, list[str], bool])
    source = source_of(ref)
    stated = source.state()
    models, found = {}, {}
    for name in of:
        adapters[name].build.seed(0)
        models[name] = source.build(name)
        found[name] = facts_of(adapters[name], models[name], stated)
    if is_one:
        try:
            found["differences"] = difference(stated, models["torch"], models["tensorflow"])
        except ValueError as error:
            found["differences"] = str(error)
    if "torch" in of:
        found["torch"]["mixed"] = mixed(models["torch"], stated)
    print(json.dumps(found), flush=True)
    models.clear()
    built.clear()
    gc.collect()
"""


@functools.cache
def small_models() -> list[tuple[ModelRef, ModelCard]]:
    """Return the small variant of every built-in model of a real framework."""
    refs = []
    for card in gallery_cards(MODELS):
        if card.frameworks != ("fake",):
            given = ",".join(f"{k}={v}" for k, v in card.small.items())
            refs.append(ref_of(f"{card.name}@{given}" if given else card.name, MODELS))
    return list(zip(refs, read_cards(refs), strict=True))


class Found(NamedTuple):
    """What a model turned out to be, once it was built and run."""

    card: ModelCard
    facts: dict[str, dict[str, Any]]
    """By framework."""
    differences: list[float] | str | None
    """Of outputs between the frameworks, with the same weights; or in what their weights differ.
    None of what is not one model."""


def is_one(card: ModelCard) -> bool:
    """Tell whether both frameworks are said to have the same model."""
    return set(FRAMEWORKS) <= set(card.frameworks) and (
        not card.differs or "parameters" in card.differs
    )


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[Found]:
    """Build all in one child, in every framework that is there, and run each a few times."""
    folder = of_all_processes(tmp_path_factory, "built-in")
    with once(folder) as is_first:
        if is_first:
            (folder / "found").write_text(_built())
    lines = [json.loads(line) for line in (folder / "found").read_text().splitlines()]
    return [
        Found(card, line, line.pop("differences", None))
        for (_, card), line in zip(small_models(), lines, strict=True)
    ]


def _built() -> str:
    there = [name for name in FRAMEWORKS if importlib.util.find_spec(name)]
    orders = [
        (ref, [name for name in there if name in card.frameworks],
         is_one(card) and len(there) == len(FRAMEWORKS))
        for ref, card in small_models()
    ]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-P", "-c", SCRIPT, *there],
        input="".join(msgspec.json.encode(order).decode() + "\n" for order in orders),
        env={**untuned(os.environ), "TF_CPP_MIN_LOG_LEVEL": "2", **ONE_THREAD},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return "\n".join(line for line in done.stdout.splitlines() if line.startswith("{"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "framework",
    [pytest.param("torch", marks=needs("torch")),
     pytest.param("tensorflow", marks=needs("tensorflow"))],
)  # fmt: skip
def test_models_hold_what_they_state(framework: str, found: list[Found]) -> None:
    for card, of_card, _ in [each for each in found if framework in each.card.frameworks]:
        facts = of_card[framework]
        told = f"{card.name}: {facts}"
        if not card.differs or framework == "torch":
            assert facts["parameters"] == card.n_parameters, told
        assert facts["width"] == pytest.approx(card.widths[framework], abs=0.005), told
        assert facts["variety"] > 0.05, told
        assert facts["largest"] < 1e4, told
        assert facts["amplified"] < MOST_AMPLIFIED.get((card.name, framework), 30), told
        if card.n_classes is not None:
            assert facts["shape"] == [2, card.n_classes], told
        assert not facts.get("mixed"), told
        # what is stated are the model's products; attention's are counted in full, pooling not
        if facts.get("macs"):
            assert facts["macs"] == pytest.approx(card.macs, rel=0.02), told


def test_the_gallery_is_wide() -> None:
    cards = [card for _, card in small_models()]
    assert not [card.fault for card in cards if card.fault]
    assert len(cards) >= 26
    assert len({card.family for card in cards}) >= 8
    assert all(card.n_parameters and card.macs and card.follows for card in cards)


@pytest.mark.slow
@needs("torch")
@needs("tensorflow")
def test_a_model_of_both_frameworks_is_one_model(found: list[Found]) -> None:
    """With the weights of one carried over into the other, outputs agree."""
    ones = [each for each in found if is_one(each.card)]
    assert len(ones) >= 10
    for each in ones:
        told = f"{each.card.name}: {each.differences}"
        assert isinstance(each.differences, list), told
        assert each.differences, told
        assert max(each.differences) < 1e-4, told
