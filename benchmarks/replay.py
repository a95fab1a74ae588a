"""Whole studies on recorded noise: the real search, race and confirmation, on a virtual clock.

Only the measured process is replaced (tuner/launchers/recorded.py). A recording
(benchmarks/record_noise.py) holds rounds of identical launches that took turns. A replayed launch
takes the slices of a recorded one, times what its settings are said to be worth; launches that are
measured side by side take recorded ones that were, so that drift, bursts and what launches differ
by are those of the host. Flagged slices stay flagged. The clock advances by what each launch and
slice took.

Easier than reality in this: no launch fails, every setting costs and scatters alike, and what
disturbs one disturbs all alike. The recording holds a few rounds, which all replays share.
"""

from __future__ import annotations

import math
import os
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.described import described_host
from benchmarks.recorded_bench import recorded_bench
from benchmarks.tape import RecordedLaunch, Recording, Tape
from tuner.analysis.winners import recommended_class
from tuner.app.plan import Plan, plan
from tuner.app.request import Request
from tuner.launchers.clock import VirtualClock
from tuner.launchers.recorded import Played, PlayedSlice, SideBySide
from tuner.measurement.steps import SLICE_S
from tuner.record.configuration import Configuration
from tuner.record.journal import EarlyRound
from tuner.record.launch import Purpose
from tuner.record.outcome import Ending
from tuner.record.store import Store
from tuner.record.winner_class import WinnerClass
from tuner.search.search import Search
from tuner.space.catalogue import is_default, narrowest_class
from tuner.study.baselines import measure_baselines
from tuner.study.confirm import confirm, make_claims
from tuner.study.costs import Budget, Costs
from tuner.study.evaluation import Evaluation
from tuner.study.explore import explore
from tuner.study.minimise import minimise
from tuner.study.planner import Planner
from tuner.study.race import race
from tuner.study.study import Study

Effects = dict[str, float]
"""What settings are worth in truth: "KNOB=VALUE" to the logarithm of the speedup."""
PHASES = (measure_baselines, explore, race, minimise, confirm)
"""What a replayed study goes through, in this order."""
_CHECK_S = 0.5
_DEFAULT_BYTES = 64 << 30
"""Memory of the default, where settings raise it: 10 % more is above the floor of the described
host, below which nothing is costly."""


class Raised(msgspec.Struct, frozen=True):
    """What settings raise besides the speed: "KNOB=VALUE" to a number."""

    memory: Mapping[str, float]
    """The logarithm of the ratio by which each raises memory."""
    seconds: Mapping[str, float]
    """By how much longer each makes a launch take to prepare."""

    def of_memory(self, configuration: Configuration) -> int:
        """Return the bytes of a configuration."""
        return round(_DEFAULT_BYTES * math.exp(_sum(self.memory, configuration)))


def _sum(worth: Mapping[str, float], configuration: Configuration) -> float:
    return sum(worth.get(f"{k}={v}", 0.0) for k, v in configuration.settings)


class _Playing:
    """A recorded launch, times what its settings are worth; without a recording the pacer."""

    check_s = _CHECK_S
    failure: Ending | None = None
    has_slices = True

    def __init__(
        self,
        tape: Tape,
        source: RecordedLaunch | None,
        effect: float,
        *,
        is_confirming: bool,
        longer_s: float = 0.0,
        memory_bytes: int = 0,
    ) -> None:
        self.fixed_s = longer_s + (source.fixed_s if source else 5.0)
        self.memory_bytes = memory_bytes
        self._tape = tape
        self._source = source
        self._factor = math.exp(effect)
        self._is_confirming = is_confirming
        self._next = 0 if is_confirming else tape.pass_

    def slice(self) -> PlayedSlice:
        if self._source is None:
            found, took_s = self._tape.pacer_slice(), 2 * SLICE_S
        else:
            found, took_s = self._source.slice(self._next), self._source.slice_s
            self._next += 1
            if not self._is_confirming:
                self._tape.pass_ += 1
        return PlayedSlice(found.rate * self._factor, found.dirty, took_s)


class TapeSource:
    """Launches from a tape: those side by side from ones that were, others as the time is."""

    def __init__(self, tape: Tape, effects: Effects, raised: Raised | None = None) -> None:
        self._tape = tape
        self._effects = effects
        self._raised = raised

    @property
    def clock(self) -> VirtualClock:
        return self._tape.clock

    def launch(self, configuration: Configuration, purpose: Purpose, round_number: int) -> Played:
        source = None
        if purpose is Purpose.CONFIRM:
            source = self._tape.side_by_side(round_number)
        elif purpose is not Purpose.PACER:
            self._tape.seek()
            source = self._tape.any_launch()
        raised = self._raised
        return _Playing(
            self._tape,
            source,
            _sum(self._effects, configuration),
            is_confirming=purpose is Purpose.CONFIRM,
            longer_s=_sum(raised.seconds, configuration) if raised else 0.0,
            memory_bytes=raised.of_memory(configuration) if raised else 0,
        )

    def idle(self) -> tuple[str, ...]:
        self._tape.pass_ += 1
        return self._tape.pacer_slice().dirty


