"""Rounds of the default and a configuration in which both are profiled after their slices.

The configuration is also launched on one core and at half its batch: what these cost says what a
profile does not show. In between, the framework runs operators whose work is known.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tuner.errors import NothingMeasured, UsageError
from tuner.host.identity import Host
from tuner.launchers.asking import Deadline
from tuner.launchers.describe import make_reference
from tuner.launchers.testbed import Testbed
from tuner.measurement.bench import Bench, bench_on
from tuner.measurement.interference_gate import WAITING_SHARE
from tuner.measurement.replication import Scatter
from tuner.record.configuration import Configuration, Value
from tuner.record.events import Listener, PhaseBegins, TimeLeft
from tuner.record.launch import LaunchRecord, Purpose
from tuner.record.load import INFERENCE
from tuner.record.objective import THROUGHPUT
from tuner.record.outcome import Outcome
from tuner.record.protocol import CountWork, MeasureBest
from tuner.record.store import Store
from tuner.record.why import LEAST_ROUNDS, HostBest, ModelWork, ProfiledRound, ScalingRound, Seen
from tuner.record.winner_class import WinnerClass
from tuner.record.workload import CPU, ModelFacts, Workload
from tuner.space.catalogue import narrowest_class
from tuner.space.knobs_of.launch import (
    BATCH,
    CORES_PER_INSTANCE,
    CPUS,
    INSTANCES,
    NUMA_NODE,
    PLACEMENT,
)
from tuner.space.knobs_of.torch import RANKS
from tuner.space.launching import gpu_of, plan_launch

MOST_ROUNDS = 5
"""Rounds after which a class is known as well as profilers can tell."""
_NOISE = Scatter(0.02, 0.01)
"""That is expected of launches and slices."""
_COMPILING = ("torch.compile.", "torch.export.")
"""Knobs under which TorchInductor generates code: it names kernels to a profiler only if asked to,
and then generates other code."""
_PLACING = frozenset(
    {
        INSTANCES,
        CORES_PER_INSTANCE,
        CPUS,
        NUMA_NODE,
        PLACEMENT,
        RANKS,
        "torch.interop_threads",
        "env.OMP_NUM_THREADS",
        "env.MKL_NUM_THREADS",
        "env.OMP_PLACES",
        "env.OMP_PROC_BIND",
        "env.GOMP_CPU_AFFINITY",
        "env.KMP_AFFINITY",
        "env.TF_NUM_INTRAOP_THREADS",
        "env.TF_NUM_INTEROP_THREADS",
    }
)
"""What says how many threads run, and where: left out for a launch on one core."""
_BEST_S = 60.0
"""Seconds that one measurement of the host's best may take, importing the framework included."""


class Arms(NamedTuple):
    """What is launched in each round."""

    default: Configuration
    tuned: Configuration
    one_core: Configuration | None
    half_batch: Configuration | None
    baseline: Configuration | None = None
    """The best recommendation of others, if it is neither of the first two."""

    def both(self) -> list[Configuration]:
        """Return the two that are compared; one if there is nothing to compare with."""
        return list(dict.fromkeys((self.default, self.tuned)))

    def profiled(self) -> list[Configuration]:
        """Return these, and the baseline."""
        return [*self.both(), *filter(None, (self.baseline,))]


class Compared(NamedTuple):
    """The default, and the configuration that is compared with it."""

    settings: Mapping[str, Value]
    """Empty: the default is profiled alone."""
    default_batch: int
    batch: int
    """Of the configuration."""
    memory_bytes: int | None
    """That it needs; None if unknown."""
    baseline: Mapping[str, Value] | None = None
    """The best recommendation of others; None if it is not profiled."""
    baseline_batch: int = 1


class Explained(NamedTuple):
    """What was measured."""

    rounds: list[ProfiledRound]
    round_s: float
    """Seconds that one took; 0 if there is none."""
    scaling: list[ScalingRound]
    best: HostBest | None
    """None if the time was too short for it, or on a card."""
    work: ModelWork | None
    """None if it could not be counted."""
    n_cores: int
    """Those that the configuration uses."""


