"""What is said of rounds in which processes stood side by side."""

import math

import pytest

from benchmarks.co_location import ALONE, BESIDE, tell_slowdown
from benchmarks.other_question import tell


def test_a_call_takes_longer_by_what_the_sum_of_all_lacks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rounds = [{ALONE: math.log(each), BESIDE: math.log(2.5 * each)} for each in (90.0, 110.0)]
    tell_slowdown(rounds, 4)  # four processes do what two and a half would
    assert "takes 1.60 (1.60 - 1.60) times as long" in capsys.readouterr().out


def test_rounds_without_both_tell_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    tell_slowdown([{ALONE: 1.0, BESIDE: 1.0}, {ALONE: 1.0}], 2)
    assert "known of 1 of 2 rounds" in capsys.readouterr().out


def test_each_is_compared_with_all_before_it(capsys: pytest.CaptureFixture[str]) -> None:
    rounds = [{"a": 0.0, "b": math.log(2), "c": math.log(3)}, {"a": 0.0, "b": math.log(2)}]
    tell("title", "items/s", rounds, ("a", "b", "c"))
    out = capsys.readouterr().out
    assert "b / a: 2.00x (2.00 - 2.00), in 2 of 2 rounds" in out
    assert "c                     had a rate in 1 of 2 rounds" in out
    assert "c / a" not in out
