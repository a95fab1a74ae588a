"""Launches that were measured before, on a virtual clock: the bench of a study without processes.

Only the measured process is replaced. A source (benchmarks/tape.py: recorded noise;
benchmarks/deck.py: recorded tables) says what each launch does; everything that asks for launches
is the tool's own, and the clock advances by what they took.
"""

from __future__ import annotations

import random
from typing import Any, Protocol

import msgspec

from benchmarks.described import described_host
from tuner.measurement.bench import Bench
from tuner.measurement.launch import Launch, LaunchFailed
from tuner.measurement.launcher import Launcher
from tuner.measurement.quiet import WAITING_SHARE, Quiet
from tuner.record.configuration import Configuration
from tuner.record.launch import (
    Interference,
    LaunchRecord,
    LaunchRequest,
    OutputCheck,
    Prepared,
    Purpose,
    Slice,
)
from tuner.record.outcome import Ending, Outcome
from tuner.record.protocol import Check
from tuner.record.store import Store
from tuner.record.workload import ModelFacts, Workload
from tuner.space.catalogue import BATCH
from tuner.study.budget import Budget


class PlayedSlice(msgspec.Struct, frozen=True):
    """What a slice gave, and the seconds it took with the discarded call before it."""

    rate: float
    dirty: tuple[str, ...]
    took_s: float


class Played(Protocol):
    """A launch that a source deals: what it costs, how it ends, and its slices one by one."""

    @property
    def fixed_s(self) -> float: ...
    @property
    def check_s(self) -> float: ...
    @property
    def failure(self) -> Ending | None:
        """How it ends where it fails: at its start, or, if it has slices, when it is checked."""

    @property
    def has_slices(self) -> bool: ...
    def slice(self) -> PlayedSlice: ...


class Source(Protocol):
    """Where launches come from. It keeps the clock, which every launch and slice advances."""

    now_s: float

    def launch(self, configuration: Configuration, purpose: Purpose, round_number: int) -> Played:
        """Deal a launch of a configuration."""

    def idle(self) -> tuple[str, ...]:
        """Return what disturbs while nothing of the study runs; empty if nothing does."""


class VirtualLaunch:
    """What a bench needs of a launch."""

    def __init__(self, record: LaunchRecord, source: Source, played: Played) -> None:
        self.record = record
        self._source = source
        self._played = played
        self._slicing_s = 0.0
        self.fixed_s = played.fixed_s
        source.now_s += self.fixed_s
        record.start_up_s = self.fixed_s / 2
        if played.failure is not None and not played.has_slices:
            self._fail(played.failure)
        record.prepared = Prepared(0.1, 0.1, 0.5, True, 0, 0, ())

    def _fail(self, ending: Ending) -> None:
        self.finish(ending)
        raise LaunchFailed(ending)

    @property
    def slice_s(self) -> float:
        return self._slicing_s / max(1, len(self.record.slices))

    def measure(self, index: int, seconds: float) -> Slice:
        found = self._played.slice()
        self._source.now_s += found.took_s
        self._slicing_s += found.took_s
        batch = self.record.request.batch
        taken = Slice(index, batch, 1, batch / found.rate, self._source.now_s,
                      Interference(dirty=found.dirty))  # fmt: skip
        self.record.slices.append(taken)
        return taken

    def check(self, order: Check) -> None:
        self._source.now_s += self._played.check_s
        self.record.check_s = self._played.check_s
        if self._played.failure is not None:
            self._fail(self._played.failure)
        self.record.check = OutputCheck(0.0, order.n_inputs)

    def pause(self) -> None:
        pass

    def resume(self) -> None:
        pass

    def finish(self, ending: Ending | None = None) -> LaunchRecord:
        self.record.ending = ending or Ending(Outcome.MEASURED)
        self.record.slicing_s = self._slicing_s
        self.record.total_s = self.fixed_s + self._slicing_s + self.record.check_s
        return self.record

    def abandon(self) -> None:
        pass


class VirtualLauncher(Launcher):
    """Launches from a source, which need no memory."""

    def __init__(self, source: Source, store: Store, workload: Workload, *rest: Any) -> None:
        host, facts, seed, seconds_left = rest
        super().__init__(store, host, workload, facts, lambda _: None, session=1,
                         draw=random.Random(seed), seconds_left=seconds_left)  # fmt: skip
        self._source = source

    def start(
        self,
        configuration: Configuration,
        purpose: Purpose,
        *,
        pacer_block: int = 0,
        round_number: int = 0,
    ) -> Launch:
        request = LaunchRequest(
            id=self._store.next_launch_id(),
            configuration=configuration,
            batch=int(configuration.get(BATCH) or self._workload.card.reference_batch),
            purpose=purpose,
            pacer_block=pacer_block,
            round=round_number,
        )
        record = self._store.launches[request.id] = LaunchRecord(request)
        played = self._source.launch(configuration, purpose, round_number)
        launch: Any = VirtualLaunch(record, self._source, played)
        self.running.append(launch)
        return launch  # type: ignore[no-any-return]


class VirtualBench(Bench):
    """The bench, on a source's launches and clock; everything else is the tool's own.

    The host is a described one: a study takes the same course wherever it is replayed.
    """

    def __init__(
        self,
        source: Source,
        store: Store,
        workload: Workload,
        facts: ModelFacts,
        budget: Budget,
        seed: int,
    ) -> None:
        host, waiting_s = described_host(), WAITING_SHARE * budget.total_s
        super().__init__(store, host, workload, facts, lambda _: None, session=1, seed=seed,
                         seconds_left=budget.left_s, waiting_s=waiting_s)  # fmt: skip
        self._source = source
        self.launcher = VirtualLauncher(source, store, workload, host, facts, seed, budget.left_s)
        self._quiet = Quiet(
            store, lambda _: None, waiting_s, budget.left_s, self._look, lambda: source.now_s
        )

    def _look(self, seconds: float) -> Interference:
        self._source.now_s += seconds
        return Interference(dirty=self._source.idle())

    def may_profile(self, configuration: Configuration) -> bool:
        """Nothing runs that could be looked into."""
        return False

    def _measure_beside(self, launches: Any) -> None:
        """Nothing was recorded beside a synthetic neighbour."""


class VirtualBudget(Budget):
    """A budget of a source's seconds."""

    def __init__(self, total_s: float, source: Source) -> None:
        super().__init__(total_s)
        self._source = source

    def used_s(self) -> float:
        return self._source.now_s
