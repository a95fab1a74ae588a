"""Models as people write them: refused with what to do before anything is timed, or tuned."""

import types
from pathlib import Path

import msgspec
import numpy as np
import pytest

from tests.conftest import of_all_processes
from tests.once import once
from tests.wants import needs
from tests.worker.describing import Asked, Reply, described
from tuner.record.workload import ModelRef
from tuner.space.overrides import overridden, warnings_of
from tuner.worker.frameworks import Setter
from tuner.worker.gallery.statement import batch_axis
from tuner.worker.independence import changed_rows, differ
from tuner.worker.own_settings import OwnSettings

TORCH = """
import os
import torch
from torch import nn
from torch.nn import functional as F
from tuner.worker.gallery import Features, Model

def module(forward, **parts):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(32, 16)
            self.register_buffer("seen", torch.zeros(16))
            for name, part in parts.items():
                setattr(self, name, part)
    Net.forward = forward
    return Net()

def state():
    def forward(self, x):
        y = self.linear(x)
        self.seen.mul_(0.9).add_(y.mean(0), alpha=0.1)
        return y - self.seen
    return module(forward), torch.randn(8, 32)

def noise():
    return module(lambda s, x: F.dropout(s.linear(x), 0.1, training=True)), torch.randn(8, 32)

def numpy_noise():
    import numpy
    return module(lambda s, x: s.linear(x) + float(numpy.random.rand())), torch.randn(8, 32)

def time_first():
    return module(lambda s, x: s.lstm(x)[0], lstm=nn.LSTM(32, 8)), torch.randn(20, 4, 32)

def attention():  # without positions: any order of the time gives the same answers
    layer = nn.TransformerEncoderLayer(32, 4, 64)
    return module(lambda s, x: s.layer(x), layer=layer), torch.randn(20, 4, 32)

def time_first_last_state():  # inputs (time, batch, 32), outputs (batch, 8) and (layers, batch, 8)
    def forward(self, x):
        y, (h, _) = self.lstm(x)
        return y[-1], h
    return module(forward, lstm=nn.LSTM(32, 8, 4)), torch.randn(20, 4, 32)

def batch_first_with_state():
    def forward(self, x):
        y, (h, _) = self.lstm(x)
        return y, h
    return module(forward, lstm=nn.LSTM(32, 8, 4, batch_first=True)), torch.randn(4, 20, 32)

def beside():  # the second output is a mean over the batch
    return module(lambda s, x: (s.linear(x), s.linear(x) - x.mean())), torch.randn(4, 32)

def one():
    norms = dict(conv=nn.Conv2d(3, 8, 3), norm=nn.BatchNorm2d(8), out=nn.Linear(8, 20))
    def forward(self, x):
        assert len(x) == 1, "one image at a time"
        return self.out(torch.relu(self.norm(self.conv(x))).mean((2, 3)))
    return module(forward, **norms), torch.randn(1, 3, 16, 16)

def taken_for_one():
    return module(lambda s, x: s.linear(x).view(1, -1)[:, :16]), torch.randn(1, 32)

def threads():
    os.environ["MKL_NUM_THREADS"] = "3"
    torch.set_num_threads(1)
    return module(lambda s, x: s.linear(x)), torch.randn(8, 32)

def low():
    return module(lambda s, x: s.linear(x)), torch.randn(8, 32).bfloat16()

def graded():
    return module(lambda s, x: s.linear(x)), torch.randn(8, 32, requires_grad=True)
"""
STATES_ONE = (
    TORCH
    + """
MODEL = Model("Takes one image at a time", "", "cnn", (), 1, (1,))
"""
)
STATES_DIMENSION = """
from tuner.worker.gallery import Model, Values
MODEL = Model("Time first", "", "recurrent", (Values((20, 32)),), 4, (4, 16), batch_dim=1)
def torch():
    from torch import nn
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(32, 8)
        def forward(self, x):
            return self.lstm(x)[0]
    return Net()
"""
EARLIER, RANDOM = "depend on earlier calls", "the outputs are random"
NOT_BATCH, DIMENSION_1 = "dimension 0 of the inputs", "dimension 1 behaves as the batch"
ALONE = "answers one sample and not 4 at a time: give --batch 1"
FLOAT32 = "give it in float32"

