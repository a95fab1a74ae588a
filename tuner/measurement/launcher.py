"""Starts the launches of a study, one worker process each, and sees to it that each one ends."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable

from tuner.host.identity import Host
from tuner.measurement.estimates import clean_slices
from tuner.measurement.launch import Launch, LaunchFailed, Timeouts
from tuner.measurement.memory import MemoryModel
from tuner.measurement.team import Team
from tuner.record.configuration import Configuration
from tuner.record.events import LaunchBegins, LaunchDone, Listener
from tuner.record.launch import LaunchRecord, LaunchRequest, Purpose
from tuner.record.outcome import Ending, Outcome
from tuner.record.protocol import Begin, Prepare
from tuner.record.store import Store
from tuner.record.workload import ModelFacts, Workload
from tuner.space.catalogue import BATCH, Applies
from tuner.space.knobs import describe
from tuner.space.launching import plan_launch

_MAX_PADDING_BYTES = 4096


class Launcher:
    """Launches configurations of one workload on this host into one store."""

    def __init__(
        self,
        store: Store,
        host: Host,
        workload: Workload,
        facts: ModelFacts,
        listen: Listener,
        *,
        session: int,
        draw: random.Random,
        seconds_left: Callable[[], float],
        is_cut: bool = False,
    ) -> None:
        """is_cut: no step of a launch outlasts seconds_left."""
        self._store = store
        self._host = host
        self._workload = workload
        self._facts = facts
        self._listen = listen
        self._session = session
        self._draw = draw
        self._seconds_left = seconds_left
        self._is_cut = is_cut
        self.search_ratio: Callable[[LaunchRecord], float | None] = lambda _: None
        """What a search makes of a launch that has ended; it is told with the launch."""
        self.memory = MemoryModel(store, host.limits)
        self.running: list[Launch] = []

    def start(
        self,
        configuration: Configuration,
        purpose: Purpose,
        *,
        pacer_block: int = 0,
        round_number: int = 0,
    ) -> Launch:
        """Start a launch and prepare it; the worker runs on return. Raises LaunchFailed."""
        self._store.check_room()
        request = LaunchRequest(
            id=self._store.next_launch_id(),
            configuration=configuration,
            batch=int(configuration.get(BATCH) or self._workload.card.reference_batch),
            purpose=purpose,
            pacer_block=pacer_block,
            round=round_number,
            session=self._session,
            started_s=self._store.used_s(),
            padding_bytes=self._draw.randint(0, _MAX_PADDING_BYTES),
        )
        file = self._store.open_launch(request)
        self._listen(LaunchBegins(request.id, configuration.label(), purpose))
        plans = plan_launch(configuration, self._host)
        running = [launch.record for launch in self.running]
        if fault := self.memory.fault(request, len(plans), running):
            ending = Ending(Outcome.NOT_APPLICABLE, fault)
            file.end(ending, 0.0, 0.0)
            self._announce(file.record)
            raise LaunchFailed(ending)
        compiled = (self._store.folder / "compiled").absolute()
        compiled.mkdir(exist_ok=True)
        extra = {
            "TORCHINDUCTOR_CACHE_DIR": str(compiled),
            "TUNE_FRAMEWORK_PACKAGES": str(compiled),
            "TUNE_FRAMEWORK_PADDING": "." * request.padding_bytes,
        }
        try:
            launch = Launch(
                file,
                lambda: Team(plans, file.log_path, extra),
                self._timeouts(configuration, len(plans)),
                self._listen,
                self._seconds_left if self._is_cut else None,
            )
            self.running.append(launch)
            launch.begin(
                Begin(
                    launch=request.id,
                    model=self._workload.model,
                    framework=self._workload.framework,
                    seed=self._workload.seed,
                    settings=configuration.as_dict(),
                    memory_policy=plans[0].memory_policy,
                    reference=str(self._store.reference_path.absolute()),
                )
            )
            launch.prepare(Prepare(request.batch))
        except LaunchFailed:
            self.ended(file.record)
            raise
        return launch

    def finish(self, launch: Launch, ending: Ending | None = None) -> LaunchRecord:
        """End a launch, as measured unless another ending is given."""
        return self.ended(launch.finish(ending))

    def ended(self, record: LaunchRecord) -> LaunchRecord:
        """Let go of a launch that has ended, be it by itself, and say how."""
        self.running = [launch for launch in self.running if launch.record.ending is None]
        self._announce(record)
        return record

    def close(self) -> None:
        """Kill whatever runs; its launches stay open in the store, as interrupted."""
        for launch in self.running:
            launch.abandon()
        self.running.clear()

    def _timeouts(self, configuration: Configuration, n_instances: int) -> Timeouts:
        """Give up what takes many times as long as the default did, on its share of the cores."""
        facts = self._facts
        compiles = any(describe(k).applies is Applies.MODEL for k, _ in configuration.settings)
        begin = 20 + 10 * (facts.import_s + facts.build_s)
        prepare = (300.0 if compiles else 30.0) + 200 * facts.call_s
        left = max(60.0, self._seconds_left())
        slice_ = 20 + 100 * facts.call_s
        return Timeouts(*(min(n_instances * each, left) for each in (begin, prepare, slice_)))

    def _announce(self, record: LaunchRecord) -> None:
        request, ending = record.request, record.ending or Ending(Outcome.MEASURED)
        rates = [s.rate for s in clean_slices(record)]
        self._listen(
            LaunchDone(
                launch=request.id,
                label=request.configuration.label(),
                purpose=request.purpose,
                outcome=ending.outcome,
                reason=ending.reason,
                rate=statistics.median(rates) if rates else None,
                seconds=record.total_s,
                n_slices=len(record.slices),
                n_disturbed=sum(bool(s.interference.dirty) for s in record.slices),
                search_ratio=self.search_ratio(record),
            )
        )