def profiled_rounds(
    compared: Compared,
    workload: Workload,
    facts: ModelFacts,
    host: Host,
    seconds: float,
    listen: Listener,
    testbed: Testbed,
) -> Explained:
    """Measure rounds of the default and the configuration, for at most `seconds`.

    Raises NothingMeasured if a launch of either fails.
    """
    began_s = testbed.clock.now_s()

    def left_s() -> float:
        return seconds - (testbed.clock.now_s() - began_s)

    arms = _arms(compared, workload, host)
    with tempfile.TemporaryDirectory(prefix="tune-framework-") as folder:
        with Store(Path(folder) / "study", is_kept=False) as store:
            store.used_s = lambda: testbed.clock.now_s() - began_s
            make_reference(
                workload.model,
                workload.framework,
                workload.seed,
                store.reference_path,
                workload.card.n_reference_inputs(),
                Deadline(left_s(), listen, is_strict=True),
                gpu_of(workload.device, host),
                secrets.randbits(56),
                facts.answers_with,
                testbed,
                workload.mode,
            )
            bench = bench_on(
                testbed,
                store,
                host,
                workload,
                facts,
                THROUGHPUT,
                listen,
                session=1,
                seed=0,
                seconds_left=left_s,
                waiting_s=WAITING_SHARE * seconds,
                is_cut=True,
            )
            measuring = _Measuring(bench, store, listen, left_s)
            best = _best(arms.tuned, workload, left_s(), testbed)
            work = _work(workload, left_s(), testbed) if best is not None else None
            try:
                measuring.measure(arms, knows_memory=compared.memory_bytes is not None)
            finally:
                bench.close()
            again = _best(arms.tuned, workload, left_s(), testbed)
    return Explained(
        measuring.rounds,
        measuring.round_s,
        measuring.scaling,
        _better(best, again),
        work,
        _n_cores(arms.tuned, host),
    )


class _Measuring:
    """Rounds on a bench, until the time is up."""

    def __init__(
        self, bench: Bench, store: Store, listen: Listener, left_s: Callable[[], float]
    ) -> None:
        self._bench = bench
        self._store = store
        self._listen = listen
        self._left_s = left_s
        self.rounds: list[ProfiledRound] = []
        self.round_s = 0.0
        self.scaling: list[ScalingRound] = []

    def measure(self, arms: Arms, *, knows_memory: bool) -> None:
        """Measure as many rounds as an interval takes, those of scaling, then some more.

        Raises NothingMeasured if the default or the configuration fails.
        """
        self._listen(PhaseBegins("explain", "profiles round by round"))
        self._listen(TimeLeft(self._left_s()))
        if not knows_memory:  # by itself: what it takes says whether several may be together
            self._bench.measure_round([arms.default], 1, Purpose.ANCHOR, noise=_NOISE, seconds=0.0)
        self._profile(arms, arms.both(), LEAST_ROUNDS)
        if len(self.rounds) == LEAST_ROUNDS:
            self._scale(arms)
            more = LEAST_ROUNDS if arms.baseline else MOST_ROUNDS - LEAST_ROUNDS
            self._profile(arms, arms.profiled(), LEAST_ROUNDS + more)

    def _profile(self, arms: Arms, compared: list[Configuration], n_rounds: int) -> None:
        """Measure rounds up to `n_rounds`, while there is time for another one."""
        expected_s = self.round_s * len(compared) / len(arms.both())
        while len(self.rounds) < n_rounds and self._left_s() > expected_s:
            began_s = self._store.used_s()
            found = self._profiled_round(compared, 1 + len(self.rounds), arms.baseline)
            if found is None:
                return
            baseline = found.get(arms.baseline) if arms.baseline else None
            self.rounds.append(ProfiledRound(found[arms.default], found[arms.tuned], baseline))
            expected_s = self._store.used_s() - began_s
            self.round_s = expected_s * len(arms.both()) / len(compared)
            self._listen(TimeLeft(self._left_s()))

    def _profiled_round(
        self, arms: list[Configuration], number: int, optional: Configuration | None
    ) -> dict[Configuration, Seen] | None:
        """Measure one round; None if the time was up.

        Without `optional` if it fails; raises NothingMeasured if another arm does.
        """
        renamed = [arm for arm in arms if _is_compiled(arm)]
        timed = self._round(arms, number, [arm for arm in arms if arm not in renamed])
        profiled = dict(timed)
        if renamed:
            profiled |= self._round(renamed, number, renamed, Purpose.PROFILE)
        found = {arm: Seen(timed[arm], profiled[arm]) for arm in arms}
        for arm in arms:
            fault = _fault(found[arm])
            if fault and arm == optional:
                del found[arm]
            elif fault and self._left_s() <= 0:
                return None
            elif fault:
                raise NothingMeasured(f"{arm.label()}: {fault}")
        return found

    def _scale(self, arms: Arms) -> None:
        """Measure rounds of the configuration, on one core, and at half its batch."""
        compared = [arms.tuned, *filter(None, (arms.one_core, arms.half_batch))]
        if len(compared) == 1:
            return
        round_s = self.round_s * len(compared) / len(arms.both())
        while len(self.scaling) < LEAST_ROUNDS and self._left_s() > round_s:
            began_s = self._store.used_s()
            found = self._round(compared, MOST_ROUNDS + 1 + len(self.scaling))
            if not _is_measured(found[arms.tuned]):
                return
            others = [
                None if arm is None or not _is_measured(found[arm]) else found[arm]
                for arm in (arms.one_core, arms.half_batch)
            ]
            self.scaling.append(ScalingRound(found[arms.tuned], *others))
            round_s = self._store.used_s() - began_s
            self._listen(TimeLeft(self._left_s()))

    def _round(
        self,
        arms: list[Configuration],
        number: int,
        profiled: Sequence[Configuration] = (),
        purpose: Purpose = Purpose.EXPLAIN,
    ) -> dict[Configuration, LaunchRecord]:
        """Launch each; as few slices as a launch may have, for more rounds tell more."""
        records = self._bench.measure_round(
            arms, number, purpose, noise=_NOISE, seconds=0.0, profiled=profiled
        )
        return dict(zip(arms, records, strict=True))


