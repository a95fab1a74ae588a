"""The measuring bench of a study: starts launches, interleaves slices, keeps the pacer alive.

The parent blocks while a slice runs and works only between slices; whatever is not being measured
is stopped.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable

from tuner.errors import NothingMeasured
from tuner.host.identity import Host
from tuner.measurement.launch import Launch, LaunchFailed, Timeouts
from tuner.measurement.process import WorkerProcess
from tuner.record.configuration import Configuration
from tuner.record.events import LaunchBegins, LaunchDone, Listener
from tuner.record.launch import LaunchRecord, LaunchRequest, Purpose
from tuner.record.outcome import Ending, Outcome
from tuner.record.protocol import Begin, Check, Prepare
from tuner.record.store import Store
from tuner.record.workload import ModelCard, ModelFacts, Workload
from tuner.space.catalogue import BATCH, Applies
from tuner.space.knobs import describe
from tuner.space.launching import plan_launch

SLICE_S = 0.3
"""Slices of 0.2-0.5 s beat longer ones on a busy host (measurement notes, section 1.1)."""
SEARCH_SLICES = 4
PROGRAM_RUNS = 2
CONFIRM_PASSES = 6
"""Slices of a launch. A launch costs many times a slice, so the confirmation takes more."""
EXTRA_SHARE = 0.5
"""How many disturbed slices or passes are taken again: half as many as were planned."""
RESIDENT_SHARE = 0.6
"""Of the allowed memory: with more residents than that, the arms take turns."""
"""Inputs of an output check: enough for a drift; enough for 64 with a clear class."""


class Bench:
    """Measures configurations of one workload on this host into one store."""

    def __init__(
        self,
        store: Store,
        host: Host,
        workload: Workload,
        facts: ModelFacts,
        listen: Listener,
        *,
        session: int,
        seed: int,
        seconds_left: Callable[[], float],
    ) -> None:
        self.store = store
        self.host = host
        self.workload = workload
        self._facts = facts
        self._listen = listen
        self._session = session
        self._random = random.Random(seed * 1000 + session)
        self._seconds_left = seconds_left
        self._pacer: Launch | None = None
        self.why_no_pacer = ""
        self._running: list[Launch] = []

    # ---------------------------------------------------------------- launching

    def _timeouts(self, configuration: Configuration) -> Timeouts:
        """Give up what takes many times as long as the default did."""
        facts = self._facts
        compiles = any(describe(k).applies is Applies.MODEL for k, _ in configuration.settings)
        begin = 20 + 10 * (facts.import_s + facts.build_s)
        prepare = (300.0 if compiles else 30.0) + 200 * facts.call_s
        left = max(60.0, self._seconds_left())
        return Timeouts(min(begin, left), min(prepare, left), min(20 + 100 * facts.call_s, left))

    def _launch(
        self,
        configuration: Configuration,
        purpose: Purpose,
        *,
        pacer_block: int = 0,
        round_number: int = 0,
    ) -> Launch:
        """Start a launch and prepare it; the worker runs on return. Raises LaunchFailed."""
        request = LaunchRequest(
            id=self.store.next_launch_id(),
            configuration=configuration,
            batch=int(configuration.get(BATCH) or self.workload.card.reference_batch),
            purpose=purpose,
            pacer_block=pacer_block,
            round=round_number,
            session=self._session,
            started_s=self.store.used_s(),
        )
        file = self.store.open_launch(request)
        self._listen(LaunchBegins(request.id, configuration.label(), purpose))
        plan = plan_launch(configuration, self.host)
        compiled = (self.store.folder / "compiled").absolute()
        compiled.mkdir(exist_ok=True)
        extra = {"TORCHINDUCTOR_CACHE_DIR": str(compiled), "TUNE_FRAMEWORK_PACKAGES": str(compiled)}
        try:
            launch = Launch(
                file,
                lambda: WorkerProcess(plan, file.log_path, extra),
                self._timeouts(configuration),
                self._listen,
            )
            self._running.append(launch)
            launch.begin(
                Begin(
                    launch=request.id,
                    model=self.workload.model,
                    framework=self.workload.framework,
                    seed=self.workload.seed,
                    settings=configuration.as_dict(),
                    memory_policy=plan.memory_policy,
                    reference=str(self.store.reference_path.absolute()),
                )
            )
            launch.prepare(Prepare(request.batch))
        except LaunchFailed:
            self._forget_ended()
            self._announce(file.record)
            raise
        return launch

    def _finish(self, launch: Launch, ending: Ending | None = None) -> LaunchRecord:
        record = launch.finish(ending)
        self._forget_ended()
        self._announce(record)
        return record

    def _forget_ended(self) -> None:
        self._running = [launch for launch in self._running if launch.record.ending is None]

    def _announce(self, record: LaunchRecord) -> None:
        request, ending = record.request, record.ending or Ending(Outcome.MEASURED)
        rates = [s.rate for s in record.slices]
        self._listen(
            LaunchDone(
                launch=request.id,
                label=request.configuration.label(),
                purpose=request.purpose,
                outcome=ending.outcome,
                reason=ending.reason,
                rate=statistics.median(rates) if rates else None,
                seconds=record.total_s,
            )
        )

    def close(self) -> None:
        """Kill whatever runs; its launches stay open in the store, as interrupted."""
        for launch in self._running:
            launch.abandon()
        self._running.clear()
        self._pacer = None

    # ---------------------------------------------------------------- slices

    def _slice(self, launch: Launch) -> None:
        launch.measure(self.store.next_slice_index(), SLICE_S)

    def _n_slices(self, planned: int) -> int:
        return n_slices(planned, self.workload.card)

    def _check_once(self, launch: Launch) -> None:
        """Check the outputs of a configuration that was not checked yet."""
        configuration = launch.record.request.configuration
        if any(
            r.check is not None and r.request.configuration == configuration
            for r in self.store.launches.values()
        ):
            return
        reduced = any(describe(knob).changes_numerics for knob, _ in configuration.settings)
        card = self.workload.card
        n_inputs = card.n_check_inputs(changes_numerics=reduced)
        launch.check(Check(n_inputs, reduced, card.tolerance))

    # ---------------------------------------------------------------- the pacer

    def pacer_block(self) -> int:
        """Return the launch id of the running pacer, starting one if need be; 0 if none may be.

        Raises NothingMeasured if the default itself cannot be launched.
        """
        if self.why_no_pacer:
            return 0
        if self._pacer is None:
            try:
                self._pacer = self._launch(Configuration(), Purpose.PACER)
            except LaunchFailed as error:
                if self._was_default_measured():
                    self.why_no_pacer = f"it could not be started again: {error.ending.reason}"
                    return 0
                raise NothingMeasured(
                    f"the default configuration cannot be measured: {error.ending.outcome}: "
                    f"{error.ending.reason}; see {self.store.log_of(max(self.store.launches))}"
                ) from error
            if not self._fits([self._pacer.record, self._pacer.record]):
                self.why_no_pacer = "the default needs more than a third of the memory"
                self.retire_pacer()
                return 0
            self._pacer.pause()
        return self._pacer.record.request.id

    def _was_default_measured(self) -> bool:
        return any(
            record.slices and record.request.configuration == Configuration()
            for record in self.store.launches.values()
        )

    def has_pacer(self) -> bool:
        """Tell whether a pacer runs now."""
        return self._pacer is not None

    def retire_pacer(self) -> None:
        """End the pacer; claims are made without it."""
        if self._pacer is not None:
            self._finish(self._pacer)
        self._pacer = None

    def _pace(self) -> None:
        """Take a slice of the pacer; one that died is replaced with the next launch."""
        if self._pacer is None:
            return
        try:
            self._slice(self._pacer)
            self._pacer.pause()
        except LaunchFailed:
            self._forget_ended()
            self._pacer = None

    # ---------------------------------------------------------------- what a study asks for

    def measure(
        self, configuration: Configuration, purpose: Purpose, hopeless_below: float = 0.0
    ) -> LaunchRecord:
        """Measure a configuration in one fresh launch, each slice between two of the pacer.

        hopeless_below: items per second; an undisturbed first slice below it ends the launch as
        pruned.
        A failure is the record's ending, never an exception.
        """
        block = self.pacer_block()
        try:
            launch = self._launch(configuration, purpose, pacer_block=block)
        except LaunchFailed:
            return self._latest()
        try:
            launch.pause()
            self._pace()
            while _wants_more(launch.record, self._n_slices(SEARCH_SLICES)):
                self._slice(launch)
                launch.pause()
                self._pace()
                rate = launch.record.clean_rate
                if rate is not None and rate < hopeless_below:
                    return self._finish(launch, _pruned(rate, hopeless_below))
            self._check_once(launch)
        except LaunchFailed:
            self._forget_ended()
            self._announce(launch.record)
            return launch.record
        return self._finish(launch)

    def confirm_round(self, arms: list[Configuration], number: int) -> list[LaunchRecord]:
        """Measure one fresh launch of every arm, side by side; records in the order of the arms.

        All are resident. In each pass every arm takes one slice, in random order; a pass in which
        a slice was disturbed is made again, as a whole. Where memory does not allow all of them,
        the launches take turns in random order. Failures are endings, not exceptions.
        """
        order = self._random.sample(range(len(arms)), len(arms))
        if not self._fits([self._last_prepared(arm) for arm in arms]):
            records = {i: self._measure_alone(arms[i], number) for i in order}
            return [records[i] for i in range(len(arms))]
        launches: dict[int, Launch] = {}
        records = {}
        for i in order:
            try:
                launches[i] = self._launch(arms[i], Purpose.CONFIRM, round_number=number)
                launches[i].pause()
            except LaunchFailed:
                launches.pop(i, None)
                records[i] = self._latest()
        n_passes = n_clean = 0
        while launches and _want_more(n_clean, n_passes, self._n_slices(CONFIRM_PASSES)):
            for i in self._random.sample(list(launches), len(launches)):
                try:
                    self._slice(launches[i])
                    launches[i].pause()
                except LaunchFailed:
                    records[i] = launches.pop(i).record
                    self._forget_ended()
                    self._announce(records[i])
            n_passes += 1
            last = [launch.record.slices[-1] for launch in launches.values()]
            n_clean += not any(s.interference.dirty for s in last)
        for i, launch in launches.items():
            records[i] = self._finish(launch)
        return [records[i] for i in range(len(arms))]

    def _measure_alone(self, arm: Configuration, number: int) -> LaunchRecord:
        try:
            launch = self._launch(arm, Purpose.CONFIRM, round_number=number)
        except LaunchFailed:
            return self._latest()
        try:
            while _wants_more(launch.record, self._n_slices(CONFIRM_PASSES)):
                self._slice(launch)
        except LaunchFailed:
            self._forget_ended()
            self._announce(launch.record)
            return launch.record
        return self._finish(launch)

    def _latest(self) -> LaunchRecord:
        return self.store.launches[max(self.store.launches)]

    def _last_prepared(self, arm: Configuration) -> LaunchRecord:
        """Return the latest launch of an arm that got as far as its memory; else of any."""
        everything = [r for r in self.store.launches.values() if r.prepared is not None]
        own = [r for r in everything if r.request.configuration == arm]
        return (own or everything)[-1]

    def _fits(self, records: list[LaunchRecord]) -> bool:
        """Tell whether launches like these can be resident together, one of them starting."""
        prepared = [r.prepared for r in records if r.prepared is not None]
        waiting = sum(p.memory_private_bytes for p in prepared)
        starting = max(p.memory_peak_bytes - p.memory_private_bytes for p in prepared)
        return waiting + starting <= RESIDENT_SHARE * self.host.limits.memory_bytes


def n_slices(planned: int, card: ModelCard) -> int:
    """Return how many slices a launch gets; a program's are whole runs, each started anew."""
    return min(planned, PROGRAM_RUNS) if card.form == "program" else planned


def _want_more(n_clean: int, n_taken: int, planned: int) -> bool:
    """Tell whether to go on: until enough are clean, or half as many again were taken."""
    return n_clean < planned and n_taken < planned + int(EXTRA_SHARE * planned)


def _wants_more(record: LaunchRecord, planned: int) -> bool:
    clean = sum(not s.interference.dirty for s in record.slices)
    return _want_more(clean, len(record.slices), planned)


def _pruned(rate: float, hopeless_below: float) -> Ending:
    return Ending(
        Outcome.PRUNED, f"{rate:.3g} items/s after one slice, hopeless below {hopeless_below:.3g}"
    )
