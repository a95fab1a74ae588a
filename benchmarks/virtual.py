"""Launches that were measured before, on a virtual clock: the bench of a study without processes.

Only the measured process is replaced. A source (benchmarks/tape.py: recorded noise;
benchmarks/deck.py: recorded tables) says what each launch does; everything that asks for launches
is the tool's own, and the clock advances by what they took.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import msgspec

from tuner.measurement.bench import Bench
from tuner.measurement.quiet import WAITING_SHARE, Quiet
from tuner.record.configuration import Configuration
from tuner.record.launch import Interference, LaunchRecord, LaunchRequest, Prepared, Purpose, Slice
from tuner.record.load import Offer
from tuner.record.objective import THROUGHPUT
from tuner.record.outcome import Ending, Outcome
from tuner.record.output_check import OutputCheck
from tuner.record.protocol import Check
from tuner.record.serving import LoadgenOrder, Validation
from tuner.record.store import Store
from tuner.record.workload import ModelCard
from tuner.space.knobs_of.launch import BATCH
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
    def slice(self) -> PlayedSlice | Ending:
        """Return the next slice, or how the launch ends in it."""


class Source(Protocol):
    """Where launches come from. It keeps the clock, which every launch and slice advances."""

    now_s: float

    def launch(self, configuration: Configuration, purpose: Purpose, round_number: int) -> Played:
        """Deal a launch of a configuration."""

    def idle(self) -> tuple[str, ...]:
        """Return what disturbs while nothing of the study runs; empty if nothing does."""


class VirtualLaunch:
    """A launch (tuner/launchers/protocol.py), as a source deals it."""

    def __init__(
        self, record: LaunchRecord, source: Source, played: Played, share: float = 1.0
    ) -> None:
        """share: of its preparation's seconds, what it is charged for."""
        self.record = record
        self._source = source
        self._played = played
        self._slicing_s = 0.0
        self._is_gone = False
        self.fixed_s = share * played.fixed_s
        source.now_s += self.fixed_s
        record.start_up_s = self.fixed_s / 2
        if played.failure is not None and not played.has_slices:
            self.finish(_beside_others(played.failure, record.request.n_companions))
        else:
            record.prepared = Prepared(0.1, 0.1, 0.5, True, 0, 0, ())

    @property
    def goes_on(self) -> bool:
        return self.record.ending is None and not self._is_gone

    @property
    def slice_s(self) -> float:
        return self._slicing_s / max(1, len(self.record.slices))

    def take_slice(self, index: int, seconds: float, offer: Offer | None = None) -> None:
        if not self.goes_on:
            return
        found = self._played.slice()
        if isinstance(found, Ending):
            self.finish(found)
            return
        self._source.now_s += found.took_s
        self._slicing_s += found.took_s
        batch = self.record.request.batch
        taken = Slice(index, batch, 1, batch / found.rate, self._source.now_s,
                      Interference(dirty=found.dirty))  # fmt: skip
        self.record.slices.append(taken)

    def take_slice_beside(self, index: int, seconds: float, n_neighbours: int) -> None:
        """Nothing was recorded beside a synthetic neighbour."""

    def check(self, order: Check) -> None:
        if not self.goes_on:
            return
        self._source.now_s += self._played.check_s
        self.record.check_s = self._played.check_s
        if self._played.failure is not None:
            self.finish(self._played.failure)
        else:
            self.record.check = OutputCheck(0.0, order.n_inputs)

    def validate(self, order: LoadgenOrder) -> Validation:
        """Nothing that was recorded answers requests."""
        return Validation(order.rate, None, "recorded launches answer nobody")

    def profile(self, seconds: float) -> None:
        """Nothing runs that could be looked into."""

    def pause(self) -> None:
        """Nothing runs."""

    def finish(self, ending: Ending | None = None) -> LaunchRecord:
        if self.goes_on:
            self.record.ending = ending or Ending(Outcome.MEASURED)
            self.record.slicing_s = self._slicing_s
            self.record.total_s = self.fixed_s + self._slicing_s + self.record.check_s
        return self.record

    def abandon(self) -> None:
        """Let it stay without an ending."""
        self._is_gone = True


