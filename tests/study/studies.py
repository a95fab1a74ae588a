"""Studies on the fake framework whose launches are written by hand."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tests.space.spaces import FAKE_DEFAULTS, machine, model, resolved, workload
from tuner.launchers.testbed import THIS_HOST
from tuner.measurement.bench import bench_on
from tuner.record.configuration import Configuration
from tuner.record.events import Event
from tuner.record.launch import LaunchRecord, Purpose
from tuner.record.objective import THROUGHPUT, Objective
from tuner.record.store import Store
from tuner.search.search import Search
from tuner.search.transfer import Earlier
from tuner.space.baselines import Baseline
from tuner.study.costs import Budget, Costs
from tuner.study.evaluation import Evaluation
from tuner.study.planner import Planner
from tuner.study.steps import NoTime, Step, Steps
from tuner.study.study import Study

T = TypeVar("T")

BASELINE = Configuration.of({"env.FAKE_THREADS": 4})


class Scripted(Study):
    """A study whose further launches are written by `write`, one after another."""

    most_together = 1

    def write(
        self, configuration: Configuration, purpose: Purpose, *, beside: bool
    ) -> LaunchRecord:
        raise NotImplementedError

    def measure(
        self,
        configuration: Configuration,
        purpose: Purpose,
        *,
        may_prune: bool = False,
        beside_neighbour: bool = False,
    ) -> LaunchRecord:
        record = self.write(configuration, purpose, beside=beside_neighbour)
        self.evaluation.refresh()
        return record

    def measure_several(
        self, configurations: Sequence[Configuration], purpose: Purpose, *, may_prune: bool = False
    ) -> list[LaunchRecord]:
        return [self.measure(c, purpose, may_prune=may_prune) for c in configurations]


def new_study(
    store: Store,
    folder: Path,
    budget_s: float,
    kind: type[Study] = Study,
    earlier: Sequence[Earlier] = (),
    *,
    memory_gib: int = 2,
    objective: Objective = THROUGHPUT,
) -> Study:
    """Return a study over what the store holds, with one baseline.

    memory_gib: of its host; 1 % of it is no cost, 20 MiB of 2 GiB.
    """
    host = machine(folder / "machine", memory_gib=memory_gib)
    space = resolved(host, "fake", FAKE_DEFAULTS, "fake")
    evaluation = Evaluation(store, 4, (4,), objective)
    costs = Costs(store, evaluation)
    budget = Budget(budget_s)
    said: list[Event] = []
    facts = model(FAKE_DEFAULTS)
    bench = bench_on(
        THIS_HOST,
        store,
        host,
        workload("fake"),
        facts,
        objective,
        said.append,
        session=1,
        seed=0,
        seconds_left=budget.left_s,
        waiting_s=0.0,
    )
    baselines = [Baseline("vendor", "a guide", BASELINE, True, "", None, ())]
    search = Search(folder / "study.db", space, evaluation.tried, 0, earlier=earlier)
    return kind(store, space, baselines, bench, evaluation, costs, search, budget, said.append)


def carried_out(
    study: Study, steps: Steps[T], refuses: Callable[[Step[Any]], bool] = lambda _: False
) -> T:
    """Have the planner answer all steps of a phase, or of a part of one; return its value.

    refuses: returns whether a step is refused, whatever time there is.
    """

    class Refusing(Planner):
        def answer(self, step: Step[Any]) -> Any:
            return NoTime() if refuses(step) else super().answer(step)

    return Refusing(study).carry_out(steps)


def is_granted(study: Study, step: Step[Any]) -> bool:
    """Tell whether the planner has time for a step, and carry it out if so."""
    return not isinstance(Planner(study).answer(step), NoTime)
