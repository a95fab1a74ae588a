"""What torch's counter counts; work that it does not see is unknown, never missing."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest

from tests.wants import needs

pytestmark = [pytest.mark.slow, needs("torch")]


def counted(module: Any, *arguments: Any) -> int | None:
    import torch

    from tuner.worker.frameworks.torch.macs import count

    return count(torch, lambda: module(*arguments))


def attention(x: Any) -> Any:
    from torch.nn.functional import scaled_dot_product_attention

    return scaled_dot_product_attention(x, x, x)


def test_the_products_of_attention_are_counted() -> None:
    import torch

    assert counted(attention, torch.randn(2, 4, 32, 16)) == 2 * (2 * 4 * 32 * 32 * 16)


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


def traced() -> Any:
    import torch

    with warnings.catch_warnings(action="ignore"):  # a tracer's own, of a layer's checks
        return torch.jit.trace(long_memory(), torch.randn(2, 5, 8))


def quantized() -> Any:
    import torch

    class Quantized(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            weight = torch.quantize_per_tensor(torch.ones(4, 8), 0.1, 0, torch.qint8)
            packed = torch.ops.quantized.linear_prepack(weight, None)
            return torch.ops.quantized.linear_dynamic(x, packed)

    return Quantized()


@pytest.mark.filterwarnings("ignore:.*deprecated")  # what makes the layers, not what counts
@pytest.mark.parametrize("made", [encoder, long_memory, traced, quantized])
def test_layers_that_the_counter_does_not_see_make_the_work_unknown(
    made: Callable[[], Any],
) -> None:
    """Counted as nothing, a model's work would be far too small."""
    import torch

    assert counted(made(), torch.randn(2, 5, 8)) is None
