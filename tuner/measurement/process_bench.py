"""A bench on this host: its launches are processes."""

from __future__ import annotations

import random
from collections.abc import Callable

from tuner.host.identity import Host
from tuner.launchers.processes import ProcessLauncher
from tuner.measurement.bench import Bench
from tuner.measurement.launch_summary import launch_summary
from tuner.measurement.queueing import with_sustained
from tuner.measurement.quiet import Quiet
from tuner.record.configuration import Configuration
from tuner.record.events import Listener
from tuner.record.launch import LaunchRecord
from tuner.record.objective import Objective
from tuner.record.store import Store
from tuner.record.workload import ModelFacts, Workload

SearchRatio = Callable[[LaunchRecord], float | None]
"""Returns a search's estimate for a launch that has ended, as a ratio to the default."""


def bench_of_processes(
    store: Store,
    host: Host,
    workload: Workload,
    facts: ModelFacts,
    objective: Objective,
    listen: Listener,
    *,
    session: int,
    seed: int,
    seconds_left: Callable[[], float],
    waiting_s: float,
    is_cut: bool = False,
    search_ratio: SearchRatio = lambda _: None,
) -> Bench:
    """Return a bench that measures one workload on this host, in processes.

    waiting_s: the most that all waits for quiet together may take. is_cut: no step of a launch
    outlasts seconds_left; else the one that runs then may.
    """
    draw = random.Random(seed * 1000 + session)

    def on_end(record: LaunchRecord) -> None:
        listen(launch_summary(record, objective, search_ratio(record)))

    launcher = ProcessLauncher(
        store,
        host,
        workload,
        facts,
        objective,
        listen,
        session=session,
        draw=draw,
        seconds_left=seconds_left,
        is_cut=is_cut,
        on_end=on_end,
        complete=with_sustained,
    )
    quiet = Quiet(store, listen, waiting_s, seconds_left)
    stand_in = Configuration.of(facts.answers_with) if facts.answers_with else None
    return Bench(store, workload.card, objective, launcher, quiet, draw, stand_in, seconds_left)
