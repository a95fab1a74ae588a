"""What cannot be a result of ours is named, part by part, on a study's own result."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tuner.errors import UsageError
from tuner.record.files import read_result
from tuner.record.interval import Interval
from tuner.record.result import Result
from tuner.record.result_faults import fault_of_interval, fault_of_result
from tuner.record.winner_class import WinnerClass

replace = msgspec.structs.replace


@pytest.fixture(scope="module")
def ours(finished_study: Path) -> Result:
    return read_result(finished_study / "result.json")


def test_a_studys_own_result_has_no_fault(ours: Result) -> None:
    assert fault_of_result(ours) is None


def without_ratio(result: Result) -> Result:
    same = replace(result.winners[WinnerClass.SAME_PRECISION], verdict="faster", speedup=None)
    return replace(result, winners={**result.winners, WinnerClass.SAME_PRECISION: same})


def with_ratio(result: Result, of: str, ratio: float) -> Result:
    """Return it with another ratio of the search in the first of its rows."""
    first, *others = getattr(result, of)
    return replace(result, **{of: [replace(first, search_ratio=ratio), *others]})


def with_round(result: Result, *log_rates: float | None) -> Result:
    first, *others = result.confirmation.rounds
    rounds = [replace(first, log_rates=list(log_rates)), *others]
    return replace(result, confirmation=replace(result.confirmation, rounds=rounds))


def n_arms(result: Result) -> int:
    return len(result.confirmation.arms)


FAULTS: dict[str, Callable[[Result], Result]] = {
    "it is of version 0, and this tool reads": lambda r: replace(r, schema_version=0),
    "it has no winner of the class reduced_precision": lambda r: replace(
        r, winners={k: w for k, w in r.winners.items() if k != WinnerClass.REDUCED_PRECISION}
    ),
    "the winner of same_precision is faster and has no speedup": without_ratio,
    "its verdict or speedup is not that of its winner of": lambda r: replace(r, speedup=None),
    "its best_baseline 'nobody' is no baseline of it": lambda r: replace(r, best_baseline="nobody"),
    "its device is 'cuda', and host.identity names no GPU": lambda r: replace(r, device="cuda"),
    "its metric 'joy' is unknown": lambda r: replace(
        r, objective=replace(r.objective, metric="joy")
    ),
    "a ratio in it is not above 0": lambda r: with_ratio(r, "trials", 0.0),
    "the default's value in its search is not above 0": lambda r: replace(
        r, default=replace(r.default, search_value=0.0)
    ),
    "a batch in it is below 1": lambda r: replace(r, reference_batch=0),
    "round 1 of its confirmation has not one rate for each arm": lambda r: with_round(
        r, *[0.0] * (n_arms(r) + 1)
    ),
    "round 1 of its confirmation holds what is no logarithm of a value": lambda r: with_round(
        r, 1e6, *[None] * (n_arms(r) - 1)
    ),
    "speedup_over_best_baseline is no interval: 2.0 - 1.0 - 3.0": lambda r: replace(
        r, speedup_over_best_baseline=Interval(1.0, 2.0, 3.0, 0.95)
    ),
    "default.batch is too large a number": lambda r: replace(
        r, default=replace(r.default, batch=2**80)
    ),
    "host.identity: ": lambda r: replace(r, host=replace(r.host, identity={})),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_no_study_writes_is_named(ours: Result, fault: str) -> None:
    found = fault_of_result(FAULTS[fault](ours))
    assert found is not None and found.startswith(fault)


@pytest.mark.parametrize("of", ["baselines", "trials"])
def test_every_ratio_is_above_0(ours: Result, of: str) -> None:
    assert fault_of_result(with_ratio(ours, of, -1.0)) == "a ratio in it is not above 0"
    assert fault_of_result(with_ratio(ours, of, 0.01)) is None


def test_what_failed_in_a_round_has_no_rate_there(ours: Result) -> None:
    assert fault_of_result(with_round(ours, *[None] * n_arms(ours))) is None


@pytest.mark.parametrize(
    ("numbers", "is_one"),
    [
        ((1.0, 1.0, 1.0, 0.95), True),
        ((1.0, 0.0, 2.0, 0.95), False),
        ((1.0, 1.1, 2.0, 0.95), False),
        ((2.1, 1.0, 2.0, 0.95), False),
        ((1.5, 1.0, 2.0, 0.0), False),
        ((1.5, 1.0, 2.0, 1.0), False),
        ((1.5, 1.0, float("nan"), 0.95), False),
    ],
)
def test_an_interval_holds_its_point_and_is_above_0(numbers: Any, is_one: bool) -> None:
    assert (fault_of_interval(Interval(*numbers), "x") is None) is is_one


def test_an_unknown_class_is_refused_with_its_name(finished_study: Path, tmp_path: Path) -> None:
    written = json.loads((finished_study / "result.json").read_text())
    (tmp_path / "result.json").write_text(json.dumps({**written, "recommended_class": "best"}))
    with pytest.raises(UsageError, match="Invalid enum value 'best'"):
        read_result(tmp_path / "result.json")
