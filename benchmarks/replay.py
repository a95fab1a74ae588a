"""Whole studies on recorded noise: the real search, race and confirmation, on a virtual clock.

Only the measured process is replaced. A recording (benchmarks/record_noise.py) holds rounds of
identical launches that took turns. A replayed launch takes the slices of a recorded one, times what
its settings are said to be worth; launches that are measured side by side take recorded ones that
were, so that drift, bursts and what launches differ by are those of the host. Flagged slices stay
flagged. The clock advances by what each launch and slice took.

Easier than reality in this: no launch fails, every setting costs and scatters alike, and what
disturbs one disturbs all alike. The recording holds a few rounds, which all replays share.
"""

from __future__ import annotations

import math
import os
import random
import statistics
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.tape import RecordedLaunch, Recording, Tape
from tuner.host.identity import probe
from tuner.measurement.bench import Bench
from tuner.measurement.launch import Launch
from tuner.measurement.launcher import Launcher
from tuner.measurement.quiet import WAITING_SHARE, Quiet
from tuner.measurement.replication import Scatter
from tuner.output.assemble import recommended_class
from tuner.plan import Plan, Request, plan
from tuner.record.configuration import Configuration
from tuner.record.journal import WinnerClass
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
from tuner.search.trials import Trials
from tuner.space.catalogue import BATCH
from tuner.study.baselines import measure_baselines
from tuner.study.budget import Budget
from tuner.study.confirm import confirm, make_claims
from tuner.study.explore import explore
from tuner.study.ledger import Ledger, is_default
from tuner.study.minimise import minimise
from tuner.study.race import race
from tuner.study.study import Study

Effects = dict[str, float]
"""What settings are worth in truth: "KNOB=VALUE" to the logarithm of the speedup."""
_CHECK_S = 0.5


class ReplayedLaunch:
    """What a bench needs of a launch, from a tape."""

    def __init__(
        self, record: LaunchRecord, tape: Tape, source: RecordedLaunch | None, effect: float
    ) -> None:
        self.record = record
        self._tape = tape
        self._source = source
        self._effect = effect
        self._next = 0 if record.request.purpose is Purpose.CONFIRM else tape.pass_
        self.fixed_s = source.fixed_s if source else 5.0
        self._slicing_s = 0.0
        tape.now_s += self.fixed_s
        record.start_up_s = self.fixed_s / 2
        record.prepared = Prepared(0.1, 0.1, 0.5, True, 0, 0, ())

    @property
    def slice_s(self) -> float:
        return self._slicing_s / max(1, len(self.record.slices))

    def measure(self, index: int, seconds: float) -> Slice:
        if self._source is None:
            found, took_s = self._tape.pacer_slice(), 2 * seconds
        else:
            found, took_s = self._source.slice(self._next), self._source.slice_s
            self._next += 1
            if self.record.request.purpose is not Purpose.CONFIRM:
                self._tape.pass_ += 1
        self._tape.now_s += took_s
        self._slicing_s += took_s
        batch = self.record.request.batch
        rate = found.rate * math.exp(self._effect)
        taken = Slice(index, batch, 1, batch / rate, self._tape.now_s,
                      Interference(dirty=found.dirty))  # fmt: skip
        self.record.slices.append(taken)
        return taken

    def check(self, order: Check) -> None:
        self.record.check, self.record.check_s = OutputCheck(0.0, order.n_inputs), _CHECK_S
        self._tape.now_s += _CHECK_S

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


