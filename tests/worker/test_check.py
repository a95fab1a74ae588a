"""The output check can fail: constant, exchanged and crippled outputs are rejected."""

from collections.abc import Sequence

import msgspec
import numpy as np
import pytest

from tuner.record.numerics import Level
from tuner.record.output_check import (
    MAX_DRIFT_REDUCED,
    MAX_DRIFT_SAME,
    Bounds,
    OutputCheck,
    bounds_of,
)
from tuner.worker import check, kept
from tuner.worker.kept import Array, Kept, keep

RANDOM = np.random.default_rng(0)
Y0 = RANDOM.standard_normal((96, 32)).astype(np.float32)
SAME, REDUCED = bounds_of(Level.SAME), bounds_of(Level.REDUCED)


def compare(
    outputs: Sequence[Array],
    reference: Sequence[Array],
    bounds: Bounds = REDUCED,
    has_classes: bool = False,
    n_shapes: int = 1,
) -> OutputCheck:
    return check.compare(
        [Kept(y) for y in outputs], [Kept(y) for y in reference], bounds, has_classes, n_shapes
    )


def fault(
    outputs: Sequence[Array],
    reference: Sequence[Array],
    bounds: Bounds,
    has_classes: bool = False,
) -> str:
    """Say what is wrong with outputs; empty if nothing is."""
    return check.fault(compare(outputs, reference, bounds, has_classes), bounds) or ""


def noisy(y: Array, share: float) -> Array:
    """Add an error of this share of the spread over inputs."""
    error = RANDOM.standard_normal(y.shape) * share * y.std(axis=0).mean()
    return np.asarray(y + error, y.dtype)


def test_the_same_outputs_pass() -> None:
    assert compare([Y0], [Y0], SAME, has_classes=True).drift == 0
    assert fault([Y0], [Y0], SAME, has_classes=True) == ""


def test_drift_is_relative_to_what_tells_inputs_apart() -> None:
    """A large common part does not hide a change."""
    offset = Y0 + 1000
    assert compare([offset + 0.1], [offset]).drift == pytest.approx(
        compare([Y0 + 0.1], [Y0]).drift, rel=1e-3
    )


@pytest.mark.parametrize(
    ("name", "outputs"),
    [
        ("constant", np.broadcast_to(Y0.mean(axis=0), Y0.shape)),
        ("zero", np.zeros_like(Y0)),
        ("exchanged", Y0[::-1]),
        ("not finite", np.where(np.arange(32) == 3, np.float32("nan"), Y0)),
        ("too few columns", Y0[:, :-1]),
        ("of another type", Y0.astype(np.int64)),
    ],
)
def test_outputs_that_are_not_the_models_are_rejected(name: str, outputs: Array) -> None:
    found = compare([np.ascontiguousarray(outputs)], [Y0], has_classes=True)
    assert found.drift > 10 * MAX_DRIFT_REDUCED, name
    assert check.fault(found, REDUCED)


def test_a_missing_output_is_rejected() -> None:
    assert compare([], [Y0]).drift == float("inf")
    assert compare([Y0], [Y0, Y0]).drift == float("inf")


def test_reduced_precision_is_allowed_what_same_numerics_is_not() -> None:
    rounded = Y0 * (1 + RANDOM.normal(0, 0.01, Y0.shape)).astype(np.float32)
    assert 1e-4 < compare([rounded], [Y0]).drift < MAX_DRIFT_REDUCED
    assert fault([rounded], [Y0], REDUCED, has_classes=True) == ""
    assert "drift" in fault([rounded], [Y0], SAME)


# what a sceptic passed through an earlier check, case by case


SCORES = RANDOM.standard_normal((128, 1000)).astype(np.float32)


def test_top1_is_told_over_all_inputs_and_the_clear_ones_beside() -> None:
    found = compare([noisy(SCORES, 0.02)], [SCORES], has_classes=True)
    assert found.top1_all is not None
    assert 0.93 < found.top1_all < 0.99
    assert found.top1_agreement == 1.0
    assert 10 < found.top1_inputs < 64


