"""The measuring bench of a study: interleaves slices of launches, keeps the pacer alive.

The parent blocks while a slice runs and works only between slices; whatever is not being measured
is stopped.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Collection, Iterable, Sequence

from tuner.host.identity import Host
from tuner.host.interference import n_disturbed
from tuner.launchers.protocol import Launch, Launcher, LauncherSpec
from tuner.launchers.testbed import Testbed
from tuner.measurement.arrival_plan import ArrivalPlan
from tuner.measurement.estimates import clean_slices, round_log_scores
from tuner.measurement.interference_gate import InterferenceGate
from tuner.measurement.pacer import Pacer
from tuner.measurement.passes import passes_of
from tuner.measurement.queueing import misses_when_idle, with_sustained
from tuner.measurement.replication import (
    CONFIRM,
    FIXED,
    SEARCH,
    Replication,
    Scatter,
    n_needed,
    replication,
    scatter,
    wants_more,
)
from tuner.measurement.server_trials import is_in_round, uses_arrivals
from tuner.measurement.steps import Steps
from tuner.record.configuration import Configuration
from tuner.record.events import LaunchDone, Listener
from tuner.record.launch import LaunchRecord, Purpose, Slice
from tuner.record.objective import Objective
from tuner.record.outcome import Ending, Outcome
from tuner.record.store import Store
from tuner.record.workload import ModelCard, ModelFacts, Workload

SearchRatio = Callable[[LaunchRecord], float | None]
"""Returns a search's estimate for a launch that has ended, as a ratio to the default."""


def bench_on(
    testbed: Testbed,
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
    arrivals_seed: int = 0,
) -> Bench:
    """Return a bench that measures one workload on a testbed.

    waiting_s: the most that all waits for quiet together may take. is_cut: no step of a launch
    outlasts seconds_left; else the one that runs then may. arrivals_seed: of the requests that
    arrive at a server.
    """
    draw = random.Random(seed * 1000 + session)

    def on_end(record: LaunchRecord) -> None:
        listen(launch_summary(record, objective, search_ratio(record)))

    spec = LauncherSpec(
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
        complete=_completed,
    )
    launcher = testbed.launcher(spec)
    quiet = InterferenceGate(
        store, listen, waiting_s, seconds_left, testbed.watch_idle, testbed.clock
    )
    stand_in = Configuration.of(facts.answers_with) if facts.answers_with else None
    return Bench(
        store,
        workload.card,
        objective,
        launcher,
        quiet,
        draw,
        stand_in,
        seconds_left,
        memory_bytes=host.limits.memory_bytes,
        arrivals_seed=arrivals_seed,
    )


def _completed(taken: Slice, record: LaunchRecord) -> Slice:
    """Return a slice with what is computed from its calls."""
    number = record.request.round if is_in_round(record) else 0
    return with_sustained(taken, record.request.slo, round_number=number)