class ReplayLauncher(Launcher):
    """Launches from a tape, which need no memory."""

    def __init__(self, tape: Tape, effects: Effects, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._tape = tape
        self._effects = effects

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
        source = None
        if purpose is Purpose.CONFIRM:
            source = self._tape.side_by_side(round_number)
        elif purpose is not Purpose.PACER:
            self._tape.seek()
            source = self._tape.any_launch()
        effect = sum(self._effects.get(f"{k}={v}", 0.0) for k, v in configuration.settings)
        launch: Any = ReplayedLaunch(record, self._tape, source, effect)
        self.running.append(launch)
        return launch  # type: ignore[no-any-return]

    def fit(self, records: list[LaunchRecord]) -> bool:
        return True


class ReplayBench(Bench):
    """The bench, on a tape's launches and clock; everything else is the tool's own."""

    def __init__(
        self, tape: Tape, effects: Effects, store: Store, plan: Plan, budget: Budget, seed: int
    ) -> None:
        host, waiting_s = probe(), WAITING_SHARE * budget.total_s
        super().__init__(store, host, plan.workload, plan.facts, lambda _: None, session=1,
                         seed=seed, seconds_left=budget.left_s, waiting_s=waiting_s)  # fmt: skip
        self._tape = tape
        self.launcher = ReplayLauncher(
            tape, effects, store, host, plan.workload, plan.facts, lambda _: None, session=1,
            draw=random.Random(seed), seconds_left=budget.left_s,
        )  # fmt: skip
        self._quiet = Quiet(
            store, lambda _: None, waiting_s, budget.left_s, self._look, lambda: tape.now_s
        )

    def _look(self, seconds: float) -> Interference:
        self._tape.now_s += seconds
        self._tape.pass_ += 1
        return Interference(dirty=self._tape.pacer_slice().dirty)

    def measure_round(
        self,
        arms: list[Configuration],
        number: int,
        purpose: Purpose,
        *,
        noise: Scatter,
        seconds: float = math.inf,
        beside_neighbour: bool = False,
    ) -> list[LaunchRecord]:
        # a recording holds nothing beside a synthetic neighbour
        return super().measure_round(arms, number, purpose, noise=noise, seconds=seconds)


class _VirtualBudget(Budget):
    def __init__(self, total_s: float, tape: Tape) -> None:
        super().__init__(total_s)
        self._tape = tape

    def used_s(self) -> float:
        return self._tape.now_s


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


def fake_plan() -> Plan:
    """Return the plan whose space the replays search: that of the fake, at one batch size."""
    return plan(Request(model="fake", hardware="fake", batch=4), probe())[0]


def replay(
    plan: Plan, recording: Recording, effects: Effects, budget_s: float, seed: int
) -> Replayed:
    """Carry out one study on a recording."""
    tape = Tape(recording, seed)
    budget = _VirtualBudget(budget_s, tape)
    shared = Path("/dev/shm")
    where = shared if os.access(shared, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=where) as folder, Store(Path(folder) / "study") as store:
        store.used_s = budget.used_s
        reference = plan.workload.card.reference_batch
        ledger = Ledger(store, reference, (reference,))
        bench = ReplayBench(tape, effects, store, plan, budget, seed)
        trials = Trials(store.folder / "study.db", plan.space, ledger.tried, seed)
        study = Study(store, plan.space, plan.baselines, bench, ledger, trials, budget,
                      lambda _: None)  # fmt: skip
        for phase in (measure_baselines, explore, race, minimise, confirm):
            phase(study)
        claims = make_claims(study)
        default, best = _single_launches(study)
        return Replayed(
            claims={str(klass): _claimed(claims.claim(klass), effects) for klass in WinnerClass},
            recommended=str(recommended_class(claims, "both")),
            best_trial=best[1] / default,
            best_trial_truth=_truth(best[0], effects),
            n_trials=len(ledger.trials()),
            seconds=budget.used_s(),
        )


def _single_launches(study: Study) -> tuple[float, tuple[Configuration, float]]:
    """Return the default's rate and the best trial with its own, each from the trial's launch."""
    rates = {
        trial.configuration: statistics.median(s.rate for s in record.slices)
        for trial in study.ledger.trials()
        for record in [study.store.launches[trial.launches[0]]]
    }
    others = {c: rate for c, rate in rates.items() if not is_default(c)}
    best = max(others, key=others.__getitem__)
    return rates[Configuration()], (best, others[best])


def _truth(configuration: Configuration, effects: Effects) -> float:
    return math.exp(sum(effects.get(f"{k}={v}", 0.0) for k, v in configuration.settings))


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