def test_the_worse_the_outputs_the_clear_inputs_stay_the_same() -> None:
    found = [compare([noisy(SCORES, share)], [SCORES], REDUCED, True) for share in (0.01, 0.04)]
    assert found[0].top1_inputs == found[1].top1_inputs


def test_too_many_flipped_classes_are_refused_even_if_none_of_them_was_clear() -> None:
    order = np.argsort(SCORES, axis=1)
    ranked = np.sort(SCORES, axis=1)
    close = np.argsort(ranked[:, -1] - ranked[:, -2])
    for n_flipped, is_wrong in ((12, False), (24, True)):
        y, rows = SCORES.copy(), close[:n_flipped, None]
        y[rows, order[close[:n_flipped], -2:]] = ranked[rows, [-1, -2]]
        found = compare([y], [SCORES], has_classes=True)
        assert (found.drift < 1e-3, found.top1_agreement) == (True, 1.0)
        assert ("top-1 differs on 18.8% of 128" in (check.fault(found, REDUCED) or "")) is is_wrong


@pytest.mark.parametrize("n_classes", [2, 10])
def test_few_classes_are_judged_too(n_classes: int) -> None:
    """One clear class of 128 is exchanged for the next, and all else is exact."""
    y0 = RANDOM.standard_normal((128, n_classes)).astype(np.float32)
    order = np.argsort(y0, axis=1)
    ranked = np.sort(y0, axis=1)
    lead = ranked[:, -1] - ranked[:, -2]
    flipped = np.flatnonzero((lead > 0.42) & (lead < 0.6))[0]
    y = y0.copy()
    y[flipped, order[flipped, -2:]] = ranked[flipped, [-1, -2]]
    found = compare([y], [y0], has_classes=True)
    assert found.top1_informative
    assert found.drift < MAX_DRIFT_REDUCED
    assert "inputs with a clear class" in (check.fault(found, REDUCED) or "")


def test_a_changed_class_is_a_fault_even_with_little_drift() -> None:
    y0 = np.zeros((96, 4096), np.float32)
    y0[np.arange(96), np.arange(96) % 32] = 10.0
    y0[:, 100] = 9.0  # a clear second
    y = y0.copy()
    y[0, 0] = 8.5
    assert "top-1 differs on 1.0% of 96 inputs with a clear class" in fault(
        [y], [y0], REDUCED, True
    )


def test_equal_scores_are_either_the_answer() -> None:
    y0 = np.repeat(Y0, 2, axis=1)  # every score twice
    y = y0.copy()
    y[:, 1::2] += np.float32(1e-6)
    assert compare([y], [y0], SAME, True).top1_all == 1.0


IDS = RANDOM.integers(0, 50_000, (32, 20))
LARGE_IDS = 2**40 + RANDOM.integers(0, 9, (32, 20))


@pytest.mark.parametrize(
    ("name", "ids", "y0", "bounds"),
    [
        ("all off by up to 700", IDS + RANDOM.integers(1, 700, IDS.shape), IDS, REDUCED),
        ("one off by 25", IDS + 25 * (np.arange(640).reshape(32, 20) == 77), IDS, SAME),
        ("64-bit ones off by 1", LARGE_IDS + 1, LARGE_IDS, SAME),
        ("one in five changed", np.where(IDS % 5 == 0, 1, IDS), IDS, REDUCED),
        ("a sparse mask that is empty", np.zeros((32, 20), bool), IDS % 50 == 0, REDUCED),
    ],
)
def test_integers_have_no_size(name: str, ids: Array, y0: Array, bounds: Bounds) -> None:
    assert "integers of the outputs differ" in fault([Y0[:32], ids], [Y0[:32], y0], bounds), name


def test_a_few_ids_may_flip_under_reduced_precision_and_none_without() -> None:
    ids = np.where(IDS % 50 == 0, IDS + 1, IDS)
    assert fault([ids], [IDS], REDUCED) == ""
    assert "none may" in fault([ids], [IDS], SAME)


