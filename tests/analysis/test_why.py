"""Planted causes of a difference in speed are named, and none where there is none."""

from __future__ import annotations

import itertools
import math

import msgspec
import numpy as np
import pytest

from tuner.analysis.why import why
from tuner.output.why import findings, heads, in_short, limit_of_default, what_is_left
from tuner.output.why import rows as rows_of
from tuner.record.configuration import Configuration
from tuner.record.launch import (
    Interference,
    LaunchRecord,
    LaunchRequest,
    Operator,
    Profiled,
    Purpose,
    Slice,
)
from tuner.record.why import (
    HostBest,
    ModelWork,
    OperatorClass,
    OperatorWork,
    ProfiledRound,
    ScalingRound,
    Seen,
    Why,
)

CALL_S = {"aten::mkldnn_convolution": 0.05, "aten::addmm": 0.02, "aten::relu_": 0.02,
          "aten::copy_": 0.01, "aten::embedding": 0.005}  # fmt: skip
OVERHEAD_S = 0.005
SLOWED = 1.3
"""Factor by which a profiler lengthens a call."""
CLASSES = dict(
    zip(
        CALL_S,
        (
            OperatorClass.CONVOLUTION,
            OperatorClass.PRODUCT,
            OperatorClass.ELEMENTWISE,
            OperatorClass.COPY,
            OperatorClass.LOOKUP,
        ),
        strict=True,
    )
)


def launch(random: np.random.Generator, factors: dict[str, float], drift: float) -> LaunchRecord:
    """Return a launch whose operators take their time times a factor; 2 % noise each."""
    times = {
        name: seconds * factors.get(name, 1.0) * math.exp(drift + 0.02 * random.standard_normal())
        for name, seconds in CALL_S.items()
    }
    call_s = sum(times.values()) + OVERHEAD_S * math.exp(drift)
    record = LaunchRecord(LaunchRequest(1, Configuration(), 1, Purpose.EXPLAIN))
    for index in range(3):
        seconds = call_s * math.exp(0.01 * random.standard_normal())
        record.slices.append(Slice(index + 1, 1, 10, 10 * seconds, 0.0))
    operators = tuple(Operator(name, SLOWED * seconds, 1.0) for name, seconds in times.items())
    record.profile = Profiled(operators, SLOWED * call_s, 5, "a profiler", 1.0)
    return record


def rounds(seed: int, factors: dict[str, float], n: int = 4) -> list[ProfiledRound]:
    random = np.random.default_rng(seed)
    drifts = 0.1 * random.standard_normal(n)
    found = []
    for drift in drifts:
        default, tuned = (
            Seen(launch(random, each, drift), launch(random, each, drift)) for each in ({}, factors)
        )
        found.append(ProfiledRound(default, tuned))
    return found


def explained(seed: int, factors: dict[str, float]) -> Why:
    found = why(rounds(seed, factors), {})
    assert found is not None
    return found


def test_a_planted_cause_is_named_first() -> None:
    right = 0
    for seed in range(20):
        name = list(CALL_S)[seed % len(CALL_S)]
        found = explained(seed, {name: 0.4})
        named = findings(found)
        right += bool(named) and named[0].startswith(CLASSES[name])
    assert right >= 19


def test_nothing_is_named_where_nothing_differs() -> None:
    unnamed = [explained(seed, {}) for seed in range(100, 120)]
    assert sum(bool(findings(found)) for found in unnamed) <= 1  # at 95 % confidence
    assert "do not surely differ" in in_short(unnamed[0])


def test_shares_are_of_the_profiled_call_and_seconds_of_the_unprofiled() -> None:
    found = explained(1, {"aten::mkldnn_convolution": 0.5})
    convolution = next(c for c in found.classes if c.name == OperatorClass.CONVOLUTION)
    assert convolution.default_s == pytest.approx(0.05, rel=0.15)
    assert convolution.saved_s.low < 0.025 < convolution.saved_s.high
    assert found.default_s == pytest.approx(sum(CALL_S.values()) + OVERHEAD_S, rel=0.15)
    assert found.accounted == pytest.approx(1.0, abs=0.1)
    overhead = next(c for c in found.classes if c.name == OperatorClass.OVERHEAD)
    assert overhead.default_s == pytest.approx(OVERHEAD_S, rel=0.3)


