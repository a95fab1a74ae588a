"""What a model may return, and how what cannot be compared is named."""

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.wants import needs
from tests.worker.describing import Asked, described
from tests.worker.workers import Launched
from tuner.errors import UsageError
from tuner.record.configuration import Value
from tuner.record.launch import Checked
from tuner.record.workload import ModelRef
from tuner.worker import reference
from tuner.worker.frameworks.outputs import tensors_in

A, B = np.zeros(1), np.ones(1)
OWN = """\
from tuner.worker.gallery import Features, Model

MODEL = Model("Returns more than a tensor", "none", "mlp", (Features(8),), 4, (4,))


def torch(label: bool = False, kind: str = ""):
    import torch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(8, 4)

        def forward(self, x):
            y = self.linear(x)
            if kind == "complex":
                return y, torch.complex(y, y)
            if label:
                return {"y": (y, None), "label": "cat"}
            return {"y": (y, None), "z": [2 * y], "ids": y.argmax(1) + 2**40}

    return Net()


def tensorflow(label: bool = False, kind: str = ""):
    import tensorflow as tf

    class Net(tf.keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = tf.keras.layers.Dense(4)

        def call(self, x, training=False):
            y = self.dense(x)
            if kind == "complex":
                return y, tf.complex(y, y)
            if label:
                return {"y": (y, None), "label": "cat"}
            return {"y": (y, None), "z": [2 * y], "ids": tf.argmax(y, 1) + 2**40}

    return Net()
"""


def tensors(result: Any) -> list[Any]:
    return tensors_in(result, lambda part: isinstance(part, np.ndarray))


def test_tensors_are_found_in_order_and_none_is_no_output() -> None:
    assert tensors(A) == [A]
    assert tensors((A, None, [B])) == [A, B]
    assert tensors({"z": A, "a": (None, {"b": B})}) == [A, B]


@pytest.mark.parametrize(
    ("result", "named"),
    [
        ((A, "cat"), "outputs[1] of the model is str 'cat'"),
        ({"logits": A, "label": "cat"}, "outputs['label'] of the model is str 'cat'"),
        ({"a": [A, {"loss": 0.5}]}, "outputs['a'][1]['loss'] of the model is float 0.5"),
        (object, "outputs of the model is type"),
        (None, "the model returns no tensor (None)"),
        ((None, []), "the model returns no tensor"),
    ],
)
def test_what_is_no_tensor_is_named_with_what_is_allowed(result: Any, named: str) -> None:
    with pytest.raises(UsageError) as refused:
        tensors(result)
    assert named in str(refused.value)
    assert (
        "dense tensors of real numbers, and None, also within tuples, lists and dictionaries"
        in str(refused.value)
    )


def test_an_output_that_holds_itself_is_named() -> None:
    endless: list[Any] = [A]
    endless.append({"again": endless})
    with pytest.raises(UsageError, match=r"outputs\[1\]\['again'\] of the model is a list that"):
        tensors(endless)
    assert tensors([endless[:1], endless[:1]]) == [A, A]  # twice the same is no circle


@pytest.mark.slow
def test_tensors_that_would_be_compared_in_part_are_refused() -> None:
    """A complex tensor would lose its imaginary part; others have no floats to compare."""
    import torch

    from tuner.worker.frameworks.torch.inference import fault_of

    flat = torch.zeros(2, 2)
    assert fault_of(flat) == fault_of(flat.int()) == fault_of(flat.bool()) == ""
    assert fault_of(torch.complex(flat, flat)) == "a tensor of complex64"
    assert fault_of(flat.to_sparse()) == "a tensor of layout sparse_coo"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is deprecated, which is told once in a process
        quantised = torch.quantize_per_tensor(flat, 1.0, 0, torch.quint8)
    assert fault_of(quantised) == "a tensor of quint8"


FORMS: dict[str, dict[str, Value]] = {
    "torch": {"torch.memory_format": "channels_last"},
    "tensorflow": {"tensorflow.frozen": True},  # which loses the structure of the outputs
}


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(f, marks=needs(f)) for f in FORMS])
def test_none_among_outputs_is_passed_over_and_strings_are_named(tmp_path: Path, name: str) -> None:
    own = tmp_path / "own.py"
    own.write_text(OWN)
    with Launched(tmp_path, name, FORMS[name], model=str(own)) as launched:
        launched.prepare()
        assert isinstance(checked := launched.checked(), Checked), checked
        assert checked.check.changed == 0.0
        kept = reference.read_outputs(launched.reference)
    (ids,) = (each.values for each in kept if each.values.dtype == np.int64)
    assert set(np.unique(ids - 2**40)) <= set(range(4)), "float32 would have rounded the last bits"
    given: list[tuple[str, Value]] = [("label", True), ("kind", "complex")]
    asked = [Asked(ModelRef("own", str(own), parameters=(each,))) for each in given]
    label, kind = described(asked, name, tmp_path)
    assert re.search(r"outputs\['label'\] of the model is .*cannot be compared", label.error)
    assert "outputs[1] of the model is a tensor of complex64" in kind.error