def test_by_chance_two_integers_more_may_flip_however_many_each_input_has() -> None:
    ids = RANDOM.integers(0, 50_000, (32, 100))
    order = RANDOM.permutation(ids.size)
    for n_flipped, is_wrong in ((320, False), (352, True), (512, True)):
        y = ids.copy()
        y.flat[order[:n_flipped]] += 1
        assert ("of the 3200 that" in fault([y], [ids], REDUCED)) is is_wrong, n_flipped
    one_each = np.arange(32)
    for n_flipped, is_wrong in ((5, False), (6, True)):
        y = one_each + 100 * (one_each < n_flipped)
        assert ("of the 32 that" in fault([y], [one_each], REDUCED)) is is_wrong, n_flipped
        both = fault([ids, y], [ids, one_each], REDUCED)
        assert ("of the 32 that" in both) is is_wrong, n_flipped


def _boxes(dead: Array | float | None = None) -> tuple[Array, Array]:
    """Return boxes in pixels with a score each, by the default, and the same with dead scores."""
    boxes = RANDOM.uniform(0, 640, (32, 100, 4))
    scores = RANDOM.uniform(0, 1, (32, 100, 1))
    y0 = np.concatenate([boxes, scores], axis=2).astype(np.float32)
    y = y0.copy()
    y[:, :, 4] = 0.0 if dead is None else dead
    return y, y0


@pytest.mark.parametrize("dead", [0.0, 0.5])
@pytest.mark.parametrize("axes", [(0, 1, 2), (0, 2, 1)])
def test_dead_scores_do_not_hide_behind_boxes(dead: float, axes: tuple[int, ...]) -> None:
    y, y0 = _boxes(dead)
    said = fault([y.transpose(axes)], [y0.transpose(axes)], REDUCED)
    assert said.startswith(f"output 0[{':, :, 4' if axes[2] == 2 else ':, 4, :'}] drifts by"), said
    flat = fault([y.reshape(32, -1)], [y0.reshape(32, -1)], REDUCED)
    assert flat.startswith("output 0[:, "), flat


def test_a_constant_output_does_not_hide_behind_a_healthy_one() -> None:
    y0 = (1e4 + RANDOM.normal(0, 0.005, (32, 8))).astype(np.float32)
    for bounds in (SAME, REDUCED):
        said = fault([Y0[:32], np.full_like(y0, 1e4)], [Y0[:32], y0], bounds)
        assert said.startswith("output 1 no longer changes with the inputs"), said
    one_bit = np.nextafter(y0, np.where(np.arange(8) % 2, np.inf, -np.inf).astype(np.float32))
    assert fault([Y0[:32], one_bit], [Y0[:32], y0], SAME) == ""


def test_an_output_that_rounding_alone_changes_may_stay_constant() -> None:
    """The sum of probabilities, say: by default 1 or the number beside it."""
    y0 = np.where(RANDOM.random((32, 4)) < 0.5, np.float32(1), np.nextafter(np.float32(1), 0))
    ones = np.ones_like(y0)
    assert fault([Y0[:32], ones], [Y0[:32], y0], SAME) == ""
    assert check.blind_spot([Kept(y0)], SAME.default_rounding)


def test_large_outputs_hide_no_wrong_small_ones() -> None:
    """A regression with a heavy tail: most inputs are off by more than a half of their value."""
    random = np.random.default_rng(3)
    y0 = np.exp(random.normal(0, 2, (128, 1))).astype(np.float32)
    y = y0 + random.normal(0, 0.04 * y0.std(), y0.shape).astype(np.float32)
    assert np.mean(np.abs(y - y0) > 0.5 * np.abs(y0)) > 0.5
    assert compare([y], [y0]).drift < MAX_DRIFT_REDUCED
    assert "more than a tenth of the inputs are off" in fault([y], [y0], REDUCED)
    relative = (y0 * (1 + random.normal(0, 0.004, y0.shape))).astype(np.float32)
    assert fault([relative], [y0], REDUCED) == ""


