"""The real ResNet-50: which version it is, and that its outputs can be checked.

That it is one model in both frameworks is shown with all others (tests/models/test_built_in.py).
"""

from typing import Any

import numpy as np
import pytest

from tests.wants import needs
from tuner.galleries import MODELS
from tuner.record.numerics import Level
from tuner.record.output_check import MAX_DRIFT_REDUCED, bounds_of
from tuner.record.workload import ModelRef
from tuner.worker import check, inputs
from tuner.worker.gallery import Image
from tuner.worker.gallery.python_file import PythonFile
from tuner.worker.kept import Array, Kept

pytestmark = [pytest.mark.slow, needs("torch")]
SMALL = (Image(64, 64, 3),)
"""A twelfth of the work; its last layers pool over whatever is left of an image."""


def source() -> PythonFile:
    return PythonFile(ModelRef("resnet50", str(MODELS / "resnet50.py")))


def test_it_is_version_1_5_whose_convolutions_of_3_by_3_have_the_stride() -> None:
    import torch

    with torch.device("meta"):  # no weights are drawn
        model = source().build("torch")
    block = "stage1_block0.conv"
    named = [module for name, module in model.named_modules() if name.startswith(block)]
    strides = [(module.kernel_size, module.stride) for module in named]
    assert strides == [((1, 1), (1, 1)), ((3, 3), (2, 2)), ((1, 1), (1, 1))]
    assert sum(p.numel() for p in model.parameters()) == 25_557_032


def test_conditioned_it_tells_inputs_apart_and_a_zeroed_layer_is_noticed() -> None:
    """Without conditioning its outputs are almost constant."""
    from tuner.worker.frameworks.torch import Torch

    def outputs(fw: Any) -> list[Array]:
        arrays = inputs.generate(SMALL, 1000, 8, 0, channels_first=True)
        with fw.work.running():
            found: list[Array] = fw.work.outputs(fw.work.program(arrays)())
        return found

    fw = Torch()
    fw.build.start({})
    fw.build.seed(0)
    fw.build.adopt(source().build("torch"))
    (raw,) = outputs(fw)
    images = inputs.generate(SMALL, 2000, 16, 0, channels_first=True)
    fw.build.condition(images, source().state().damped_norms)
    (y0,) = outputs(fw)

    def variety(y: Array) -> float:
        return float(np.linalg.norm(y - y.mean(axis=0)) / np.linalg.norm(y))

    assert variety(y0) > max(0.3, variety(raw))
    fw.build.model.stage2_block3.conv2.weight.data.zero_()
    (crippled,) = outputs(fw)
    found = check.compare([Kept(crippled)], [Kept(y0)], bounds_of(Level.REDUCED), True)
    assert found.drift > MAX_DRIFT_REDUCED