def test_threads_that_sum_up_to_more_than_a_call_leave_no_overhead() -> None:
    both = rounds(10, {"aten::mkldnn_convolution": 0.5})
    for seen in itertools.chain.from_iterable(each[:2] for each in both):
        profile = seen.profiled.profile
        assert profile is not None
        seen.profiled.profile = msgspec.structs.replace(profile, call_s=profile.call_s / 2)
    found = why(both, {})
    assert found is not None
    assert OperatorClass.OVERHEAD not in {each.name for each in found.classes}
    assert sum(each.default_s for each in found.classes) == pytest.approx(found.default_s)


def test_a_class_that_became_slower_is_told_as_a_loss() -> None:
    found = explained(2, {"aten::mkldnn_convolution": 0.3, "aten::copy_": 2.5})
    text = in_short(found)
    assert text.startswith("convolution: ")
    (lost,) = [part for part in text.split("; ") if part.startswith("reorders and copies: ")]
    assert lost.endswith("of the gain are lost")


def test_what_the_profile_does_not_show_is_said() -> None:
    both = rounds(3, {})
    for each in both:  # faster without a profiler alone
        slices = each.tuned.timed.slices
        slices[:] = [Slice(s.index, 1, s.calls, 0.7 * s.seconds, 0.0) for s in slices]
    found = why(both, {})
    assert found is not None
    assert found.tuned_s < 0.8 * found.default_s
    assert found.profiled.low < 1 < found.profiled.high
    assert findings(found) == []
    assert in_short(found).startswith("the profiles do not explain the difference: 1.4")


def test_two_rounds_are_too_few() -> None:
    assert why(rounds(1, {}, n=2), {}) is None
    incomplete = rounds(1, {})
    for each in incomplete[:2]:
        each.default.profiled.profile = None
    assert why(incomplete, {}) is None


BEST = HostBest({"fp32": 4e10, "bf16": 8e10}, {"fp32": "mm", "bf16": "mm"})
MULTIPLYING_S = CALL_S["aten::mkldnn_convolution"] + CALL_S["aten::addmm"]


def test_products_are_compared_with_the_best_of_the_host() -> None:
    macs = round(MULTIPLYING_S * 1e10)  # 2e10 operations per second: half of the best in fp32
    found = why(rounds(4, {"aten::mkldnn_convolution": 0.4}), {}, macs=macs, best=BEST)
    assert found is not None
    assert found.efficiency is not None
    assert found.efficiency.dtype == "bf16"
    assert found.efficiency.default == pytest.approx(0.5, rel=0.1)
    tuned_s = 0.4 * CALL_S["aten::mkldnn_convolution"] + CALL_S["aten::addmm"]
    assert found.efficiency.tuned == pytest.approx(0.25 * MULTIPLYING_S / tuned_s, rel=0.1)
    assert any("Products run at" in sentence for sentence in what_is_left(found))


@pytest.mark.parametrize(("macs", "best"), [(None, BEST), (0, BEST), (10**6, None)])
def test_without_counts_there_is_no_efficiency(macs: int | None, best: HostBest | None) -> None:
    found = why(rounds(5, {}), {}, macs=macs, best=best)
    assert found is not None
    assert found.efficiency is None


def test_kernels_of_unknown_class_may_multiply_too() -> None:
    both = rounds(6, {})
    for each in both:
        profile = each.tuned.profiled.profile
        assert profile is not None
        fused = (*profile.operators, Operator("fusion", 0.02, 1.0))
        each.tuned.profiled.profile = msgspec.structs.replace(profile, operators=fused)
    found = why(both, {}, macs=10**6, best=BEST)
    assert found is not None
    assert found.efficiency is None


