"""Ours over vendors' recommendations: of rounds whose truth is written down."""

import json
import math
from pathlib import Path

import pytest

from benchmarks.claim import (
    gain,
    in_words,
    level,
    over_best_mean,
    tell_frameworks,
    tell_precision,
    tell_vendors,
)
from benchmarks.guideline_rounds import Pair, read_pairs
from tuner.record.configuration import Configuration
from tuner.record.winner_class import WinnerClass

DEFAULT = Configuration()
TCMALLOC = Configuration.of({"launch.allocator": "tcmalloc"})
JEMALLOC = Configuration.of({"launch.allocator": "jemalloc"})
LOW = Configuration.of({"torch.autocast": "bf16"})


def test_the_best_vendor_is_chosen_by_other_rounds() -> None:
    """One that was lucky in a round is not what this round is compared with."""
    rounds = [
        {DEFAULT: 0.0, TCMALLOC: 0.5, JEMALLOC: 0.1, LOW: 1.0},
        {DEFAULT: 0.0, TCMALLOC: 0.1, JEMALLOC: 0.2, LOW: 1.0},
        {DEFAULT: 0.0, TCMALLOC: 0.1, JEMALLOC: 0.2, LOW: 1.0},
    ]
    # in the first round jemalloc is the best of the others, in both others it is tcmalloc
    assert gain(rounds, LOW, [TCMALLOC, JEMALLOC]) == pytest.approx((0.9 + 0.9 + 0.9) / 3)
    assert gain(rounds, LOW, [DEFAULT]) == pytest.approx(1.0)
    assert math.isnan(gain(rounds[:1], LOW, [DEFAULT]))  # no other round to choose by
    assert math.isnan(gain(rounds, LOW, [Configuration.of({"launch.instances": 2})]))


def test_beside_it_stands_the_vendor_that_was_lucky_over_all() -> None:
    rounds = [
        {DEFAULT: 0.0, TCMALLOC: 0.5, LOW: 1.0},
        {DEFAULT: 0.2, TCMALLOC: 0.1, LOW: 1.0},
    ]
    assert over_best_mean(rounds, LOW, [DEFAULT, TCMALLOC]) == pytest.approx(0.7)
    # each is the best in the round that it does not stand in: more than over the lucky one
    assert gain(rounds, LOW, [DEFAULT, TCMALLOC]) == pytest.approx(0.95)
    assert math.isnan(over_best_mean(rounds, JEMALLOC, [DEFAULT]))


def test_what_failed_in_a_round_is_left_out_there() -> None:
    rounds = [{DEFAULT: 0.0, LOW: 1.0}, {LOW: 2.0}, {DEFAULT: 0.0, LOW: 3.0}, {DEFAULT: 0.0}]
    assert gain(rounds, LOW, [DEFAULT]) == pytest.approx(2.0)
    # the best one failed in half of the rounds: no weaker one takes its place there
    even = {DEFAULT: 0.0, TCMALLOC: 1.0, LOW: 1.0}
    assert gain([even, even, {DEFAULT: 0.0, LOW: 1.0}], LOW, [DEFAULT, TCMALLOC]) == 0.0


def test_a_folder_of_rounds_is_read(tmp_path: Path) -> None:
    arms = {"default": DEFAULT, "best known same": TCMALLOC, "best known reduced": LOW,
            "guideline same": DEFAULT, "guideline reduced": LOW, "a_guide": JEMALLOC,
            "another": LOW, "packrat": DEFAULT}  # fmt: skip
    folder = tmp_path / "wide-and-deep-torch"
    folder.mkdir()
    written = {name: c.as_dict() for name, c in arms.items()}
    (folder / "arms.json").write_text(json.dumps({"host": "a host", "arms": written}))
    row = [[c.as_dict(), n / 10] for n, c in enumerate(dict.fromkeys(arms.values()))]
    row[-1][1] = None  # jemalloc failed
    (folder / "rounds.jsonl").write_text(json.dumps(row) + "\n" + json.dumps([[{}, 1.0]]) + "\n")
    (pair,) = read_pairs(tmp_path)
    assert (pair.model, pair.framework) == ("wide-and-deep", "torch")
    assert pair.rounds == [{DEFAULT: 0.0, TCMALLOC: 0.1, LOW: 0.2}]
    assert pair.vendors(WinnerClass.SAME_PRECISION) == {"a_guide": JEMALLOC}
    assert pair.vendors(WinnerClass.REDUCED_PRECISION) == {"a_guide": JEMALLOC, "another": LOW}
    assert level(pair, "best known reduced_precision") == pytest.approx(0.2)
    assert math.isnan(level(pair, "a_guide"))


def test_each_class_is_compared_with_recommendations_of_its_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    compiled = Configuration.of({"torch.compile.mode": "default"})
    both = {"default": DEFAULT, "best known same_precision": compiled,
            "best known reduced_precision": compiled,
            "guideline same_precision": DEFAULT, "guideline reduced_precision": LOW,
            "a_guide": TCMALLOC,
            "a_reduced_guide": LOW}  # fmt: skip
    three = {**both, "best known no_code": JEMALLOC, "guideline no_code": DEFAULT}
    rates = {DEFAULT: 0.0, TCMALLOC: 0.1, JEMALLOC: 0.2, compiled: 0.3, LOW: 0.5}
    pairs = [Pair("fc", "torch", three, [rates] * 2), Pair("fc", "tensorflow", both, [rates] * 2)]
    tell_vendors(pairs)
    tell_precision(pairs)
    tell_frameworks(pairs)
    told = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    over = "over the best vendor's, chosen by other rounds"
    assert f"torch best known no_code {over} {math.exp(0.1):.3f}x, 1 model" in told
    assert f"torch best known same_precision {over} {math.exp(0.2):.3f}x, 1 model" in told
    assert f"torch best known reduced_precision {over} {math.exp(-0.2):.3f}x, 1 model" in told
    assert not any("tensorflow" in line and "no_code" in line for line in told if over in line)
    assert f"torch best known over a_guide {math.exp(0.1):.3f}x, 1 model" in told
    assert f"tensorflow best known over a_guide {math.exp(0.2):.3f}x, 1 model" in told
    of_known = "best known reduced_precision over best known same_precision, where it is another"
    assert f"torch {of_known} no model" in told
    of_guideline = "guideline reduced_precision over guideline same_precision, where it is another"
    assert f"torch {of_guideline} {math.exp(0.5):.3f}x, 1 model" in told
    assert "torch over tensorflow, best known no_code no model" in told
    assert "torch over tensorflow, best known same_precision 1.000x, 1 model" in told


def test_a_mean_says_over_how_many_models() -> None:
    assert in_words([math.nan]) == "no model"
    assert in_words([0.0, math.nan]) == "1.000x, 1 model"
    assert in_words([0.1, 0.1, math.nan]).startswith("1.105x (1.105 - 1.105), 2 models")