def _fault(seen: Seen) -> str:
    """Say why a configuration was not measured, or not profiled; empty if it was."""
    for record in seen:
        if not _is_measured(record):
            return _reason(record)
    profile = seen.profiled.profile
    if profile is None or not any(each.seconds for each in profile.operators):
        return f"no profile ({_reason(seen.profiled)})"
    return ""


def _is_measured(record: LaunchRecord) -> bool:
    return record.ending is not None and record.ending.outcome is Outcome.MEASURED


def _reason(record: LaunchRecord) -> str:
    return "it did not end" if record.ending is None else record.ending.reason


def _is_compiled(arm: Configuration) -> bool:
    return any(knob.startswith(_COMPILING) for knob, _ in arm.settings)


def _arms(compared: Compared, workload: Workload, host: Host) -> Arms:
    """Return the default and the configuration at their batches, and what shows their limits."""

    def at(batch: int, settings: Mapping[str, Value]) -> Configuration:
        kept = {knob: value for knob, value in settings.items() if knob != BATCH}
        is_reference = batch == workload.card.reference_batch
        return Configuration.of(kept if is_reference else {**kept, BATCH: batch})

    default = at(compared.default_batch, {})
    tuned = at(compared.batch, compared.settings)
    unplaced = {k: v for k, v in compared.settings.items() if k not in _PLACING}
    one_core = at(compared.batch, {**unplaced, CORES_PER_INSTANCE: 1})
    half = at(compared.batch // 2, compared.settings) if compared.batch % 2 == 0 else None
    baseline = None
    if compared.baseline is not None:
        baseline = at(compared.baseline_batch, compared.baseline)
    is_on_cpu = workload.device == CPU
    is_several = is_on_cpu and _n_cores(tuned, host) > 1 and _can_start(one_core, host)
    return Arms(
        default,
        tuned,
        one_core if is_several else None,
        half,
        None if baseline in (default, tuned) else baseline,
    )


def _can_start(arm: Configuration, host: Host) -> bool:
    try:
        plan_launch(arm, host)
    except UsageError:
        return False
    return True


def _n_cores(arm: Configuration, host: Host) -> int:
    """Return the number of physical cores on which a configuration runs, at most the quota's."""
    cpus = {cpu for plan in plan_launch(arm, host) for cpu in plan.cpus or ()}
    n_cores = len({c.core for c in host.cpus if not cpus or c.id in cpus})
    return min(n_cores, int(host.facts()["host.usable_cores"]))


def _best(
    tuned: Configuration, workload: Workload, left_s: float, testbed: Testbed
) -> HostBest | None:
    """Ask the framework for the best that this host does; None if it cannot be measured in time.

    None on a card, where fp32 may be TF32.
    """
    if workload.device != CPU:
        return None
    is_reduced = narrowest_class(tuned) is WinnerClass.REDUCED_PRECISION
    command = MeasureBest(workload.framework, ("fp32", "bf16") if is_reduced else ("fp32",))
    waiting = Deadline(left_s, is_strict=True, most_s=_BEST_S, keeps_log=False)
    try:
        found = testbed.ask(command, [workload.model], waiting)
    except (NothingMeasured, UsageError):  # the rest says as much without it
        return None
    assert isinstance(found, HostBest)
    return found


def _better(one: HostBest | None, other: HostBest | None) -> HostBest | None:
    """Return the higher rates of two measurements: a neighbour only ever lowers them."""
    if one is None or other is None:
        return one or other
    by_type = {name: max((one, other), key=lambda each: each.flops[name]) for name in one.flops}
    streamed = max((one, other), key=lambda each: each.bytes_per_s)
    return HostBest(
        {name: each.flops[name] for name, each in by_type.items()},
        {name: each.fastest[name] for name, each in by_type.items()},
        streamed.bytes_per_s,
        streamed.stream,
    )


def _work(workload: Workload, left_s: float, testbed: Testbed) -> ModelWork | None:
    """Count the operations and bytes of the model; None if they cannot be counted in time."""
    if workload.mode != INFERENCE:
        return None
    command = CountWork(workload.model, workload.framework, workload.seed, workload.device)
    waiting = Deadline(left_s, is_strict=True, keeps_log=False)
    try:
        found = testbed.ask(command, [workload.model], waiting)
    except (NothingMeasured, UsageError):  # a user's operators may have no shapes
        return None
    assert isinstance(found, ModelWork)
    return found