class Bench:
    """Measures configurations of one workload, with a launcher, into a store."""

    def __init__(
        self,
        store: Store,
        card: ModelCard,
        objective: Objective,
        launcher: Launcher,
        quiet: InterferenceGate,
        draw: random.Random,
        stand_in: Configuration | None = None,
        seconds_left: Callable[[], float] = lambda: math.inf,
        *,
        memory_bytes: int,
        arrivals_seed: int = 0,
    ) -> None:
        """Put a bench together.

        draw: the order in which launches take turns. stand_in: paces if the default never answers.
        seconds_left: of the budget; after its end a launch takes one slice. memory_bytes: the
        memory that processes may use on the host, or in its container. arrivals_seed: of the
        requests that arrive at a server.
        """
        self.memory_bytes = memory_bytes
        self._seconds_left = seconds_left
        self.store = store
        self.launcher = launcher
        self._card = card
        self._objective = objective
        self._random = draw
        self._arrivals = arrivals = ArrivalPlan(store.launches.values, objective, arrivals_seed)
        self._steps = Steps(store, card, objective, launcher, quiet, arrivals, draw)
        self.pacer = Pacer(store, launcher, self._steps.slice, stand_in or Configuration())

    @property
    def n_shapes(self) -> int:
        """Of the model's inputs."""
        return self._card.n_shapes

    @property
    def form(self) -> str:
        """Of the model: code, saved, program, service and so on."""
        return self._card.form

    def close(self) -> None:
        """Kill whatever runs; its launches stay open in the store, as interrupted."""
        self.launcher.close()
        self.pacer.forget()

    def _measure_alone(
        self,
        launch: Launch,
        planned: Replication,
        noise: Scatter,
        *,
        hopeless_below: float = -math.inf,
        is_in_round: bool = False,
        beside_neighbour: bool = False,
        checks: bool = False,
        profiles: bool = False,
    ) -> LaunchRecord:
        """Measure a launch by itself, each slice between two of the pacer while there is one."""
        launch.pause()
        self._pace(launch)
        while launch.goes_on and (
            (is_in_round and self._is_unsettled(launch))
            or (
                self._wants_slice(launch, planned, noise)
                and (is_in_round or self._has_time_for_a_slice(launch))
            )
        ):
            self._steps.await_quiet(launch.record.slices[-1:])
            self._steps.slice(launch)
            self._pace(launch)
            clean = launch.record.clean_slice
            if clean is not None and self._objective.of_slice(clean) < hopeless_below:
                return launch.finish(self._pruned(clean, hopeless_below))
        if beside_neighbour:
            self._steps.take_contended_slices([launch])
        return self._steps.conclude(launch, checks=checks, profiles=profiles)

    def _pace(self, launch: Launch) -> None:
        """Take a slice of the pacer next to a launch, if it ends within the budget."""
        if self._seconds_left() > self.pacer.slice_s:
            self.pacer.pace(launch)

    def _has_time_for_a_slice(self, launch: Launch) -> bool:
        """Tell whether a slice and the pacer's end within the budget; the first is always taken."""
        needed_s = launch.slice_s + self.pacer.slice_s
        return not launch.record.slices or self._seconds_left() > needed_s

    def _is_unsettled(self, launch: Launch, *, minimal: bool = False) -> bool:
        """Tell whether a launch of a round has not done yet what its value rests on."""
        return launch.goes_on and not self._arrivals.is_settled(launch.record, minimal=minimal)

    def _wants_slice(self, launch: Launch, planned: Replication, noise: Scatter) -> bool:
        """Tell whether one more slice of a launch is worth its seconds."""
        if uses_arrivals(launch.record, self._objective):
            return False  # what trials do not tell, slices do not
        slices = launch.record.slices
        clean = [s for s in slices if not s.interference.dirty]
        log_scores = [self._objective.of_slice(s) for s in clean or slices]
        seen = noise.with_slices(scatter(log_scores) if slices else 0.0, len(log_scores))
        slice_s = launch.slice_s + self.pacer.slice_s
        needed = n_needed(replication(planned, self._card), seen, launch.fixed_s, slice_s)
        return wants_more(len(clean), len(slices), needed)

    def measure(
        self,
        configuration: Configuration,
        purpose: Purpose,
        *,
        noise: Scatter,
        hopeless_below: float = -math.inf,
        beside_neighbour: bool = False,
    ) -> LaunchRecord:
        """Measure a configuration in one new launch, each slice between two of the pacer.

        noise: the scatter of launches and slices so far, from which the number of slices follows.
        hopeless_below: a score; an undisturbed first slice below it ends the launch as pruned.
        beside_neighbour: at the end, take a slice next to a synthetic busy neighbour.

        A failure is the record's ending, never an exception.
        """
        launch = self.launcher.start(configuration, purpose, pacer_block=self.pacer.block())
        return self._measure_alone(
            launch,
            SEARCH,
            noise,
            hopeless_below=hopeless_below,
            beside_neighbour=beside_neighbour,
            checks=True,
        )

    def measure_several(
        self,
        configurations: Sequence[Configuration],
        purpose: Purpose,
        *,
        noise: Scatter,
        hopeless_below: Callable[[Configuration], float] = lambda _: -math.inf,
    ) -> list[LaunchRecord]:
        """Measure configurations, each as `measure` does; records in their order.

        As many as may be are prepared side by side; then one after another is measured, while the
        others are stopped.
        """
        records: list[LaunchRecord] = []
        while len(records) < len(configurations):
            waiting = configurations[len(records) :]
            group = waiting[: self.launcher.n_together(waiting)]
            launches = self.launcher.start_together(group, purpose, pacer_block=self.pacer.block())
            measured = [
                self._measure_alone(
                    launch,
                    SEARCH,
                    noise,
                    hopeless_below=hopeless_below(configuration),
                    checks=True,
                )
                for configuration, launch in zip(group, launches, strict=True)
            ]
            records += [
                self.measure(c, purpose, noise=noise, hopeless_below=hopeless_below(c))
                if _died_in_company(record)
                else record
                for c, record in zip(group, measured, strict=True)
            ]
        return records

    def try_out(self, configuration: Configuration, purpose: Purpose) -> LaunchRecord:
        """Launch a configuration and compare its outputs, without a slice.

        A failure is the record's ending, never an exception.
        """
        return self._steps.conclude(self.launcher.start(configuration, purpose), checks=True)

    def may_profile(self, configuration: Configuration) -> bool:
        """Tell whether a configuration was neither profiled, nor tried in vain in this session."""
        return self._steps.may_profile(configuration)

    def measure_round(
        self,
        arms: list[Configuration],
        number: int,
        purpose: Purpose,
        *,
        noise: Scatter,
        seconds: float = math.inf,
        beside_neighbour: bool = False,
        checks: bool = False,
        profiled: Collection[Configuration] = (),
    ) -> list[LaunchRecord]:
        """Measure one new launch of every arm, interleaved; records are in the order of the arms.

        All launches are in memory at the same time. In each pass every arm takes one slice, in
        random order. A pass with a disturbed slice is repeated as a whole. If memory does not hold
        all launches, they take turns in random order. If the value rests on single calls, every
        launch makes as many as it needs.

        seconds: after this time no passes beyond the minimum are begun, and there is no waiting for
        quiet. beside_neighbour: at the end, every arm takes a slice next to a synthetic busy
        neighbour. checks: then compare outputs that were not compared yet. profiled: arms that are
        profiled last.

        Failures are endings, not exceptions.
        """
        began_s = self.store.used_s()
        order = self._random.sample(range(len(arms)), len(arms))
        known = [r for r in map(self._last_prepared, arms) if r is not None]
        if known and not self.launcher.fit(known):
            records = {
                i: self._measure_alone(
                    self.launcher.start(arms[i], purpose, round_number=number),
                    FIXED,
                    noise,
                    is_in_round=True,
                    beside_neighbour=beside_neighbour,
                    checks=checks,
                    profiles=arms[i] in profiled,
                )
                for i in order
            }
            return [records[i] for i in range(len(arms))]
        resident = self._residents([arms[i] for i in order], purpose, number)
        launches = dict(zip(order, resident, strict=True))
        self._take_passes(launches.values(), noise, minimal_from_s=began_s + seconds)
        if beside_neighbour:
            self._steps.take_contended_slices(launches.values())
        records = {
            i: self._steps.conclude(launch, checks=checks, profiles=arms[i] in profiled)
            for i, launch in launches.items()
        }
        return [records[i] for i in range(len(arms))]

    def _residents(
        self, arms: Sequence[Configuration], purpose: Purpose, number: int
    ) -> list[Launch]:
        """Launch the arms of a round, as many side by side as may be; all wait on return."""
        found: list[Launch] = []
        while len(found) < len(arms):
            waiting = arms[len(found) :]
            group = waiting[: self.launcher.n_together(waiting)]
            launches = self.launcher.start_together(group, purpose, round_number=number)
            for arm, launch in zip(group, launches, strict=True):
                again = launch
                if _died_in_company(launch.record):
                    again = self.launcher.start(arm, purpose, round_number=number)
                    again.pause()
                found.append(again)
        return found

    def _take_passes(
        self, launches: Iterable[Launch], noise: Scatter, *, minimal_from_s: float
    ) -> None:
        """Let launches take slices in passes, without those that have ended.

        minimal_from_s: the time of the budget from which less is measured, without waiting.
        """

        def minimal() -> bool:
            return self.store.used_s() > minimal_from_s

        going = [launch for launch in launches if launch.goes_on]
        while going and self._wants_pass(going, noise, minimal=minimal()):
            last = [s for each in going for s in each.record.slices[-1:]]
            if not minimal():
                self._steps.await_quiet(last)
            # an edge takes as many trials as it takes; else what a pass has in common is taken out
            taking = [
                launch for launch in going
                if self._is_unsettled(launch, minimal=minimal())
                or not uses_arrivals(launch.record, self._objective)
            ]  # fmt: skip
            for launch in self._random.sample(taking, len(taking)):
                self._steps.slice(launch)
            going = [launch for launch in going if launch.goes_on]

    def _wants_pass(self, launches: list[Launch], noise: Scatter, *, minimal: bool) -> bool:
        """Tell whether one more slice of every arm is worth its seconds."""
        if any(self._is_unsettled(launch, minimal=minimal) for launch in launches):
            return True
        if any(uses_arrivals(launch.record, self._objective) for launch in launches):
            return False
        passes = passes_of([launch.record for launch in launches], self._objective)
        planned = replication(CONFIRM, self._card)
        if minimal and passes.n_taken >= planned.least:
            return False
        needed = n_needed(
            planned,
            noise.with_slices(passes.scatter(), len(launches) * len(passes.log_scores)),
            sum(launch.fixed_s for launch in launches),
            sum(launch.slice_s for launch in launches),
        )
        return wants_more(passes.n_clean, passes.n_taken, needed)

    def _last_prepared(self, arm: Configuration) -> LaunchRecord | None:
        """Return the latest launch of an arm that got as far as its memory; else of any."""
        everything = [r for r in self.store.launches.values() if r.prepared is not None]
        own = [r for r in everything if r.request.configuration == arm]
        return next(reversed(own or everything), None)

    def _pruned(self, taken: Slice, hopeless_below: float) -> Ending:
        objective = self._objective
        value, edge = objective.value(objective.of_slice(taken)), objective.value(hopeless_below)
        beyond = "below" if objective.direction == "maximize" else "above"
        return Ending(
            Outcome.PRUNED,
            f"{value:.3g} {objective.unit} after one slice, hopeless {beyond} {edge:.3g}",
        )