STREAMED = HostBest(BEST.flops, BEST.fastest, 1e10, "copy")
WORK = ModelWork(
    (
        # half of the fastest product's rate, and a tenth of the fastest stream's
        OperatorWork("aten::convolution", 0.5 * 0.05 * 4e10, 0.05 * 1e9, 0.0),
        # limited by its parameters: 0.015 s of 0.02 s at a batch of 1
        OperatorWork("aten::addmm", 1e6, 0.0, 0.015 * 1e10),
        OperatorWork("aten::relu_", 0.0, 1e6, 0.0),
    ),
    "a counter",
)


def at_the_roof(work: ModelWork, factors: dict[str, float]) -> Why:
    found = why(rounds(11, factors), {"torch.dtype": "bf16"}, work=work, best=STREAMED)
    assert found is not None
    return found


def test_products_are_limited_by_arithmetic_or_by_memory() -> None:
    found = at_the_roof(WORK, {"aten::mkldnn_convolution": 0.4})
    roof = found.roofline
    assert roof is not None
    assert [each.name for each in roof.points] == [
        None, OperatorClass.CONVOLUTION, OperatorClass.PRODUCT,
    ]  # fmt: skip
    _, convolution, product = roof.points
    default = limit_of_default(convolution, STREAMED)
    assert default.by == "arithmetic"
    assert default.share == pytest.approx(0.5, rel=0.1)
    default = limit_of_default(product, STREAMED)
    assert default.by == "traffic with memory"
    assert default.share == pytest.approx(0.75, rel=0.1)
    # bf16: twice the rate, half the bytes
    assert roof.attainable_s == pytest.approx(0.25 * 0.05 + 0.5 * 0.015, rel=1e-6)
    by_onednn = why(rounds(11, {}), {"torch.fp32_precision": "bf16"}, work=WORK, best=STREAMED)
    assert by_onednn is not None
    assert by_onednn.roofline is not None  # tensors stay as they are
    assert by_onednn.roofline.attainable_s == pytest.approx(0.25 * 0.05 + 0.015, rel=1e-6)
    assert roof.left is OperatorClass.ELEMENTWISE
    assert roof.left_s == pytest.approx(CALL_S["aten::relu_"], rel=0.15)
    said = " ".join(what_is_left(found))
    assert "of the attainable speed is reached, and most of the rest (" in said
    assert "Convolution runs at " in said
    assert "Matrix product runs at " in said


def test_parameters_are_spread_over_a_batch() -> None:
    both = rounds(12, {})
    for each in both:
        for seen in (each.default, each.tuned):
            seen.timed.request = msgspec.structs.replace(seen.timed.request, batch=4)
    found = why(both, {}, work=WORK, best=STREAMED)
    assert found is not None
    assert found.roofline is not None
    product = next(e for e in found.roofline.points if e.name is OperatorClass.PRODUCT)
    assert product.default_bytes == pytest.approx(0.015 * 1e10 / 4)


@pytest.mark.parametrize(
    ("work", "best"),
    [
        (None, STREAMED),
        (WORK, BEST),
        (ModelWork((), "a counter"), STREAMED),
        (ModelWork((OperatorWork("own::layer", None, 1.0, 0.0),), "a counter"), STREAMED),
    ],
)
def test_without_all_work_there_is_no_roofline(work: ModelWork | None, best: HostBest) -> None:
    found = why(rounds(5, {}), {}, work=work, best=best)
    assert found is not None
    assert found.roofline is None


def test_kernels_of_unknown_class_leave_the_point_of_the_whole_model() -> None:
    both = rounds(13, {})
    for each in both:
        profile = each.tuned.profiled.profile
        assert profile is not None
        fused = (*profile.operators, Operator("fusion", 0.2, 1.0))
        each.tuned.profiled.profile = msgspec.structs.replace(profile, operators=fused)
    found = why(both, {}, work=WORK, best=STREAMED)
    assert found is not None
    assert found.roofline is not None
    assert [each.name for each in found.roofline.points] == [None]
    assert found.roofline.left is OperatorClass.FUSED


