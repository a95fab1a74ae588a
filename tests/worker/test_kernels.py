"""What the names of kernels tell, by recordings of an H100 (kernels_h100.json)."""

import json
from pathlib import Path

import pytest

from tuner.worker.frameworks.torch.kernels import Kernel, Kernels

RECORDED = json.loads(Path(__file__).with_name("kernels_h100.json").read_text())["calls"]


def kernels(name: str) -> Kernels:
    call = RECORDED[name]
    return Kernels([Kernel(*each) for each in call["kernels"]], call["graph_launches"])


@pytest.mark.parametrize(
    ("name", "layout", "low", "main"),
    [
        ("resnet50 default", "contiguous", "", "tf32"),
        ("resnet50 cl", "channels_last", "", "tf32"),
        ("resnet50 amp", None, "bf16", "bf16"),  # as much one way as the other is recorded
        ("resnet50 amp_cl", "channels_last", "bf16", "bf16"),
        ("resnet50 bf16_cl", "channels_last", "bf16", "bf16"),
        ("resnet50 compile", "channels_last", "", "tf32"),  # TorchInductor lays images out so
        ("resnet50 all", "channels_last", "bf16", "bf16"),
        ("resnet50 fp16_freeze_graphs", "channels_last", "fp16", "fp16"),
        ("bert default", None, "", "fp32"),
        ("bert tf32", None, "", "tf32"),
        ("bert bf16", None, "bf16", "bf16"),
        ("bert amp", None, "bf16", "bf16"),
    ],
)
def test_layout_and_precision_are_told_by_names(
    name: str, layout: str | None, low: str, main: str
) -> None:
    seen = kernels(name)
    told, ran = seen.layout(), seen.low()
    assert (told and told[0]) == layout
    assert ran is not None
    assert ran[0] == low
    assert next(iter(seen.precisions())) == main


def test_images_lie_as_what_goes_into_kernels_of_the_other_layout() -> None:
    """cuDNN found an NCHW kernel to be the fastest for images in NHWC, on a small network."""
    around = [Kernel("nhwcToNchwKernel<float>", 2, 3.0), Kernel("nchwToNhwcKernel<float>", 1, 2.0)]
    seen = Kernels([Kernel("implicit_convolve_sgemm", 1, 5.0), *around], 0)
    assert seen.layout() == (
        "channels_last", "1 convolution kernels; 1 rearrange to NHWC, 2 to NCHW"
    )  # fmt: skip


def test_a_graph_is_one_launch_of_the_host() -> None:
    assert {n for n in RECORDED if kernels(n).graph_launches} == {
        "resnet50 compile_graphs", "resnet50 all", "resnet50 fp16_freeze_graphs"
    }  # fmt: skip


def test_nothing_is_told_of_a_call_that_was_not_traced() -> None:
    nothing = Kernels.of(None, None)
    assert (nothing.layout(), nothing.low(), nothing.all) == (None, None, ())


def test_kernels_of_no_product_tell_nothing_of_precision() -> None:
    assert Kernels([Kernel("triton_poi_fused_relu_1", 1, 5.0)], 0).low() is None
