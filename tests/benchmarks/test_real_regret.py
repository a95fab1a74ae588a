"""Regret of real studies: by rounds in which arms may fail."""

import math
from typing import Any

import pytest

from benchmarks.real_regret import Study, arms_of, lost_to_best, over, tell_all
from tuner.record.configuration import Configuration
from tuner.record.winner_class import WinnerClass
from tuner.space.as_run import AS_RUN

DEFAULT = Configuration()
AT_BEST = Configuration.of({"workload.batch": 16})
FAST = Configuration.of({"launch.allocator": "tcmalloc"})
FASTER = Configuration.of({"launch.allocator": "jemalloc"})
LOW = Configuration.of({"torch.autocast": "bf16"})


def _won(verdict: str, configuration: dict[str, Any]) -> dict[str, Any]:
    return {"verdict": verdict, "configuration": configuration}


def study(**changed: Any) -> Study:
    trials = [({}, 1.0), ({"launch.allocator": "tcmalloc"}, 1.5), ({"torch.autocast": "bf16"}, 2.0)]
    result = {
        "winners": {
            "same_precision": _won("faster", {"launch.allocator": "tcmalloc"}),
            "reduced_precision": _won("ambiguous", {"torch.autocast": "bf16"}),
        },
        "default": {"batch": 16},
        "reference_batch": 4,
        "trials": [{"configuration": c, "search_ratio": ratio} for c, ratio in trials],
        "baselines": [
            {"name": AS_RUN, "configuration": {"launch.allocator": "jemalloc"}, "search_ratio": 3},
            {"name": "guide", "configuration": {"launch.allocator": "tcmalloc"}, "search_ratio": 2},
            {"name": "other", "configuration": {"torch.autocast": "bf16"}, "search_ratio": None},
        ],
    }
    return Study("this", 6, {**result, **changed})


def test_what_is_compared_is_what_studies_suggest() -> None:
    one = study()
    assert one.winner(WinnerClass.SAME_PRECISION) == FAST
    assert one.winner(WinnerClass.REDUCED_PRECISION) == AT_BEST  # nothing was confirmed
    assert (
        one.recommendation(WinnerClass.REDUCED_PRECISION) == FAST
    )  # what was in force before is no guide
    assert arms_of([one, one]) == [DEFAULT, AT_BEST, FAST, LOW]


def test_the_best_is_chosen_by_other_rounds_and_failed_launches_count_for_nothing() -> None:
    rounds = [
        {DEFAULT: 0.0, FAST: math.log(2), FASTER: math.log(2.2)},
        {DEFAULT: 0.1, FAST: math.log(2) + 0.1, FASTER: math.log(2.2) + 0.1},
        {DEFAULT: 0.0, FAST: math.log(2), FASTER: math.log(2.2)},
        {DEFAULT: 0.0, FASTER: math.log(2.2)},
    ]
    best, low, high = lost_to_best(rounds, FAST, [DEFAULT, FAST, FASTER])
    assert best == pytest.approx(1.1)
    assert low == pytest.approx(high)
    lucky = [*rounds[:3], {DEFAULT: 5.0, FAST: math.log(2), FASTER: math.log(2.2)}]
    assert lost_to_best(lucky, FAST, [DEFAULT, FAST])[0] <= 1
    own = over(rounds, FAST, DEFAULT)
    assert own is not None
    assert own[0] == pytest.approx(2)
    assert over(rounds, LOW, DEFAULT) is None


def test_a_class_is_worth_deciding_by_the_best_that_is_known(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Two classes gain 50 %, of which one was decided; a third was claimed, and is slower."""
    one = {"study": "this 5 min", "regret": 0.0, "over_guide": None}
    decided = one | {
        "half_width": 0.1,
        "over_default": (1.5, 1.4, 1.6),
        "best_over_default": 1.5,
    }
    missed = one | {"half_width": None, "over_default": (1, 1, 1), "best_over_default": 1.5}
    wrong = decided | {"over_default": (0.9, 0.85, 0.95), "best_over_default": 1.0}
    tell_all([decided, missed, wrong])
    told = capsys.readouterr().out
    assert "2 of 3 decided; 1 of 2 worth at least 15%), 1 claimed and surely slower" in told
