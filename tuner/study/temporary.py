"""A workload that is measured for one answer, in a folder that is deleted afterwards."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tuner.host.identity import Host
from tuner.launchers.asking import Deadline
from tuner.launchers.describe import make_reference
from tuner.launchers.testbed import Testbed
from tuner.measurement.bench import Bench, bench_on
from tuner.record.events import Listener
from tuner.record.objective import Objective
from tuner.record.store import Store
from tuner.record.workload import ModelFacts, Workload
from tuner.space.launching import gpu_of


class TemporaryStudy:
    """The store of such a measurement, its time, and its bench."""

    def __init__(
        self,
        store: Store,
        workload: Workload,
        facts: ModelFacts,
        host: Host,
        seconds: float,
        listen: Listener,
        testbed: Testbed,
    ) -> None:
        """seconds: for everything, from now on."""
        began_s = testbed.clock.now_s()
        store.used_s = lambda: testbed.clock.now_s() - began_s
        self.store = store
        self.workload = workload
        self.facts = facts
        self.host = host
        self.seconds = seconds
        self.listen = listen
        self.testbed = testbed

    def left_s(self) -> float:
        """Return the seconds that are left."""
        return self.seconds - self.store.used_s()

    def bench(
        self, objective: Objective, *, waiting_s: float = 0.0, arrivals_seed: int = 0
    ) -> Bench:
        """Return a bench, which the caller closes. No step of its launches outlasts the time."""
        return bench_on(
            self.testbed,
            self.store,
            self.host,
            self.workload,
            self.facts,
            objective,
            self.listen,
            session=1,
            seed=0,
            seconds_left=self.left_s,
            waiting_s=waiting_s,
            is_cut=True,
            arrivals_seed=arrivals_seed,
        )

    def make_reference(self, sample_seed: int = 0) -> None:
        """Write the default's outputs, with which those of other configurations are compared.

        sample_seed: which elements of large outputs are kept. Raises NothingMeasured if the time
        ends before, and UsageError as make_reference() in launchers/describe.py does.
        """
        workload = self.workload
        make_reference(
            workload.model,
            workload.framework,
            workload.seed,
            self.store.reference_path,
            workload.card.n_reference_inputs(),
            Deadline(self.left_s(), self.listen, is_strict=True),
            gpu_of(workload.device, self.host),
            sample_seed,
            self.facts.answers_with,
            self.testbed,
            workload.mode,
        )


@contextmanager
def temporary_study(
    workload: Workload,
    facts: ModelFacts,
    host: Host,
    seconds: float,
    listen: Listener,
    testbed: Testbed,
) -> Iterator[TemporaryStudy]:
    """Yield a study without a search. seconds: for everything that is measured in it."""
    with (
        tempfile.TemporaryDirectory(prefix="tune-framework-") as folder,
        Store(Path(folder) / "study", is_kept=False) as store,
    ):
        yield TemporaryStudy(store, workload, facts, host, seconds, listen, testbed)