def test_nothing_is_said_of_what_is_faster_than_the_roof() -> None:
    slow = HostBest({"fp32": 1e9}, {"fp32": "mm"}, 1e8, "copy")
    found = why(rounds(14, {}), {}, work=WORK, best=slow)
    assert found is not None
    assert found.roofline is not None
    assert "attainable" not in " ".join(what_is_left(found))
    assert " runs at " not in " ".join(what_is_left(found))


def test_the_best_baseline_is_shown_beside_both_if_enough_rounds_hold_it() -> None:
    packed = {"torch.memory_format": "channels_last"}
    random = np.random.default_rng(15)
    both = rounds(15, {"aten::mkldnn_convolution": 0.4}, n=6)
    with_it = [
        each._replace(baseline=Seen(*2 * (launch(random, {"aten::copy_": 2.0}, 0.0),)))
        for each in both[3:]
    ]
    settings = {"torch.compile.mode": "default"}
    found = why([*both[:3], *with_it], settings, baseline=("torch_guide", packed))
    assert found is not None
    assert found.baseline is not None
    assert found.baseline.name == "torch_guide"
    assert found.baseline.configuration == packed
    assert sum(found.baseline.classes.values()) == pytest.approx(found.baseline.item_s)
    copies = found.baseline.classes[OperatorClass.COPY]
    default = next(each.default_s for each in found.classes if each.name is OperatorClass.COPY)
    assert copies == pytest.approx(2 * default, rel=0.2)
    assert heads(found)[-1] == "torch_guide"
    assert all(len(row) == len(heads(found)) for row in rows_of(found))
    found = why([*both[:3], *with_it[:2]], settings, baseline=("torch_guide", packed))
    assert found is not None
    assert found.baseline is None


def scaled(factor: float, seed: int) -> list[ScalingRound]:
    """Return launches whose calls take longer on one core, and at half the batch."""
    random = np.random.default_rng(seed)
    slower = dict.fromkeys(CALL_S, factor)
    return [
        ScalingRound(*(launch(random, each, drift) for each in ({}, slower, slower)))
        for drift in 0.1 * random.standard_normal(4)
    ]


def test_one_core_and_half_the_batch_are_compared_with_the_whole() -> None:
    found = why(rounds(7, {}), {}, scaling=scaled(1.3, 7), n_cores=2)
    assert found is not None
    assert found.on_all_cores is not None
    assert found.at_half_batch is not None
    assert found.on_all_cores.low < 1.28 < found.on_all_cores.high
    said = " ".join(what_is_left(found))
    assert "2 cores are 1." in said
    assert "one thread may do the rest" in said


def test_a_gain_of_more_than_the_cores_is_no_gain_of_arithmetic_alone() -> None:
    found = why(rounds(7, {}), {}, scaling=scaled(3.0, 7), n_cores=2)
    assert found is not None
    assert found.on_all_cores is not None
    assert found.on_all_cores.low > 2
    assert "one alone lacks more than arithmetic" in " ".join(what_is_left(found))


def test_how_busy_the_cpus_are_is_said_if_every_slice_tells() -> None:
    both = rounds(9, {})
    for each in both:
        for seen, own in zip(each[:2], (0.6, 0.9), strict=True):
            slices = seen.timed.slices
            slices[:] = [
                msgspec.structs.replace(s, interference=Interference(own=own)) for s in slices
            ]
    found = why(both, {"torch.dtype": "bf16"})
    assert found is not None
    assert found.busy == pytest.approx((0.6, 0.9))
    said = " ".join(what_is_left(found))
    assert "Its processes use their CPUs for 90 % of the time, the default's for 60 %" in said
    both[0].default.timed.slices[0] = Slice(1, 1, 1, 1.0, 0.0)
    found = why(both, {})
    assert found is not None
    assert found.busy is None


def test_what_was_measured_in_two_rounds_is_not_said() -> None:
    few = [
        each if index < 2 else each._replace(one_core=None, half_batch=None)
        for index, each in enumerate(scaled(1.3, 8))
    ]
    found = why(rounds(8, {}), {}, scaling=few, n_cores=2)
    assert found is not None
    assert found.on_all_cores is None
    assert found.at_half_batch is None
    assert "cores" not in " ".join(what_is_left(found))
