"""The output check can fail: constant, exchanged and crippled outputs are rejected."""

import msgspec
import numpy as np
import pytest

from tests.worker.workers import needs
from tuner.galleries import MODELS
from tuner.record.output_check import MAX_DRIFT_REDUCED, OutputCheck
from tuner.record.workload import ModelRef
from tuner.worker import check, inputs
from tuner.worker.check import compare, fault
from tuner.worker.gallery.python_file import PythonFile

RANDOM = np.random.default_rng(0)
Y0 = RANDOM.standard_normal((96, 32)).astype(np.float32)


def test_the_same_outputs_pass() -> None:
    found = compare([Y0], [Y0], has_classes=True)
    assert found.drift == 0
    assert fault(found, changes_numerics=False) is None


def test_drift_is_relative_to_what_tells_inputs_apart() -> None:
    """A large common part does not hide a change."""
    offset = Y0 + 1000
    assert compare([offset + 0.1], [offset], False).drift == pytest.approx(
        compare([Y0 + 0.1], [Y0], False).drift, rel=1e-3
    )


@pytest.mark.parametrize(
    ("name", "outputs"),
    [
        ("constant", np.broadcast_to(Y0.mean(axis=0), Y0.shape)),
        ("zero", np.zeros_like(Y0)),
        ("exchanged", Y0[::-1]),
        ("not finite", np.where(np.arange(32) == 3, np.float32("nan"), Y0)),
        ("too few columns", Y0[:, :-1]),
    ],
)
def test_outputs_that_are_not_the_models_are_rejected(name: str, outputs: np.ndarray) -> None:
    found = compare([np.ascontiguousarray(outputs)], [Y0], has_classes=True)
    assert found.drift > 10 * MAX_DRIFT_REDUCED, name
    assert fault(found, changes_numerics=True)


def test_a_missing_output_is_rejected() -> None:
    assert compare([], [Y0], False).drift == float("inf")
    assert compare([Y0], [Y0, Y0], False).drift == float("inf")


def test_reduced_precision_is_allowed_what_same_numerics_is_not() -> None:
    rounded = Y0 * (1 + RANDOM.normal(0, 0.01, Y0.shape)).astype(np.float32)
    found = compare([rounded], [Y0], has_classes=True)
    assert 1e-4 < found.drift < MAX_DRIFT_REDUCED
    assert fault(found, changes_numerics=True) is None
    assert "drift" in (fault(found, changes_numerics=False) or "")


def test_top1_counts_inputs_with_a_clear_class_only() -> None:
    found = compare([Y0 * np.float32(1.005)], [Y0], has_classes=True)
    assert 64 < found.top1_inputs < 96
    assert found.top1_agreement == 1.0
    assert found.top1_informative
    few = compare([Y0[:8]], [Y0], has_classes=True)
    assert not few.top1_informative


def test_a_changed_class_is_a_fault_even_with_little_drift() -> None:
    y0 = np.zeros((96, 4096), np.float32)
    y0[np.arange(96), np.arange(96) % 32] = 10.0
    y0[:, 100] = 9.0  # a clear second
    y = y0.copy()
    y[0, np.arange(96)[0] % 32] = 8.5
    found = compare([y], [y0], has_classes=True)
    assert found.top1_agreement is not None
    assert found.top1_agreement < 1
    assert "top-1 differs" in (fault(found, changes_numerics=True) or "")


def test_of_large_outputs_a_sample_is_compared_and_nothing_is_overlooked_that_is_not_finite() -> (
    None
):
    large = RANDOM.standard_normal((4, 3, 5000)).astype(np.float32)
    kept = check.thinned(large)
    assert kept.shape == (4, check.MAX_ELEMENTS)
    np.testing.assert_array_equal(kept, check.thinned(large.copy()))
    wrong = large + np.float32(0.01) * RANDOM.standard_normal(large.shape).astype(np.float32)
    everything = compare([wrong], [large], False).drift
    assert compare([check.thinned(wrong)], [kept], False).drift == pytest.approx(
        everything, rel=0.1
    )
    large[2, 1, 7] = np.inf
    assert compare([check.thinned(large)], [kept], False).drift == float("inf")
    assert check.thinned(Y0) is Y0


def test_inputs_of_several_shapes_are_compared_each_with_its_own() -> None:
    hidden = RANDOM.standard_normal((96, 7)).astype(np.float32)
    found = compare([Y0, hidden, Y0, hidden], [Y0, hidden, Y0, hidden], True, n_shapes=2)
    assert (found.drift, found.n_inputs) == (0.0, 192)
    assert found.top1_agreement == 1.0
    swapped = compare([Y0, hidden, Y0[::-1], hidden], [Y0, hidden, Y0, hidden], True, n_shapes=2)
    assert swapped.drift > 1


def test_a_users_tolerance_and_accuracy_stand_in_the_place_of_the_bound() -> None:
    found = OutputCheck(drift=0.1, n_inputs=8)
    assert fault(found, changes_numerics=True)
    assert fault(found, changes_numerics=True, tolerance=0.2) is None
    assert fault(found, changes_numerics=False, tolerance=0.2), "the same numerics stay the same"
    judged = msgspec.structs.replace(found, accuracy=0.90, default_accuracy=0.91)
    assert fault(judged, True, accuracy_loss=0.02) is None
    assert "allowed is a loss of 0.005" in (fault(judged, True, accuracy_loss=0.005) or "")
    assert fault(msgspec.structs.replace(judged, drift=float("inf")), True, accuracy_loss=1.0)


@needs("torch")
def test_a_conditioned_network_tells_inputs_apart_and_a_zeroed_layer_is_noticed() -> None:
    """On the real resnet50: without conditioning its outputs are almost constant."""
    from tuner.worker.frameworks.torch import Torch

    path = str(MODELS / "resnet50.py")
    source = PythonFile(ModelRef("resnet50", path))
    stated = source.state()

    def outputs(fw: Torch) -> list[np.ndarray]:
        arrays = inputs.generate(stated.inputs, 1000, 8, 0, channels_first=True)
        with fw.work.running():
            return fw.work.outputs(fw.work.program(arrays)())

    fw = Torch()
    fw.build.start({})
    fw.build.seed(0)
    fw.build.adopt(source.build("torch"))
    (raw,) = outputs(fw)
    images = inputs.generate(stated.inputs, 2000, 16, 0, channels_first=True)
    fw.build.condition(images, stated.damped_norms)
    (y0,) = outputs(fw)

    def variety(y: np.ndarray) -> float:
        return float(np.linalg.norm(y - y.mean(axis=0)) / np.linalg.norm(y))

    assert variety(y0) > max(0.3, variety(raw))
    fw.build.model.stage2_block3.conv2.weight.data.zero_()
    (crippled,) = outputs(fw)
    found = check.compare([crippled], [y0], has_classes=True)
    assert found.drift > MAX_DRIFT_REDUCED