@pytest.mark.parametrize("shape", [(12_288,), (3, 64, 64), (3, 300, 400)])
def test_one_wrong_element_is_seen_wherever_it_is(shape: tuple[int, ...]) -> None:
    """In the last of these only a sample is compared by itself: the sums see the others."""
    y0 = RANDOM.standard_normal((4, *shape)).astype(np.float32)
    honest = y0 * (1 + np.float32(1e-6) * RANDOM.standard_normal(y0.shape).astype(np.float32))
    whole = keep(y0, 7)
    assert (whole.sums is None) == (y0[0].size <= kept.MAX_ELEMENTS)
    assert check.fault(check.compare([keep(honest, 7)], [whole], SAME), SAME) is None
    for element in RANDOM.integers(0, y0[0].size, 20):
        wrong = honest.copy()
        wrong[2].flat[element] += 1
        found = check.compare([keep(wrong, 7)], [whole], SAME)
        assert check.fault(found, SAME), element


def test_of_a_large_output_each_study_compares_other_elements() -> None:
    large = RANDOM.standard_normal((4, 3, 100_000)).astype(np.float32)
    mine, other = keep(large, 1), keep(large, 2)
    assert mine.values[0].size <= kept.MAX_ELEMENTS
    np.testing.assert_array_equal(mine.values, keep(large.copy(), 1).values)
    assert mine.values.shape == other.values.shape
    assert not np.array_equal(mine.values, other.values)
    np.testing.assert_array_equal(  # batches of any size keep the same
        mine.values, kept.joined([keep(large[:3], 1), keep(large[3:], 1)]).values
    )
    wrong = large + np.float32(0.01) * RANDOM.standard_normal(large.shape).astype(np.float32)
    everything = compare([wrong], [large]).drift
    assert check.compare([keep(wrong, 1)], [mine], REDUCED).drift == pytest.approx(
        everything, rel=0.2
    )
    large[2, 1, 7] = np.inf
    assert check.compare([keep(large, 1)], [mine], REDUCED).drift == float("inf")


def test_a_changed_integer_of_a_large_output_is_seen() -> None:
    ids = RANDOM.integers(0, 2**40, (4, 3, 100_000))
    wrong = ids.copy()
    wrong[1, 2, 77] += 1
    for seed in range(3):
        found = check.compare([keep(wrong, seed)], [keep(ids, seed)], SAME)
        assert "none may" in (check.fault(found, SAME) or "")


def test_a_channel_that_one_input_moves_is_not_judged_by_its_rounding() -> None:
    """Units behind a rectifier are 0 for most inputs: bf16 may round the only one away."""
    y0 = Y0.copy()
    y0[:, 3] = 0
    y0[5, 3] = 0.01
    y = noisy(y0, 0.01)
    assert fault([y], [y0], REDUCED) == ""
    y[:, 3] = 5
    assert fault([y], [y0], REDUCED)


@pytest.mark.parametrize("n_moving", [1, 2, 3])
@pytest.mark.parametrize("are_boxes_rare", [False, True])
def test_dead_scores_are_seen_even_if_few_inputs_have_any(
    n_moving: int, are_boxes_rare: bool
) -> None:
    y, y0 = _boxes()
    for each in (y, y0):
        each[n_moving:, :, 0 if are_boxes_rare else 4 :] = 0
    assert ":, 4] drifts by 1" in fault([y], [y0], REDUCED)
    if not are_boxes_rare:
        flat = fault([y.reshape(32, -1)], [y0.reshape(32, -1)], REDUCED)
        assert "with others that few inputs move drifts by 1" in flat
    rounded = (y0 * (1 + RANDOM.normal(0, 2.0**-9, y0.shape))).astype(np.float32)
    assert fault([rounded], [y0], REDUCED) == ""


