"""How much may be left to find, from trials that are written by hand."""

from pathlib import Path

import pytest

from tuner.analysis.sections import unexplored_bound
from tuner.record.configuration import Configuration, Value
from tuner.record.journal import TrialNoted
from tuner.record.outcome import Ending, Outcome
from tuner.record.store import Store
from tuner.record.study_stats import LeftToFind
from tuner.study.evaluation import Evaluation


def test_only_draws_at_random_count_each_for_the_class_that_alone_allows_it(
    tmp_path: Path,
) -> None:
    allocator: dict[str, Value] = {"launch.allocator": "tcmalloc"}
    layout: dict[str, Value] = {"fake.layout": "packed"}
    reduced: dict[str, Value] = {"fake.precision": "bf16"}
    trials: list[tuple[dict[str, Value], str]] = [
        ({}, "default"),
        (allocator, "a guide"),
        (layout, "random"),
        ({**layout, **allocator}, "random"),
        ({**layout, "fake.streams": 2}, "union"),
        ({"fake.streams": 2}, "surrogate"),
        ({"fake.compile": "fast"}, "rest"),
        ({"fake.compile": "frozen"}, "tpe"),
        ({**reduced, **layout}, "random"),
    ]
    with Store(tmp_path / "study") as store:
        for number, (settings, source) in enumerate(trials):
            outcome = Outcome.CRASHED if number == 3 else Outcome.MEASURED  # a draw all the same
            configuration = Configuration.of(settings)
            store.add(TrialNoted(number, configuration, source, Ending(outcome), (), 1.0))
        found = unexplored_bound(Evaluation(store, 4, (4,)))
    assert found == {
        "same_precision": LeftToFind(2, 0.7764),
        "reduced_precision": LeftToFind(1, 0.95),
    }


@pytest.mark.parametrize(("n", "share"), [(1, 0.95), (5, 0.4507), (59, 0.0495), (299, 0.01)])
def test_the_bound_is_that_of_so_many_draws_that_all_missed(
    tmp_path: Path, n: int, share: float
) -> None:
    with Store(tmp_path / "study") as store:
        for number in range(n):
            configuration = Configuration.of({"launch.allocator": "jemalloc", "workload.batch": n})
            ending = Ending(Outcome.MEASURED)
            store.add(TrialNoted(number, configuration, "random", ending, (), 1.0))
        found = unexplored_bound(Evaluation(store, 4, (4,)))
    assert found == {"no_code": LeftToFind(n, share)}
    assert (1 - share) ** n == pytest.approx(0.05, abs=0.002)
