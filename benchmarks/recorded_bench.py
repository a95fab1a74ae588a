"""A bench on launches that are played again (tuner/launchers/recorded.py), for replayed studies."""

from __future__ import annotations

import argparse

from benchmarks.described import described_host
from tuner.launchers.recorded import RecordedTestbed, SideBySide, Source
from tuner.measurement.bench import Bench, bench_on
from tuner.measurement.interference_gate import WAITING_SHARE
from tuner.record.objective import THROUGHPUT
from tuner.record.store import Store
from tuner.record.workload import ModelCard, ModelFacts, ModelRef, Workload
from tuner.study.costs import Budget


def add_side_by_side(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how many launches are prepared side by side, and what that takes."""
    parser.add_argument("--together", type=int, default=1, help="launches prepared side by side")
    parser.add_argument("--share", type=float, default=1.0,
                        help="of the seconds of preparing so many one after another")  # fmt: skip


def recorded_bench(
    source: Source,
    store: Store,
    card: ModelCard,
    budget: Budget,
    seed: int,
    side_by_side: SideBySide | None = None,
) -> Bench:
    """Return a bench on a source's launches and clock; everything else is the tool's own."""
    facts = ModelFacts(0, (), {}, {}, {}, 0.0, "replayed", 0.0, 0.0, 0.0)
    return bench_on(
        RecordedTestbed(source, card, facts, side_by_side),
        store,
        described_host(),
        Workload(ModelRef(card.name, ""), "fake", "offline", card),
        facts,
        THROUGHPUT,
        lambda _: None,
        session=1,
        seed=seed,
        seconds_left=budget.left_s,
        waiting_s=WAITING_SHARE * budget.total_s,
    )
