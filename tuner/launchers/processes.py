"""Launches as real processes, one worker each.

A launcher sees to it that each launch ends.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from tuner.launchers.clock import Clock
from tuner.launchers.conversations import Conversation, converse
from tuner.launchers.instance_group import InstanceGroup
from tuner.launchers.memory import MemoryModel
from tuner.launchers.neighbour import n_neighbours, neighbour
from tuner.launchers.process_launch import ProcessLaunch, Timeouts
from tuner.launchers.protocol import LauncherSpec
from tuner.launchers.time_attribution import share_out
from tuner.record.configuration import Configuration
from tuner.record.events import LaunchBegins
from tuner.record.launch import LaunchRecord, LaunchRequest, Purpose
from tuner.record.load import Batching, served_sizes
from tuner.record.outcome import Ending, Outcome
from tuner.record.protocol import Begin
from tuner.record.workload import CUDA
from tuner.space.catalogue import describe, measures_itself
from tuner.space.knob import Applies
from tuner.space.knobs_of.launch import BATCH, INSTANCES, MAX_WAIT
from tuner.space.launching import LaunchPlan, plan_launch

_MAX_PADDING_BYTES = 4096
NAMED_KERNELS = {"TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE": "1"}
"""Has TorchInductor (2.13) name its kernels to profilers, which changes the code."""


class ProcessLauncher:
    """Launches configurations of one workload on this host into one store."""

    def __init__(
        self,
        spec: LauncherSpec,
        clock: Clock,
        group: type[InstanceGroup] = InstanceGroup,
        most_together: int | None = None,
    ) -> None:
        """group: starts the processes of a launch. most_together: instead of one per core."""
        self.host = spec.host
        self._spec = spec
        self._clock = clock
        self._group = group
        self._most_together = most_together
        is_on_card = spec.workload.device == CUDA
        self.memory = MemoryModel(
            spec.store, spec.host.limits, spec.host.gpus[0].memory_bytes if is_on_card else 0
        )
        self.running: list[ProcessLaunch] = []

    @property
    def can_profile(self) -> bool:
        """Whether a profiler may be used: a program's inside is its own."""
        return not self._spec.workload.model.command

    def fit(self, records: Sequence[LaunchRecord]) -> bool:
        """Tell whether launches like these can be resident together."""
        return self.memory.fit(records)

    @contextmanager
    def neighbours(self) -> Iterator[int]:
        """Keep a synthetic neighbour busy; yields of how many processes, 0 if it does not work."""
        n = n_neighbours(self.host)
        with neighbour(n, self._spec.store.neighbour_log) as is_busy:
            yield n if is_busy else 0

    @property
    def most_together(self) -> int:
        """How many launches of one process may be prepared side by side: one per core."""
        return self.host.usable_cores if self._most_together is None else self._most_together

    def n_together(self, configurations: Sequence[Configuration]) -> int:
        """Return how many of the first of these may be prepared side by side; at least 1.

        As many as there are cores for, and memory by what earlier launches took.
        """
        running = [launch.record for launch in self.running]
        n_cores = 0
        for n, configuration in enumerate(configurations):
            n_cores += int(configuration.get(INSTANCES) or 1)
            batches = {c: self._batch(c) for c in configurations[: n + 1]}
            if n and (
                configuration in configurations[:n]
                or n_cores > self.most_together
                or any(map(measures_itself, batches))
                or not self.memory.bears(batches, running)
            ):
                return n
        return len(configurations)

    def start(
        self,
        configuration: Configuration,
        purpose: Purpose,
        *,
        pacer_block: int = 0,
        round_number: int = 0,
    ) -> ProcessLaunch:
        """Start a launch, prepare it and warm it up; the worker runs on return, or has ended."""
        (launch,) = self._prepared([configuration], purpose, pacer_block, round_number)
        launch.warm_up()
        return launch

    def start_together(
        self,
        configurations: Sequence[Configuration],
        purpose: Purpose,
        *,
        pacer_block: int = 0,
        round_number: int = 0,
    ) -> list[ProcessLaunch]:
        """Start launches and prepare them side by side, then warm up one after another, alone."""
        launches = self._prepared(configurations, purpose, pacer_block, round_number)
        for launch in launches:
            launch.warm_up()
            launch.pause()
        return launches

    def _prepared(
        self,
        configurations: Sequence[Configuration],
        purpose: Purpose,
        pacer_block: int,
        round_number: int,
    ) -> list[ProcessLaunch]:
        """Return launches that have made their first call and wait, or have ended."""
        launches: list[ProcessLaunch] = []
        preparing: list[Conversation[None]] = []
        for configuration in configurations:
            self._spec.store.check_room()
            request = LaunchRequest(
                id=self._spec.store.next_launch_id(),
                configuration=configuration,
                batch=self._batch(configuration),
                purpose=purpose,
                pacer_block=pacer_block,
                round=round_number,
                session=self._spec.session,
                started_s=self._spec.store.used_s(),
                padding_bytes=self._spec.draw.randint(0, _MAX_PADDING_BYTES),
                scenario=self._spec.workload.scenario,
                n_companions=len(configurations) - 1,
                callers=self._spec.workload.callers,
                batching=self._batching(configuration),
                slo=self._spec.objective.slo,
            )
            launch, conversation = self._open(request)
            launches.append(launch)
            preparing.append(conversation)
        converse(preparing, share_out([launch.charge for launch in launches], self._clock))
        return launches

    def _open(self, request: LaunchRequest) -> tuple[ProcessLaunch, Conversation[None]]:
        """Return a launch whose file is open, and the conversation that prepares it."""
        file = self._spec.store.open_launch(request)
        self._spec.listen(LaunchBegins(request.id, request.configuration.label(), request.purpose))
        plans = plan_launch(request.configuration, self.host, self._spec.workload.device)
        running = [launch.record for launch in self.running]
        launch = ProcessLaunch(
            file,
            self._timeouts(request, len(plans)),
            self._spec.listen,
            self.ended,
            self._spec.complete,
            self._spec.seconds_left if self._spec.is_cut else None,
            self._clock,
        )
        self.running.append(launch)
        fault = self.memory.fault(request, len(plans), running)
        environment, order = self._environment(request), self._order(request, plans[0])

        def preparing() -> Conversation[None]:
            if fault:
                launch.finish(Ending(Outcome.NOT_APPLICABLE, fault))
                return
            team = functools.partial(
                self._group,
                plans,
                file.log_path,
                environment,
                is_awaited=False,
                is_apart=bool(self._spec.workload.model.url),
            )
            yield from launch.preparing(team, order)

        return launch, preparing()

    def _batch(self, configuration: Configuration) -> int:
        return int(configuration.get(BATCH) or self._spec.workload.card.reference_batch)

    def _batching(self, configuration: Configuration) -> Batching | None:
        if not self._spec.workload.means().is_served:
            return None
        largest = self._batch(configuration)
        wait_s = int(configuration.get(MAX_WAIT) or 0) / 1000
        n_servers = int(configuration.get(INSTANCES) or 1)
        return Batching(served_sizes(largest), wait_s, n_servers)

    def _environment(self, request: LaunchRequest) -> Mapping[str, str]:
        compiled = (self._spec.store.folder / "compiled").absolute()
        compiled.mkdir(exist_ok=True)
        is_profiled = request.purpose is Purpose.PROFILE
        packages = compiled / "profiled" if is_profiled else compiled  # of other code
        packages.mkdir(exist_ok=True)
        return {
            "TORCHINDUCTOR_CACHE_DIR": str(compiled),
            "TUNE_FRAMEWORK_PACKAGES": str(packages),
            "TUNE_FRAMEWORK_PADDING": "." * request.padding_bytes,
            **(NAMED_KERNELS if is_profiled else {}),
        }

    def _order(self, request: LaunchRequest, plan: LaunchPlan) -> Begin:
        return Begin(
            launch=request.id,
            model=self._spec.workload.model,
            framework=self._spec.workload.framework,
            seed=self._spec.workload.seed,
            settings=request.configuration.as_dict(),
            memory_policy=plan.memory_policy,
            reference=str(self._spec.store.reference_path.absolute()),
            mode=self._spec.workload.mode,
            device=self._spec.workload.device,
            traces=self._traces(request.configuration),
        )

    def _traces(self, configuration: Configuration) -> bool:
        """Tell whether a launch is to trace a call: the first of each configuration, on a card."""
        return self._spec.workload.device != CUDA or not any(
            record.prepared is not None and record.prepared.is_traced
            for record in self._spec.store.launches.values()
            if record.request.configuration == configuration
        )

    def ended(self, record: LaunchRecord) -> None:
        """Let go of a launch that has ended, by itself or not."""
        self.running = [launch for launch in self.running if launch.record.ending is None]
        self._spec.on_end(record)

    def close(self) -> None:
        """Kill whatever runs; its launches stay open in the store, as interrupted."""
        for launch in self.running:
            launch.abandon()
        self.running.clear()

    def _timeouts(self, request: LaunchRequest, n_instances: int) -> Timeouts:
        """Give up a launch that takes many times as long as the default did per core."""
        facts, settings = self._spec.facts, request.configuration.settings
        compiles = any(describe(k).applies is Applies.MODEL for k, _ in settings)
        n_sizes = len(request.load.sizes)
        begin = 20 + 10 * (facts.import_s + facts.build_s)
        prepare = n_sizes * ((300.0 if compiles else 30.0) + 200 * facts.call_s)
        left = max(60.0, self._spec.seconds_left())
        slice_ = 20 + 100 * n_sizes * facts.call_s
        n_instances *= request.callers
        n_beside = n_instances * (1 + request.n_companions)
        return Timeouts(
            *(
                min(n * each, left)
                for n, each in ((n_beside, begin), (n_beside, prepare), (n_instances, slice_))
            )
        )