class Claimed(msgspec.Struct, frozen=True):
    """What a replayed study says of a class, beside what is true of that configuration."""

    verdict: str
    n_rounds: int
    truth: float
    point: float | None
    low: float | None
    high: float | None


class Replayed(msgspec.Struct, frozen=True):
    """What came of one replayed study."""

    claims: dict[str, Claimed]
    recommended: str
    """The class that would ship."""
    best_trial: float
    """The best trial's rate over the default's trial, each as its one launch gave it: what
    study.best_trial would be said to gain."""
    best_trial_truth: float
    n_trials: int
    seconds: float
    early: list[Claimed]
    """What was published before the search had ended: one verdict, or none."""


def fake_plan() -> Plan:
    """Return the plan whose space the replays search: that of the fake, at one batch size."""
    return plan(Request(model="fake", hardware="fake", batch=4), described_host())[0]


def replay(
    plan: Plan, recording: Recording, effects: Effects, budget_s: float, seed: int
) -> Replayed:
    """Carry out one study on a recording."""
    with study_of(plan, recording, effects, budget_s, seed) as study:
        early: list[Claimed] = []

        def tell() -> None:
            arm = study.store.all(EarlyRound)[-1].arm
            early.append(_claimed(make_claims(study).claim_of(narrowest_class(arm), arm), effects))

        Planner(study, tell).run(PHASES)
        claims = make_claims(study)
        default, best = _single_launches(study)
        return Replayed(
            claims={
                str(winner_class): _claimed(claims.claim(winner_class), effects)
                for winner_class in WinnerClass
            },
            recommended=str(recommended_class(claims, "both")),
            best_trial=best[1] / default,
            best_trial_truth=_truth(best[0], effects),
            n_trials=len(study.evaluation.trials()),
            seconds=study.budget.used_s(),
            early=early,
        )


@contextmanager
def study_of(
    plan: Plan,
    recording: Recording,
    effects: Effects,
    budget_s: float,
    seed: int,
    side_by_side: SideBySide | None = None,
    raised: Raised | None = None,
) -> Iterator[Study]:
    """Assemble a study on a recording. raised: what settings cost; None if nothing."""
    source = TapeSource(Tape(recording, seed), effects, raised)
    budget = Budget(budget_s, clock=source.clock)
    shared = Path("/dev/shm")
    where = shared if os.access(shared, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=where) as folder, Store(Path(folder) / "study") as store:
        store.used_s = budget.used_s
        reference = plan.workload.card.reference_batch
        evaluation = Evaluation(store, reference, (reference,))
        costs = Costs(store, evaluation)
        bench = recorded_bench(source, store, plan.workload.card, budget, seed, side_by_side)
        search = Search(
            store.folder / "study.db",
            plan.space,
            evaluation.tried,
            seed,
            sd=evaluation.score_sd,
            cost_s=costs.own_s,
        )
        yield Study(store, plan.space, plan.baselines, bench, evaluation, costs, search, budget,
                    lambda _: None)  # fmt: skip


def _single_launches(study: Study) -> tuple[float, tuple[Configuration, float]]:
    """Return the default's rate and the best trial with its own, each from the trial's launch."""
    rates = {
        trial.configuration: statistics.median(s.rate for s in record.slices)
        for trial in study.evaluation.trials()
        for record in [study.store.launches[trial.launches[0]]]
    }
    others = {c: rate for c, rate in rates.items() if not is_default(c)}
    best = max(others, key=others.__getitem__)
    return rates[Configuration()], (best, others[best])


def _truth(configuration: Configuration, effects: Effects) -> float:
    return math.exp(_sum(effects, configuration))


def _claimed(claim: Any, effects: Effects) -> Claimed:
    interval = claim.speedup
    return Claimed(
        verdict=claim.verdict,
        n_rounds=claim.n_rounds,
        truth=_truth(claim.configuration, effects),
        point=interval.point if interval else None,
        low=interval.low if interval else None,
        high=interval.high if interval else None,
    )


def _one(job: tuple[Plan, Recording, Effects, float, int]) -> Replayed:
    return replay(*job)


def replay_many(
    recordings: Sequence[Recording],
    effects: Effects,
    n_studies: int,
    budget_s: float,
    *,
    first_seed: int = 0,
    told: Callable[[int], None] = lambda _: None,
) -> list[tuple[Recording, Replayed]]:
    """Carry out so many studies, the recordings in turn, on all allowed CPUs."""
    plan = fake_plan()
    chosen = [recordings[i % len(recordings)] for i in range(n_studies)]
    jobs = [(plan, r, effects, budget_s, first_seed + i) for i, r in enumerate(chosen)]
    found = []
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for i, result in enumerate(pool.map(_one, jobs, chunksize=1)):
            found.append((chosen[i], result))
            told(i + 1)
    return found