def _beside_others(failure: Ending, n_companions: int) -> Ending:
    """Return how a launch ends that fails while others are prepared: that is no outcome."""
    if not n_companions or failure.outcome is Outcome.NOT_APPLICABLE:
        return failure
    return Ending(Outcome.INTERRUPTED, failure.reason)


class Company(msgspec.Struct, frozen=True):
    """How many launches are prepared side by side, and what that saves."""

    most: int = 1
    share: float = 1.0
    """Seconds of preparing so many side by side over those of one after another."""


def add_company(parser: argparse.ArgumentParser) -> None:
    """Have a command ask for a company: how many are prepared together, and what that takes."""
    parser.add_argument("--together", type=int, default=1, help="launches prepared side by side")
    parser.add_argument("--share", type=float, default=1.0,
                        help="of the seconds of preparing so many one after another")  # fmt: skip


class VirtualLauncher:
    """Launches from a source, which need no memory and are not looked into."""

    can_profile = False

    def __init__(
        self, source: Source, store: Store, card: ModelCard, company: Company | None = None
    ) -> None:
        self._source = source
        self._store = store
        self._card = card
        self._company = company or Company()
        self._started: list[VirtualLaunch] = []

    @property
    def most_together(self) -> int:
        return self._company.most

    def n_together(self, configurations: Sequence[Configuration]) -> int:
        several = configurations[: self._company.most]
        return next((i for i in range(1, len(several)) if several[i] in several[:i]), len(several))

    def start_together(
        self,
        configurations: Sequence[Configuration],
        purpose: Purpose,
        *,
        pacer_block: int = 0,
        round_number: int = 0,
    ) -> list[VirtualLaunch]:
        n = len(configurations)
        share = 1 - (1 - self._company.share) * (n - 1) / max(1, self._company.most - 1)
        return [
            self.start(
                c,
                purpose,
                pacer_block=pacer_block,
                round_number=round_number,
                share=share,
                n_companions=n - 1,
            )
            for c in configurations
        ]

    def start(
        self,
        configuration: Configuration,
        purpose: Purpose,
        *,
        pacer_block: int = 0,
        round_number: int = 0,
        share: float = 1.0,
        n_companions: int = 0,
    ) -> VirtualLaunch:
        request = LaunchRequest(
            id=self._store.next_launch_id(),
            configuration=configuration,
            batch=int(configuration.get(BATCH) or self._card.reference_batch),
            purpose=purpose,
            pacer_block=pacer_block,
            round=round_number,
            n_companions=n_companions,
        )
        record = self._store.launches[request.id] = LaunchRecord(request)
        played = self._source.launch(configuration, purpose, round_number)
        launch = VirtualLaunch(record, self._source, played, share)
        self._started.append(launch)
        return launch

    def fit(self, records: Sequence[LaunchRecord]) -> bool:
        return True

    def neighbours(self) -> AbstractContextManager[int]:
        return nullcontext(0)

    def close(self) -> None:
        for launch in self._started:
            launch.abandon()


def bench_on(
    source: Source,
    store: Store,
    card: ModelCard,
    budget: Budget,
    seed: int,
    company: Company | None = None,
) -> Bench:
    """Return a bench on a source's launches and clock; everything else is the tool's own."""

    def look(seconds: float) -> Interference:
        source.now_s += seconds
        return Interference(dirty=source.idle())

    quiet = Quiet(
        store,
        lambda _: None,
        WAITING_SHARE * budget.total_s,
        budget.left_s,
        look,
        lambda: source.now_s,
    )
    launcher = VirtualLauncher(source, store, card, company)
    return Bench(store, card, THROUGHPUT, launcher, quiet, random.Random(seed * 1000 + 1))


class VirtualBudget(Budget):
    """A budget of a source's seconds."""

    def __init__(self, total_s: float, source: Source) -> None:
        super().__init__(total_s)
        self._source = source

    def used_s(self) -> float:
        return self._source.now_s
