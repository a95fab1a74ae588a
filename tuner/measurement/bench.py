"""The measuring bench of a study: starts launches, interleaves slices, keeps the pacer alive.

The parent blocks while a slice runs and works only between slices; whatever is not being measured
is stopped.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable

import msgspec

from tuner.errors import NothingMeasured
from tuner.host.identity import Host
from tuner.measurement.launch import Launch, LaunchFailed, Timeouts
from tuner.measurement.process import WorkerProcess
from tuner.record.configuration import Configuration
from tuner.record.events import LaunchBegins, LaunchDone, Listener
from tuner.record.launch import LaunchRecord, LaunchRequest, Purpose, Slice
from tuner.record.outcome import Ending, Outcome
from tuner.record.protocol import Begin, Prepare
from tuner.record.store import Store
from tuner.record.workload import ModelFacts, Workload
from tuner.space.knobs import BATCH, describe
from tuner.space.launching import plan_launch

SLICE_S = 0.3
"""Slices of 0.2-0.5 s beat longer ones on a busy host (measurement notes, section 1.1)."""
SLICES_PER_LAUNCH = 4
_EXTRA_SLICES = 2
"""How many dirty slices of a launch are taken again: half of them."""
RESIDENT_SHARE = 0.6
"""Of the allowed memory: more residents than that and the arms take turns."""
N_CHECK_SAME = 32
N_CHECK_REDUCED = 96
"""Inputs of an output check: enough for a drift; enough for 64 with a clear class."""


class Arm(msgspec.Struct, frozen=True):
    """What one launch is to measure: a configuration without its batch, and the batches."""

    configuration: Configuration
    batches: tuple[int, ...]


def arm_of(configuration: Configuration, reference_batch: int) -> Arm:
    """Split a configuration into what is launched and the batch that is called."""
    batch = configuration.get(BATCH)
    return Arm(configuration.without(BATCH), (int(batch or reference_batch),))


class Bench:
    """Measures arms of one workload on this host into one store."""

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
        self._running: list[Launch] = []
        self._checked = {
            (record.request.configuration, prepared.batch)
            for record in store.launches.values()
            for prepared in record.prepared
            if prepared.check is not None
        }
        self._reference = store.folder / "reference.npz"

    # ---------------------------------------------------------------- launching

    def _timeouts(self, configuration: Configuration) -> Timeouts:
        """Give up what takes many times as long as the default did."""
        facts = self._facts
        compiles = any(describe(knob).applies == "model" for knob, _ in configuration.settings)
        begin = 20 + 10 * (facts.import_s + facts.build_s)
        prepare = (300.0 if compiles else 30.0) + 200 * facts.call_s
        left = max(60.0, self._seconds_left())
        return Timeouts(min(begin, left), min(prepare, left), min(20 + 100 * facts.call_s, left))

    def _launch(
        self, arm: Arm, purpose: Purpose, *, pacer_block: int = 0, round_number: int = 0
    ) -> Launch:
        """Start a launch and prepare its batches; the worker runs on return.

        Raises LaunchFailed.
        """
        request = LaunchRequest(
            id=self.store.next_launch_id(),
            configuration=arm.configuration,
            batches=arm.batches,
            purpose=purpose,
            pacer_block=pacer_block,
            round=round_number,
            session=self._session,
            started_s=self.store.used_s(),
        )
        file = self.store.open_launch(request)
        self._listen(LaunchBegins(request.id, _label(arm), purpose))
        plan = plan_launch(arm.configuration, self.host)
        extra = {"TORCHINDUCTOR_CACHE_DIR": str((self.store.folder / "compiled").absolute())}
        launch: Launch | None = None
        try:
            launch = Launch(
                file,
                lambda: WorkerProcess(plan, file.log_path, extra),
                self._timeouts(arm.configuration),
                self._listen,
            )
            self._running.append(launch)
            launch.begin(
                Begin(
                    launch=request.id,
                    model=self.workload.model,
                    framework=self.workload.framework,
                    seed=self.workload.seed,
                    settings=arm.configuration.as_dict(),
                    memory_policy=plan.memory_policy,
                    reference=str(self._reference.absolute()),
                    makes_reference=not self._reference.exists(),
                )
            )
            for batch in self._shuffled(arm.batches):
                launch.prepare(self._prepare_order(arm.configuration, batch))
                self._checked.add((arm.configuration, batch))
        except LaunchFailed:
            self._forget_ended()
            self._announce(file.record)
            raise
        return launch

    def _prepare_order(self, configuration: Configuration, batch: int) -> Prepare:
        reduced = any(describe(knob).changes_numerics for knob, _ in configuration.settings)
        n_check = N_CHECK_REDUCED if reduced else N_CHECK_SAME
        if (configuration, batch) in self._checked:
            n_check = 0  # outputs are checked once per configuration
        return Prepare(batch, n_check, reduced)

    def _shuffled(self, batches: tuple[int, ...]) -> list[int]:
        return self._random.sample(batches, len(batches))

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
                request.id,
                _label(Arm(request.configuration, request.batches)),
                request.purpose,
                ending.outcome,
                ending.reason,
                statistics.median(rates) if rates else None,
                record.total_s,
            )
        )

    def close(self) -> None:
        """Kill whatever runs; its launches stay open in the store, as interrupted."""
        for launch in self._running:
            launch.abandon()
        self._running.clear()
        self._pacer = None

    # ---------------------------------------------------------------- slices

    def _slice(self, launch: Launch, batch: int) -> Slice:
        return launch.measure(self.store.next_slice_index(), batch, SLICE_S)

    def _wants_more(self, slices: list[Slice], planned: int) -> bool:
        """Tell whether dirty slices should be taken again."""
        clean = sum(not s.interference.dirty for s in slices)
        return clean < planned and len(slices) < planned + _EXTRA_SLICES

    # ---------------------------------------------------------------- the pacer

    def pacer_block(self) -> int:
        """Return the launch id of the running pacer, starting one if need be; 0 if none may be.

        Raises NothingMeasured if the default itself cannot be launched.
        """
        if self._pacer is not None and self._pacer.record.ending is None:
            return self._pacer.record.request.id
        arm = Arm(Configuration(), (self.workload.card.reference_batch,))
        try:
            self._pacer = self._launch(arm, Purpose.PACER)
        except LaunchFailed as error:
            raise NothingMeasured(
                f"the default configuration cannot be measured: {error.ending.outcome}: "
                f"{error.ending.reason}; see {self.store.log_of(max(self.store.launches))}"
            ) from error
        if not self._fits([self._pacer.record, self._pacer.record]):
            self._finish(self._pacer)
            return 0
        self._pacer.pause()
        return self._pacer.record.request.id

    def has_pacer(self) -> bool:
        """Tell whether a pacer runs now."""
        return self._pacer is not None and self._pacer.record.ending is None

    def retire_pacer(self) -> None:
        """End the pacer; claims are made without it."""
        if self._pacer is not None and self._pacer.record.ending is None:
            self._finish(self._pacer)
        self._pacer = None

    def _pace(self) -> None:
        """Take a slice of the pacer; one that died is replaced with the next launch."""
        if self._pacer is None or self._pacer.record.ending is not None:
            return
        try:
            self._slice(self._pacer, self.workload.card.reference_batch)
            self._pacer.pause()
        except LaunchFailed:
            self._forget_ended()
            self._pacer = None

    # ---------------------------------------------------------------- what a study asks for

    def measure(self, arm: Arm, purpose: Purpose) -> LaunchRecord:
        """Measure an arm in one fresh launch, its slices between slices of the pacer.

        A failure is the record's ending, never an exception.
        """
        block = self.pacer_block()
        try:
            launch = self._launch(arm, purpose, pacer_block=block)
        except LaunchFailed:
            return self.store.launches[max(self.store.launches)]
        try:
            launch.pause()
            self._pace()
            for half in range(2):
                for batch in self._shuffled(arm.batches):
                    self._half_of_slices(launch, batch, last=half == 1)
                launch.pause()
                self._pace()
        except LaunchFailed:
            self._forget_ended()
            self._announce(launch.record)
            return launch.record
        return self._finish(launch)

    def _half_of_slices(self, launch: Launch, batch: int, *, last: bool) -> None:
        for _ in range(SLICES_PER_LAUNCH // 2):
            self._slice(launch, batch)
        if last:
            taken = [s for s in launch.record.slices if s.batch == batch]
            while self._wants_more(taken, SLICES_PER_LAUNCH):
                taken.append(self._slice(launch, batch))

    def confirm_round(self, arms: list[Arm], number: int) -> list[LaunchRecord]:
        """Measure one fresh launch of every arm, side by side; records in the order of the arms.

        All are resident and their slices rotate in random order; where memory does not allow
        that, the launches take turns in random order. Failures are endings, not exceptions.
        """
        if not self._fits([self._last_record(arm) for arm in arms]):
            return self._round_in_turns(arms, number)
        order = self._random.sample(range(len(arms)), len(arms))
        launches: dict[int, Launch] = {}
        records: dict[int, LaunchRecord] = {}
        for i in order:
            try:
                launches[i] = self._launch(arms[i], Purpose.CONFIRM, round_number=number)
                launches[i].pause()
            except LaunchFailed:
                launches.pop(i, None)
                records[i] = self.store.launches[max(self.store.launches)]
        for pass_number in range(SLICES_PER_LAUNCH + _EXTRA_SLICES):
            turns = [
                (i, batch)
                for i in launches
                for batch in arms[i].batches
                if self._is_due(launches[i], batch, pass_number)
            ]
            for i, batch in self._random.sample(turns, len(turns)):
                try:
                    self._slice(launches[i], batch)
                    launches[i].pause()
                except LaunchFailed:
                    records[i] = launches.pop(i).record
                    self._forget_ended()
        for i, launch in launches.items():
            records[i] = self._finish(launch)
        return [records[i] for i in range(len(arms))]

    def _is_due(self, launch: Launch, batch: int, pass_number: int) -> bool:
        taken = [s for s in launch.record.slices if s.batch == batch]
        return pass_number < SLICES_PER_LAUNCH or self._wants_more(taken, SLICES_PER_LAUNCH)

    def _round_in_turns(self, arms: list[Arm], number: int) -> list[LaunchRecord]:
        records: dict[int, LaunchRecord] = {}
        for i in self._random.sample(range(len(arms)), len(arms)):
            try:
                launch = self._launch(arms[i], Purpose.CONFIRM, round_number=number)
                for batch in self._shuffled(arms[i].batches):
                    taken: list[Slice] = []
                    while len(taken) < SLICES_PER_LAUNCH or self._wants_more(
                        taken, SLICES_PER_LAUNCH
                    ):
                        taken.append(self._slice(launch, batch))
                records[i] = self._finish(launch)
            except LaunchFailed:
                records[i] = self.store.launches[max(self.store.launches)]
                self._forget_ended()
        return [records[i] for i in range(len(arms))]

    def _last_record(self, arm: Arm) -> LaunchRecord:
        """Return the latest launch of an arm's configuration that got as far as its memory."""
        known = [
            record
            for record in self.store.launches.values()
            if record.request.configuration == arm.configuration and record.prepared
        ]
        everything = [record for record in self.store.launches.values() if record.prepared]
        return (known or everything)[-1]

    def _fits(self, records: list[LaunchRecord]) -> bool:
        peaks = (max(p.memory_peak_bytes for p in record.prepared) for record in records)
        return sum(peaks) <= RESIDENT_SHARE * self.host.limits.memory_bytes


def _label(arm: Arm) -> str:
    batches = ",".join(map(str, arm.batches))
    return f"{arm.configuration.label()} batch {batches}"

