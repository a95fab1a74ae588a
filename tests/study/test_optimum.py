"""The search finds the best there is: whole studies on the fake's surface, on a virtual clock.

Launches are made up (tuner/launchers/recorded.py): each deals what the fake model
would have answered, so that the outcome is the seed's and no host's.
"""

import itertools
import math
from pathlib import Path

import pytest

from benchmarks.recorded_bench import recorded_bench
from tests.host.libraries import Describe
from tuner.host.identity import probe
from tuner.launchers.recorded import MadeUp
from tuner.plan import Plan, plan
from tuner.record.configuration import Configuration
from tuner.record.journal import WinnerClass
from tuner.record.store import Store
from tuner.request import Request
from tuner.search.search import Search
from tuner.study.baselines import measure_baselines
from tuner.study.budget import Budget
from tuner.study.confirm import confirm, make_claims
from tuner.study.costs import Costs
from tuner.study.explore import explore
from tuner.study.ledger import Ledger
from tuner.study.minimise import minimise
from tuner.study.race import race
from tuner.study.study import Study
from tuner.worker.frameworks.fake import Surface
from tuner.worker.frameworks.fake.surface import CHOICES

BATCHES = (4, 16)
BUDGET_S = 13.0
START_S, SLICE_S = 0.13, 0.01
"""What the fake's process and its slices take on a quick, quiet host."""


def made_up(surface: Surface) -> MadeUp:
    """Return launches of the fake model: its own speed, and slices that drift with the machine."""
    return MadeUp(
        lambda configuration: surface.log_rate(configuration.as_dict()),
        seed=surface.seed,
        launch_sd=surface.noise,
        slice_sd=surface.noise / 2,
        drift=lambda now_s: surface.drift * math.sin(now_s / 7 + surface.seed),
        start_s=START_S,
        slice_s=SLICE_S,
        check_s=SLICE_S,
    )


@pytest.fixture
def planned(system_libraries: Describe) -> Plan:
    system_libraries("tcmalloc", "jemalloc")
    return plan(Request(model="fake", hardware="fake"), probe())[0]


def winner(planned: Plan, surface: Surface, folder: Path) -> Configuration:
    """Return the settings that a study of every class would ship as `reduced`."""
    source = made_up(surface)
    budget = Budget(BUDGET_S, clock=source.clock)
    with Store(folder / "study") as store:
        store.used_s = budget.used_s
        ledger = Ledger(store, BATCHES[0], BATCHES)
        costs = Costs(store, ledger)
        bench = recorded_bench(source, store, planned.workload.card, budget, surface.seed)
        search = Search(
            folder / "study.db", planned.space, ledger.tried, surface.seed,
            sd=ledger.score_sd, cost_s=costs.own_s,
        )  # fmt: skip
        study = Study(store, planned.space, planned.baselines, bench, ledger, costs, search, budget,
                      lambda _: None, WinnerClass.REDUCED)  # fmt: skip
        for phase in (measure_baselines, explore, race, minimise, confirm):
            phase(study)
        return make_claims(study).claim(WinnerClass.REDUCED).configuration


def optimum(surface: Surface) -> float:
    combinations = itertools.product(*CHOICES.values())
    return max(surface.log_rate(dict(zip(CHOICES, c, strict=True))) for c in combinations)


def test_the_optimum_is_found_wherever_the_seed_puts_it(planned: Plan, tmp_path: Path) -> None:
    """In at least 9 of 10 studies."""
    losses = []
    for seed in range(10):
        surface = Surface(seed)
        found = winner(planned, surface, tmp_path / str(seed))
        losses.append(optimum(surface) - surface.log_rate(found.as_dict()))
        if sum(abs(each) < 1e-9 for each in losses) == 9:
            break
    assert sum(abs(each) < 1e-9 for each in losses) == 9, losses