Case = tuple[str, dict[str, int], tuple[int, ...], str]
"""Function, what --batch and --batch-dim say, the batches that are compared, words of the error."""
CASES: list[Case] = [
    ("state", {}, (), EARLIER),
    ("noise", {}, (), RANDOM),
    ("numpy_noise", {}, (), RANDOM),
    ("time_first", {}, (), DIMENSION_1),
    ("time_first", {"batch": 1}, (), "two samples in a batch change each other's answers"),
    ("time_first", {"batch": 1, "batch_dim": 0}, (1,), ""),
    ("time_first", {"batch_dim": 1}, (4, 16), ""),
    ("attention", {}, (), DIMENSION_1),
    ("attention", {"batch_dim": 1}, (4, 16), ""),
    ("time_first_last_state", {}, (), NOT_BATCH),
    ("time_first_last_state", {"batch_dim": 1}, (4, 16), ""),
    ("batch_first_with_state", {}, (4, 16), ""),
    ("beside", {}, (), "output 1 of the model"),
    ("beside", {"batch": 4, "batch_dim": 0}, (4,), ""),
    ("one", {}, (), ALONE),
    ("one", {"batch": 1}, (1,), ""),
    ("taken_for_one", {}, (), ALONE),
    ("taken_for_one", {"batch": 1}, (1,), ""),
    ("low", {}, (), FLOAT32),
    ("graded", {}, (4,), ""),
    ("threads", {}, (), ""),
]


def _id(case: Case) -> str:
    return "-".join([case[0], *(f"{k}={v}" for k, v in case[1].items())])


@pytest.fixture(scope="module")
def replies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Reply]:
    """One process imports PyTorch once and answers for all."""
    folder = of_all_processes(tmp_path_factory, "people")
    paths = [folder / name for name in ("people.py", "one.py", "dimension.py")]
    people, one, dimension = map(str, paths)
    asked = {
        "one.py:one": Asked(ModelRef("one", one, function="one"), (1,)),
        "dimension.py": Asked(ModelRef("dimension", dimension), (4, 16)),
    }
    for case in CASES:
        ref = ModelRef(case[0], people, function=case[0], **case[1])  # type: ignore[arg-type]
        asked[_id(case)] = Asked(ref, case[2])
    with once(folder) as is_first:
        if is_first:
            for path, text in zip(paths, (TORCH, STATES_ONE, STATES_DIMENSION), strict=True):
                path.write_text(text)
            found = described(list(asked.values()), "torch", folder)
            (folder / "replies").write_bytes(msgspec.json.encode(found))
    found = msgspec.json.decode((folder / "replies").read_bytes(), type=list[Reply])
    return dict(zip(asked, found, strict=True))


@pytest.mark.slow
@needs("torch")
@pytest.mark.parametrize("case", CASES, ids=_id)
def test_a_model_is_refused_with_what_to_do_or_its_outputs_are_compared(
    replies: dict[str, Reply], case: Case
) -> None:
    _, _, batches, error = case
    reply = replies[_id(case)]
    assert error in reply.error
    assert bool(reply.error) == bool(error)
    assert "\n" not in reply.error
    if not error:
        assert len(reply.drifts) == len(batches)
        assert all(drift < 1e-4 for drift in reply.drifts)


@pytest.mark.slow
@needs("torch")
def test_a_file_states_its_only_batch_and_which_dimension_it_is(replies: dict[str, Reply]) -> None:
    for name, shape in (("one.py:one", (3, 16, 16)), ("dimension.py", (20, 32))):
        facts = replies[name].facts
        assert facts is not None, replies[name].error
        assert facts.input_shapes == (shape,)
        assert all(drift < 1e-4 for drift in replies[name].drifts)


@pytest.mark.slow
@needs("torch")
def test_threads_that_a_model_sets_are_named_with_their_line_and_tried_without(
    replies: dict[str, Reply],
) -> None:
    facts = replies["threads"].facts
    assert facts is not None
    line = 1 + TORCH[: TORCH.index("torch.set_num_threads")].count("\n")
    assert facts.unread["env.OMP_NUM_THREADS"] == (
        f"overridden by people.py:{line}: torch.set_num_threads(1)"
    )
    assert "env.MKL_NUM_THREADS" not in facts.unread  # a launch still sets it in this process
    (own,) = [each for each in facts.own_settings if each.holds]
    assert own.call_s > 0
    assert own.call_without_s > 0
    texts = warnings_of(facts)
    assert len(texts) == 2
    assert f"people.py:{line - 1} sets MKL_NUM_THREADS=3 in os.environ" in texts[0]
    assert "Remove the line and tune again" in texts[1]