def test_rounding_may_take_a_few_of_many_rare_units_away() -> None:
    """A rectifier's outputs, each 0 for almost all inputs, of which the smallest are lost."""
    y0 = np.maximum(RANDOM.standard_normal((32, 5000)).astype(np.float32) - 2, 0)
    y = np.maximum(y0 - np.float32(0.02) * (y0 > 0), 0)
    assert ((y0 > 0).sum(axis=0) < 4).any()
    assert ((y == 0) & (y0 > 0)).any()
    assert fault([y], [y0], REDUCED) == ""


@pytest.mark.parametrize("step", [2.0**-8, 2.0**-11])
def test_channels_that_rounding_hides_are_not_refused(step: float) -> None:
    """The left edge of a box in pixels, which the model moves by two: rounded to 8 or 11 bits."""
    y0 = _boxes()[1]
    y0[:, :, 0] = 600 + RANDOM.normal(0, 2, y0.shape[:2])
    exponent = 2.0 ** np.floor(np.log2(np.abs(y0)))
    y = (np.round(y0 / exponent / step) * exponent * step).astype(np.float32)
    assert fault([y], [y0], REDUCED) == ""


def test_a_mask_of_huge_numbers_hides_nothing() -> None:
    y0 = np.concatenate([Y0, np.full((96, 1), np.finfo(np.float32).min)], axis=1)
    y = y0.copy()
    y[:, :32] = 0
    assert check.blind_spot([Kept(y0)], SAME.default_rounding) == ""
    assert "drift by 1" in fault([y], [y0], REDUCED)


def test_inputs_of_several_shapes_are_compared_each_with_its_own() -> None:
    hidden = RANDOM.standard_normal((96, 7)).astype(np.float32)
    both = [Y0, hidden, Y0, hidden]
    found = compare(both, both, REDUCED, True, n_shapes=2)
    assert (found.drift, found.n_inputs) == (0.0, 192)
    assert found.top1_all == found.top1_agreement == 1.0
    swapped = compare([Y0, hidden, Y0[::-1], hidden], both, REDUCED, True, n_shapes=2)
    assert swapped.drift > 1


def test_a_users_tolerance_and_accuracy_stand_in_the_place_of_the_bound() -> None:
    found = OutputCheck(drift=0.1, n_inputs=8)
    assert check.fault(found, REDUCED)
    assert check.fault(found, bounds_of(Level.REDUCED, 0.2)) is None
    assert check.fault(found, bounds_of(Level.SAME, 0.2)), "the same numerics stay the same"
    assert fault([Y0], [Y0], bounds_of(Level.REDUCED, 0.0)) == ""
    judged = msgspec.structs.replace(found, accuracy=0.90, default_accuracy=0.91)
    assert check.fault(judged, REDUCED, accuracy_loss=0.02) is None
    assert "allowed is a loss of 0.005" in (check.fault(judged, REDUCED, accuracy_loss=0.005) or "")
    assert check.fault(msgspec.structs.replace(judged, drift=float("inf")), REDUCED, 1.0)


def test_a_default_that_rounds_more_coarsely_than_fp32_is_held_to_its_own_error() -> None:
    """TF32 on a card: what is compared with is exact, and the default itself must pass."""
    y0 = RANDOM.standard_normal((32, 1000)).astype(np.float32)
    by_default, compiled = noisy(y0, 2e-3), noisy(y0, 2.6e-3)
    own = compare([by_default], [y0], SAME).drift
    assert own > 10 * MAX_DRIFT_SAME
    bounds = bounds_of(Level.SAME, None, own)
    for y in (by_default, compiled):
        assert fault([y], [y0], bounds, True) == ""
    assert "drift" in fault([noisy(y0, 5e-3)], [y0], bounds)
    steps = RANDOM.integers(0, 9, (32, 1))
    flipped = np.where(np.arange(32)[:, None] == 4, steps + 1, steps)
    assert fault([flipped], [steps], bounds) == "", "a class at a tie"
    assert fault([flipped], [steps], SAME)
