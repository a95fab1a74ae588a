"""The search finds the best there is: whole studies on the fake's surface, on a virtual clock.

Launches are made up: each deals what the fake model would have answered, so that the outcome is
the seed's and no host's.
"""

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from benchmarks.recorded_bench import recorded_bench
from tests.host.libraries import Describe
from tests.made_up import made_up
from tuner.app.plan import Plan, plan
from tuner.app.request import Request
from tuner.host.identity import probe
from tuner.record.configuration import Configuration
from tuner.record.store import Store
from tuner.record.winner_class import WinnerClass
from tuner.search.search import Search
from tuner.study.baselines import measure_baselines
from tuner.study.confirm import confirm, make_claims
from tuner.study.costs import Budget, Costs
from tuner.study.evaluation import Evaluation
from tuner.study.explore import explore
from tuner.study.minimise import minimise
from tuner.study.planner import Planner
from tuner.study.race import race
from tuner.study.study import Study
from tuner.worker.frameworks.fake import Surface
from tuner.worker.frameworks.fake.surface import CHOICES

BATCHES = (4, 16)
BUDGET_S = 13.0


@pytest.fixture
def planned(system_libraries: Describe) -> Plan:
    system_libraries("tcmalloc", "jemalloc")
    return plan(Request(model="fake", hardware="fake"), probe())[0]


def winner(planned: Plan, surface: Surface, folder: Path) -> Configuration:
    """Return the settings that a study of every class would ship as `reduced`."""
    source = made_up(surface, BATCHES[0])
    budget = Budget(BUDGET_S, clock=source.clock)
    with Store(folder / "study") as store:
        store.used_s = budget.used_s
        evaluation = Evaluation(store, BATCHES[0], BATCHES)
        costs = Costs(store, evaluation)
        bench = recorded_bench(source, store, planned.workload.card, budget, surface.seed)
        search = Search(
            folder / "study.db", planned.space, evaluation.tried, surface.seed,
            sd=evaluation.score_sd, cost_s=costs.own_s,
        )  # fmt: skip
        study = Study(store, planned.space, planned.baselines, bench, evaluation, costs, search,
                      budget, lambda _: None, WinnerClass.REDUCED_PRECISION)  # fmt: skip
        Planner(study).run([measure_baselines, explore, race, minimise, confirm])
        return make_claims(study).claim(WinnerClass.REDUCED_PRECISION).configuration


def optimum(surface: Surface) -> float:
    combinations = itertools.product(*CHOICES.values())
    return max(surface.log_rate(dict(zip(CHOICES, c, strict=True))) for c in combinations)


def losses_of(planned: Plan, seeds: Iterable[int], folder: Path) -> Iterator[float]:
    """Yield by how much what a study recommends is slower than the best there is."""
    for seed in seeds:
        surface = Surface(seed)
        found = winner(planned, surface, folder / str(seed))
        yield optimum(surface) - surface.log_rate(found.as_dict())


def test_the_optimum_is_found(planned: Plan, tmp_path: Path) -> None:
    assert list(losses_of(planned, [1], tmp_path)) == pytest.approx([0], abs=1e-9)


@pytest.mark.slow
def test_the_optimum_is_found_wherever_the_seed_puts_it(planned: Plan, tmp_path: Path) -> None:
    """In at least 9 of 10 studies."""
    n_found = 0
    losses = []
    for loss in losses_of(planned, range(10), tmp_path):
        losses.append(loss)
        n_found += abs(loss) < 1e-9
        if n_found == 9:
            break
    assert n_found == 9, losses