TENSORFLOW = """
import keras
import tensorflow as tf
from keras import layers

def network(layer, *shape):
    given = layers.Input(batch_shape=shape or (None, 16))
    return keras.Sequential([given, layers.Dense(32), layer, layers.Dense(20)])

def state():
    class Count(layers.Layer):
        def build(self, shape):
            self.n = self.add_weight(shape=(), initializer="zeros", trainable=False, name="n")
        def call(self, x):
            self.n.assign_add(1.0)
            return x + self.n
    return network(Count())

def noise():
    class Drop(layers.Layer):
        def __init__(self):
            super().__init__()
            self.drop = layers.Dropout(0.2)
        def call(self, x):
            return self.drop(x, training=True)
    return network(Drop())

def one():
    return network(layers.BatchNormalization(name="norm"), 1, 8, 16)

def threads():
    tf.config.threading.set_intra_op_parallelism_threads(1)
    return network(layers.ReLU())

def low():
    return network(layers.ReLU()), tf.zeros((4, 16), tf.bfloat16)

def words():
    given = layers.Input((1,), dtype="string")
    ids = layers.StringLookup(vocabulary=["a", "b", "c", "d"])(given)
    return keras.Model(given, layers.Flatten()(layers.Embedding(8, 16)(ids)))

def sentences():
    return words(), tf.constant([["a"], ["b"]])
"""


@pytest.mark.slow
@needs("tensorflow")
def test_models_of_tensorflow_are_refused_and_tuned_alike(tmp_path: Path) -> None:
    path, recorded = tmp_path / "people.py", tmp_path / "words.npz"
    path.write_text(TENSORFLOW)
    np.savez(recorded, words=np.array(["a", "b", "c", "d", "e", "a", "c", "b"])[:, None])
    names = ("state", "noise", "low", "words", "sentences", "one", "threads", "texts")
    asked = {name: Asked(ModelRef(name, str(path), function=name), ()) for name in names[:-1]}
    asked["one"] = Asked(asked["one"].ref, (1,))
    given = ModelRef("texts", str(path), function="words", inputs=str(recorded))
    asked["texts"] = Asked(given, (4, 16))
    found = dict(zip(asked, described(list(asked.values()), "tensorflow", tmp_path), strict=True))
    expected = (EARLIER, RANDOM, FLOAT32, "takes texts", "of texts or objects", "", "", "")
    for name, error in zip(names, expected, strict=True):
        assert error in found[name].error, name
        assert bool(found[name].error) == bool(error), found[name].error
    assert all(d < 1e-4 for name in ("one", "texts") for d in found[name].drifts)
    assert len(found["texts"].drifts) == 2
    threads, texts = found["threads"].facts, found["texts"].facts
    assert threads is not None
    assert texts is not None
    assert "overridden by people.py:" in threads.unread["env.TF_NUM_INTRAOP_THREADS"]
    assert texts.input_types == ("string",)


Y = np.random.default_rng(0).standard_normal((4, 3, 5))


def test_rounding_is_no_other_answer_and_a_changed_row_is_one() -> None:
    assert not differ([Y], [Y * (1 + 1e-6)])
    assert differ([Y], [Y * (1 + 1e-3)])
    assert differ([Y], [Y, Y])
    quantised, moved = Y * 1.01, Y.copy()
    moved[2] += 0.5
    assert changed_rows([Y, Y], [quantised, moved], 2) == [1]
    assert changed_rows([Y], [moved], 1) == []
    assert changed_rows([Y], [Y[:, :2]], 1) == [0]
    empty = np.where(Y > 0, np.nan, Y)
    assert changed_rows([empty], [empty], 2) == []


def test_an_input_with_too_few_dimensions_has_the_batch_last() -> None:
    assert [batch_axis(1, n) for n in (3, 2, 1)] == [1, 1, 0]
    assert batch_axis(None, 3) == 0


def test_pools_that_are_made_once_are_noted_though_they_are_there_already() -> None:
    def refuse(num_threads: int) -> None:
        raise RuntimeError("the pools are there")

    library = types.SimpleNamespace(pools=refuse)
    own = OwnSettings([Setter("env.TF_NUM_INTEROP_THREADS", library, "pools", "library.pools")])
    with own.watched():
        library.pools(num_threads=1)
    assert library.pools is refuse
    (found,) = own.tried(lambda: 1.0)
    assert found.where.startswith("test_independence.py:")
    assert (found.what, found.call_s) == ("library.pools(1)", 0.0)
    assert not found.in_force
    assert set(overridden([found])) == {"env.TF_NUM_INTEROP_THREADS"}
