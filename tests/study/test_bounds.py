"""What the user allows: decided by intervals, not by one noisy launch."""

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.study.studies import new_study
from tuner.record.configuration import Configuration
from tuner.record.journal import TrialNoted
from tuner.record.launch import LaunchRecord, LaunchRequest, Prepared, Purpose, Slice
from tuner.record.objective import Bound, Objective
from tuner.record.outcome import Ending, Outcome
from tuner.record.store import Store
from tuner.record.winner_class import WinnerClass
from tuner.study.ablation import seems_necessary
from tuner.study.candidates import best_in
from tuner.study.compared import confirmation_arms
from tuner.study.confirm import make_claims
from tuner.study.evaluation import beyond
from tuner.study.study import Study

DEFAULT = Configuration()
SMALL = Configuration.of({"fake.layout": "packed"})
LARGE = Configuration.of({"fake.layout": "packed", "fake.streams": 2})
GIB = 2**30
BOUND = Bound("memory", 4 * GIB, "--max-memory 4G")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "study") as opened:
        yield opened


def launched(
    number: int, configuration: Configuration, gib: float, log_score: float = 0.0
) -> LaunchRecord:
    prepared = Prepared(0.1, 0.1, 0.5, True, int(gib * GIB), 0, ())
    slices = [Slice(10 * number + k, 1, 1, math.exp(-log_score), float(k)) for k in range(4)]
    request = LaunchRequest(number, configuration, 4, Purpose.SEARCH)
    return LaunchRecord(request, prepared=prepared, slices=slices, ending=Ending(Outcome.MEASURED))


@pytest.mark.parametrize(
    ("figures", "is_beyond"),
    [
        ([4.1], False),  # one launch, a little more than allowed: it may have been an unlucky one
        ([4.5], True),
        ([4.1, 4.1, 4.1, 4.1, 4.1, 4.1], True),
        ([3.9, 4.3], False),
        ([3.0], False),
    ],
)
def test_an_interval_beyond_the_bound_is_over_it(figures: list[float], is_beyond: bool) -> None:
    records = [launched(k, LARGE, gib) for k, gib in enumerate(figures, 1)]
    found = beyond(records, [BOUND])
    assert (LARGE in found) == is_beyond
    if is_beyond:
        assert "--max-memory 4G" in found[LARGE]


def test_launches_that_scatter_widely_decide_less_about_their_own_configuration() -> None:
    """A cold compiler may take twice the memory of a warm one: that excuses no other setting."""
    scattering = [launched(k, SMALL, gib) for k, gib in enumerate((3.0, 6.0, 3.0, 6.5), 1)]
    assert SMALL not in beyond(scattering, [BOUND])
    assert LARGE in beyond([*scattering, launched(9, LARGE, 4.5)], [BOUND])


def add(
    store: Store, configuration: Configuration, gib: float, log_score: float, n: int = 2
) -> None:
    ids = []
    for _ in range(n):
        id = store.next_launch_id()
        store.launches[id] = launched(id, configuration, gib, log_score)
        ids.append(id)
    number = len(store.all(TrialNoted))
    store.add(
        TrialNoted(number, configuration, "test", Ending(Outcome.MEASURED), tuple(ids), log_score)
    )


def bounded(store: Store, tmp_path: Path) -> Study:
    study = new_study(store, tmp_path, 1000.0)
    study.evaluation.objective = Objective.of("throughput", [BOUND])
    study.evaluation.refresh()
    return study


def test_the_fastest_is_no_finalist_beyond_the_bound(store: Store, tmp_path: Path) -> None:
    add(store, DEFAULT, 1.0, 0.0)
    add(store, SMALL, 2.0, 0.3)
    add(store, LARGE, 6.0, 0.9)
    study = bounded(store, tmp_path)
    assert study.candidates.candidate(WinnerClass.SAME_PRECISION) == SMALL
    assert LARGE not in study.evaluation.measured(WinnerClass.SAME_PRECISION)
    assert study.evaluation.tried()[LARGE] is None  # the search learns to keep away from there
    assert "more than --max-memory 4G" in study.evaluation.row(LARGE).ship_fault


def test_a_setting_is_needed_where_nothing_without_it_is_within_the_bound(
    store: Store, tmp_path: Path
) -> None:
    add(store, DEFAULT, 1.0, 0.0)
    add(store, LARGE, 2.0, 0.3)
    add(store, SMALL, 6.0, 0.3)
    study = bounded(store, tmp_path)
    assert seems_necessary(study, LARGE, SMALL)


def test_the_default_is_what_all_is_compared_with_whatever_it_needs(
    store: Store, tmp_path: Path
) -> None:
    add(store, DEFAULT, 5.0, 0.0)
    add(store, SMALL, 2.0, 0.3)
    study = bounded(store, tmp_path)
    found = study.evaluation.default_at_best()
    assert found is not None and found[0] == DEFAULT
    assert "a memory of 5.00 GiB is more than --max-memory 4G" in study.evaluation.default_exceeds
    assert study.candidates.candidate(WinnerClass.SAME_PRECISION) == SMALL


def test_an_arm_that_exceeds_the_bound_in_the_confirmation_is_not_claimed(
    store: Store, tmp_path: Path
) -> None:
    add(store, DEFAULT, 1.0, 0.0)
    add(store, LARGE, 6.0, 0.9)
    study = bounded(store, tmp_path)
    claim = make_claims(study).claim_of(WinnerClass.SAME_PRECISION, LARGE)
    assert (claim.verdict, "more than" in claim.reason) == ("ambiguous", True)


def test_a_batch_beyond_the_bound_is_not_what_winners_are_compared_with(
    store: Store, tmp_path: Path
) -> None:
    """The default at batch 16 is the fastest, and nobody who asks for 4 GiB can run it."""
    add(store, DEFAULT, 1.0, 0.0)
    add(store, Configuration.of({"workload.batch": 16}), 8.0, 0.7)
    add(store, SMALL, 1.0, 0.3)
    study = bounded(store, tmp_path)
    study.evaluation.batches = (4, 16)
    study.evaluation.refresh()
    best = best_in(study.evaluation, WinnerClass.SAME_PRECISION)
    assert best is not None and best[0] == SMALL
    assert confirmation_arms(study, [SMALL]) == [DEFAULT, SMALL]
    assert make_claims(study).default == DEFAULT


def test_nothing_within_the_bound_is_no_reason_to_keep_the_default(
    store: Store, tmp_path: Path
) -> None:
    add(store, DEFAULT, 1.0, 0.0)
    add(store, LARGE, 8.0, 0.7)
    claim = make_claims(bounded(store, tmp_path)).claim(WinnerClass.SAME_PRECISION)
    assert claim.verdict == "ambiguous"
    assert claim.reason.startswith("all of the 1 configurations tried exceed --max-memory 4G")