def _died_in_company(record: LaunchRecord) -> bool:
    """Tell whether a launch ended without an outcome while others were prepared in parallel."""
    return record.ending is not None and record.ending.outcome is Outcome.INTERRUPTED


def launch_summary(
    record: LaunchRecord, objective: Objective, search_ratio: float | None
) -> LaunchDone:
    """Summarize a launch. search_ratio: the search's estimate of its ratio to the default."""
    request, ending = record.request, record.ending or Ending(Outcome.MEASURED)
    slices = clean_slices(record)
    value, unit = None, objective.search_unit
    if slices:  # by what the search goes by; a claim's value may be another
        value = objective.value(statistics.median(map(objective.of_slice, slices)))
    if slices and uses_arrivals(record, objective):
        (log_score,) = round_log_scores([record], objective)
        value, unit = None if log_score is None else objective.value(log_score), objective.unit
    return LaunchDone(
        launch=request.id,
        label=request.configuration.label(),
        purpose=request.purpose,
        outcome=ending.outcome,
        reason=ending.reason,
        rate=statistics.median(s.rate for s in slices) if slices else None,
        value=value,
        unit=unit,
        seconds=record.total_s,
        n_slices=len(record.slices),
        n_disturbed=n_disturbed(record.slices),
        search_ratio=search_ratio,
        is_late=bool(slices) and all(map(misses_when_idle, slices)),
    )
