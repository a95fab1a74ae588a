"""Whether a configuration runs here at all: one launch of it, its outputs compared once.

What rules of other models recommend may not build for this one, may not take effect in it, or may
change its outputs. That costs one launch to find out, and no measurement.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from tuner.errors import NothingMeasured
from tuner.host.identity import Host
from tuner.launchers.asking import Deadline
from tuner.launchers.describe import make_reference
from tuner.launchers.testbed import Testbed
from tuner.measurement.bench import Bench, bench_on
from tuner.record.configuration import Configuration
from tuner.record.events import Listener
from tuner.record.launch import Purpose
from tuner.record.objective import Objective
from tuner.record.outcome import Ending, Outcome
from tuner.record.store import Store
from tuner.record.workload import ModelFacts, Workload
from tuner.space.launching import gpu_of


class Fault(msgspec.Struct, frozen=True):
    """Why a configuration cannot be recommended here."""

    ending: Ending
    ineffective: tuple[str, ...] = ()
    """Knobs that did not take effect."""

    def __str__(self) -> str:
        return f"{self.ending.outcome.replace('_', ' ')}: {self.ending.reason}"


class TimeIsUp(Exception):
    """No time was left to launch a configuration, so nothing is known against it."""

    def __init__(self, *, is_by_default: bool = False) -> None:
        """is_by_default: the default alone took all the time, so nothing can be tried here."""
        super().__init__()
        self.is_by_default = is_by_default


class TrialRun:
    """Launches of one workload's configurations, one each."""

    def __init__(
        self, store: Store, bench: Bench, make: Callable[[], None], left_s: Callable[[], float]
    ) -> None:
        """make: writes the reference that outputs are compared with."""
        self._store, self._bench, self._make, self._left_s = store, bench, make, left_s
        self._faults: dict[Configuration, Fault | None] = {Configuration(): None}

    @property
    def is_over(self) -> bool:
        """Whether the time is up."""
        return self._left_s() <= 0

    def fault(self, configuration: Configuration) -> Fault | None:
        """Return why a configuration does not run here with correct outputs; None if it does.

        Raises TimeIsUp if that is unknown and no time is left to find out.
        """
        if configuration not in self._faults:
            self._faults[configuration] = self._tried(configuration)
        return self._faults[configuration]

    def _tried(self, configuration: Configuration) -> Fault | None:
        if self.is_over:
            raise TimeIsUp
        if not self._store.reference_path.exists():
            self._make_in_time()
        record = self._bench.try_out(configuration, Purpose.ANCHOR)
        ending = record.ending or Ending(Outcome.INTERRUPTED, "it did not end")
        if ending.outcome is Outcome.MEASURED:
            return None
        read_back = record.prepared.read_back if record.prepared else ()
        return Fault(ending, tuple(item.knob for item in read_back if not item.in_force))

    def _make_in_time(self) -> None:
        try:
            self._make()
        except NothingMeasured as error:
            if self.is_over:
                raise TimeIsUp(is_by_default=True) from error
            raise


@contextmanager
def trial_runs(
    workload: Workload,
    facts: ModelFacts,
    objective: Objective,
    host: Host,
    seconds: float,
    listen: Listener,
    testbed: Testbed,
) -> Iterator[TrialRun]:
    """Yield what launches configurations of a workload, in a folder that is deleted afterwards.

    seconds: for all launches together, the reference of the default's outputs included. A model
    that cannot be built without settings raises as make_reference() does.
    """
    began_s = testbed.clock.now_s()

    def left_s() -> float:
        return seconds - (testbed.clock.now_s() - began_s)

    with (
        tempfile.TemporaryDirectory(prefix="tune-framework-") as folder,
        Store(Path(folder) / "study", is_kept=False) as store,
    ):
        bench = bench_on(testbed, 
            store, host, workload, facts, objective, listen,
            session=1, seed=0, seconds_left=left_s, waiting_s=0.0, is_cut=True,
        )  # fmt: skip

        def make() -> None:
            make_reference(
                workload.model,
                workload.framework,
                workload.seed,
                store.reference_path,
                workload.card.n_reference_inputs(),
                Deadline(left_s(), listen, is_strict=True),
                gpu_of(workload.device, host),
                testbed=testbed,
                mode=workload.mode,
            )

        try:
            yield TrialRun(store, bench, make, left_s)
        finally:
            bench.close()
