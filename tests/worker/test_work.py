"""The operations and bytes that are counted; work that is not seen is unknown, never missing."""

import runpy
from collections.abc import Callable
from typing import Any

import pytest

from tests.wants import needs
from tuner.analysis.operator_classes import class_of
from tuner.galleries import MODELS
from tuner.launchers.asking import Deadline, ask
from tuner.launchers.describe import find_model
from tuner.record.protocol import CountWork
from tuner.record.why import ModelWork, OperatorClass, OperatorWork
from tuner.record.workload import ModelRef

pytestmark = [pytest.mark.slow, needs("torch")]


def counted(module: Any, *arguments: Any) -> int | None:
    import torch

    from tuner.worker.frameworks.torch.work import count

    return count(torch, lambda: module(*arguments))


def images(*shape: int) -> Any:
    import torch

    return torch.randn(*shape)


def attention(x: Any) -> Any:
    from torch.nn.functional import scaled_dot_product_attention

    return scaled_dot_product_attention(x, x, x)


def test_the_products_of_attention_are_counted() -> None:
    import torch

    assert counted(attention, torch.randn(2, 4, 32, 16)) == 2 * (2 * 4 * 32 * 32 * 16)


def test_a_recurrent_layer_that_is_one_operator_is_counted() -> None:
    assert counted(long_memory(), images(2, 5, 8)) == 2 * 5 * 4 * 16 * (8 + 16)


def test_a_recurrent_layer_made_of_products_is_counted() -> None:
    import torch

    layer = torch.nn.GRU(8, 16).eval()
    assert counted(layer, torch.randn(2, 5, 8)) == 2 * 5 * 3 * 16 * (8 + 16)


def encoder() -> Any:
    import torch

    return torch.nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()


def long_memory() -> Any:
    import torch

    return torch.nn.LSTM(8, 16, batch_first=True).eval()


def quantized() -> Any:
    import torch

    class Quantized(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            weight = torch.quantize_per_tensor(torch.ones(4, 8), 0.1, 0, torch.qint8)
            packed = torch.ops.quantized.linear_prepack(weight, None)
            return torch.ops.quantized.linear_dynamic(x, packed)

    return Quantized()


def vectors() -> Any:
    import torch

    return lambda x: torch.mv(x[0], x[0][0])


@pytest.mark.filterwarnings("ignore:.*deprecated")  # what makes the layers, not what counts
@pytest.mark.parametrize("made", [encoder, quantized, vectors])
def test_layers_that_the_counter_does_not_see_make_the_work_unknown(
    made: Callable[[], Any],
) -> None:
    """Counted as nothing, a model's work would be far too small."""
    import torch

    assert counted(made(), torch.randn(2, 5, 8)) is None


def work(model: str, framework: str) -> tuple[ModelWork, int]:
    """Count a model's work; return it with the multiply-accumulates that its file states."""
    ref, _ = find_model(model, MODELS)
    found = ask(CountWork(ref, framework, 0), [ref], Deadline())
    assert isinstance(found, ModelWork)
    return found, ref_macs(ref)


def ref_macs(ref: ModelRef) -> int:
    module = runpy.run_path(ref.path)
    statement = module.get("MODEL") or module["model"](**dict(ref.parameters))
    macs: int = statement.macs
    return macs


@pytest.mark.parametrize(
    "model", ["resnet50", "bert@layers=2,length=32", "lstm-tagger@length=10", "ncf", "mobilenet-v1"]
)
@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
def test_the_operators_of_real_models_add_up_to_their_work(model: str, framework: str) -> None:
    """Real frameworks alone show which operators they dispatch, and in which shapes."""
    found, macs = work(model, framework)
    flops = [each.flops for each in found.operators]
    assert None not in flops
    assert sum(filter(None, flops)) / 2 == pytest.approx(macs, rel=0.03)


@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
def test_bytes_are_those_of_the_tensors(framework: str) -> None:
    """Look-ups read rows, not tables; products read their weights once a call."""
    found, _ = work("lstm-tagger@length=10", framework)
    rows = sum(e.item_bytes + e.call_bytes for e in of_class(found, OperatorClass.LOOKUP))
    assert rows < 20_000 * 100 * 4 / 8  # the table, by a batch of 8
    if framework == "torch":
        (layers,) = of_class(found, OperatorClass.RECURRENT)
        n_weights = sum(2 * 4 * 200 * (width + 200) for width in (100, 400))
        assert 4 * n_weights <= layers.call_bytes < 1.1 * 4 * n_weights


def of_class(found: ModelWork, name: OperatorClass) -> list[OperatorWork]:
    return [each for each in found.operators if class_of(each.name) is name]
