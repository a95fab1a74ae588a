"""Pairs of training runs with one seed: the default, and a configuration.

Both have the same first weights and samples, and the same dropout where they draw the same numbers:
what a seed does to one it does to the other. Runs follow each other, the first of a pair in turn;
how long they take does not matter to the number of their steps.
"""

from __future__ import annotations

import contextlib
import itertools
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from tuner.errors import NothingMeasured, UsageError
from tuner.host.identity import Host
from tuner.launchers.asking import Deadline
from tuner.launchers.testbed import Testbed
from tuner.record.configuration import Configuration
from tuner.record.moments import utc_now
from tuner.record.protocol import LearnToTarget
from tuner.record.time_to_target import Pair, StoredRun, TrainingRun, add_run, read_runs
from tuner.record.workload import CPU, ModelRef
from tuner.space.knobs_of.torch import RANKS
from tuner.space.launching import plan_launch

_COMPILED = "compiled"
"""Of a study's folder: the compiler's cache."""
_DEFAULT = Configuration()


class TrainedModel(msgspec.Struct, frozen=True):
    """What is trained."""

    model: ModelRef
    source_sha256: str
    framework: str
    batch: int
    device: str = CPU


class PairedRuns:
    """The runs of a folder, and more of them."""

    def __init__(
        self,
        trained: TrainedModel,
        tuned: Configuration,
        folder: Path,
        host: Host,
        left_s: Callable[[], float],
        on_run: Callable[[str], None],
        testbed: Testbed,
    ) -> None:
        """left_s: returns the seconds that may be used. on_run: called with a line about each run.

        Raises UsageError for settings that are invalid on this host, or for damaged runs.
        """
        self._trained = trained
        self._folder = folder
        self._left_s = left_s
        self._on_run = on_run
        self._testbed = testbed
        self._tuned = tuned
        plans = {arm: plan_launch(arm, host, trained.device) for arm in (_DEFAULT, tuned)}
        if len(plans[tuned]) > 1 or tuned.get(RANKS) not in (None, 1):
            raise UsageError("several processes are not trained to a target")
        self._plans = {arm: first for arm, (first, *_) in plans.items()}
        known = [each for each in read_runs(folder) if _is_of(each, trained)]
        self._runs = {(Configuration.of(each.configuration), each.seed): each.run for each in known}
        self._wall_s = {Configuration.of(each.configuration): each.wall_s for each in known}
        self.n_added = 0
        """Runs that were made by this object."""

    def pairs(self) -> dict[int, Pair]:
        """Return the pairs that are there, by seed."""
        return {
            seed: (self._runs[_DEFAULT, seed], self._runs[self._tuned, seed])
            for seed in sorted({seed for _, seed in self._runs})
            if (_DEFAULT, seed) in self._runs and (self._tuned, seed) in self._runs
        }

    def train(self, is_enough: Callable[[Mapping[int, Pair]], bool]) -> dict[int, Pair]:
        """Make pairs until they are enough, or the time is up; return all.

        Each run is stored as soon as it has ended. Raises NothingMeasured if a run fails.
        """
        with contextlib.ExitStack() as stack:
            compiled = self._folder / _COMPILED
            if not compiled.is_dir():
                made = tempfile.TemporaryDirectory(prefix="tune-framework-")
                compiled = Path(stack.enter_context(made))
            environment = {"TORCHINDUCTOR_CACHE_DIR": str(compiled.absolute())}
            while not is_enough(pairs := self.pairs()):
                if pairs and self.pair_s > self._left_s():
                    break
                seed = next(each for each in itertools.count() if each not in pairs)
                if not self._add_pair(seed, environment):
                    break
        return self.pairs()

    @property
    def pair_s(self) -> float:
        """Seconds that a pair takes, by the last run of each; 0 before there is one."""
        return sum(self._wall_s.get(arm, 0.0) for arm in self._plans)

    def _add_pair(self, seed: int, environment: Mapping[str, str]) -> bool:
        """Make the runs of a seed that are missing; return whether both are there in time."""
        arms = list(self._plans)
        for arm in arms if seed % 2 == 0 else reversed(arms):
            if (arm, seed) in self._runs:
                continue
            try:
                self._runs[arm, seed] = self._run(arm, seed, environment)
            except (NothingMeasured, UsageError) as error:
                if isinstance(error, NothingMeasured) and self._left_s() <= 0:
                    return False
                if not self._runs:  # the file's fault, whatever is set
                    raise
                raise NothingMeasured(f"{arm.label()}, seed {seed}: {error}") from error
        return True

    def _run(self, arm: Configuration, seed: int, environment: Mapping[str, str]) -> TrainingRun:
        plan, trained = self._plans[arm], self._trained
        order = LearnToTarget(
            trained.model,
            trained.framework,
            seed,
            arm.as_dict(),
            plan.memory_policy,
            trained.batch,
            trained.device,
        )
        left_s = max(0.0, self._left_s())
        waiting = Deadline(left_s, is_strict=True, most_s=left_s, keeps_log=False)
        begun_s = self._testbed.clock.now_s()
        run = self._testbed.ask(order, [trained.model], waiting, plan=plan, environment=environment)
        assert isinstance(run, TrainingRun)
        # those of another version of the framework may have taken other steps
        self._runs = {k: r for k, r in self._runs.items() if r.versions == run.versions}
        self._wall_s[arm] = self._testbed.clock.now_s() - begun_s
        self.n_added += 1
        stored = StoredRun(
            seed,
            trained.model.label(),
            trained.framework,
            trained.device,
            trained.batch,
            arm.as_dict(),
            trained.source_sha256,
            utc_now(),
            run,
            self._wall_s[arm],
        )
        add_run(self._folder, stored)
        self._on_run(f"seed {seed}, {arm.label()}: {run.in_words()}")
        return run


def _is_of(stored: StoredRun, trained: TrainedModel) -> bool:
    """Tell whether a run is of this model, as it is trained now."""
    return (
        stored.source_sha256,
        stored.model,
        stored.framework,
        stored.device,
        stored.batch,
    ) == (
        trained.source_sha256,
        trained.model.label(),
        trained.framework,
        trained.device,
        trained.batch,
    )
