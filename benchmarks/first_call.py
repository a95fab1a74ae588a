"""How much longer does the first call after a pause take than the others?

    python -m benchmarks.first_call resnet50/tensorflow/16 resnet50/tensorflow/1

MODEL/FRAMEWORK/BATCH. Two launches take turns, so that each finds the caches full of the other's.
Nothing is discarded: each slice is a few calls, the first of which is compared with the others.
Intervals are over slices, of both launches. Run nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import math
import statistics
from typing import Any
from unittest import mock

from benchmarks.company import bench_for, interval
from tuner.launchers import process_launch
from tuner.record.configuration import Configuration
from tuner.record.launch import Purpose

N_SLICES = 12
N_CALLS = 4


def first_over_others(model: str, framework: str, batch: int) -> tuple[float, list[float]]:
    """Return the seconds of a call, and the logarithms of the first's over the others'."""
    ratios, seconds = [], []
    with bench_for(model, framework) as bench:
        arms = [Configuration.of({"workload.batch": batch, "launch.allocator": name})
                for name in ("glibc", "tcmalloc")]  # fmt: skip
        launches = [bench.launcher.start(arm, Purpose.CONFIRM) for arm in arms]
        for each in launches:
            each.pause()
        for _ in range(N_SLICES):
            for each in launches:
                prepared, n_before = each.record.prepared, len(each.record.slices)
                assert prepared is not None, each.record.ending
                wanted_s = (N_CALLS - 0.5) * prepared.steady_call_s
                each.take_slice(bench.store.next_slice_index(), wanted_s)
                each.pause()
                for taken in each.record.slices[n_before:]:
                    first, *others = taken.call_s
                    if not taken.interference.dirty and others:
                        seconds.append(statistics.median(others))
                        ratios.append(math.log(first / statistics.median(others)))
        for each in launches:
            each.finish()
    return statistics.median(seconds), ratios


def undiscarded(index: int, seconds: float, discard: int, **more: Any) -> Any:
    """Return the order for a slice whose first call is timed."""
    from tuner.record.protocol import Measure

    return Measure(index, seconds, 0, **more)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="+", metavar="MODEL/FRAMEWORK/BATCH")
    for case in parser.parse_args().cases:
        model, framework, batch = case.split("/")
        with mock.patch.object(process_launch, "Measure", undiscarded):
            call_s, ratios = first_over_others(model, framework, int(batch))
        point, low, high = interval(ratios)
        print(f"{case:28s} a call takes {1000 * call_s:6.0f} ms; first over others "
              f"{point:.3f} ({low:.3f} - {high:.3f}), {len(ratios)} slices")  # fmt: skip


if __name__ == "__main__":
    main()
