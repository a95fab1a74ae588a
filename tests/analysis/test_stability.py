"""Whether every launch of a winner gains, and what ships where it does not, from written rounds."""

import math
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.study.studies import new_study
from tests.study.test_claims import DEFAULT, TUNED, add_round
from tuner.analysis.stability import stability, stability_of
from tuner.analysis.warnings import study_warnings
from tuner.analysis.winners import recommended_class
from tuner.measurement.confirmation import LOOKS
from tuner.record.configuration import Configuration
from tuner.record.journal import ArmsChosen, FinalistNamed, Phase
from tuner.record.store import Store
from tuner.record.winner_class import WinnerClass
from tuner.study.claims import Claims
from tuner.study.confirm import make_claims
from tuner.study.study import Study

NO_CODE = Configuration.of({"launch.allocator": "jemalloc"})
SAME = WinnerClass.SAME_PRECISION
ARMS = (NO_CODE, TUNED)


@pytest.fixture
def study(tmp_path: Path) -> Iterator[Study]:
    with Store(tmp_path / "study") as store:
        for winner_class in WinnerClass:
            finalist = NO_CODE if winner_class is WinnerClass.NO_CODE else TUNED
            store.add(FinalistNamed(Phase.MINIMISE, winner_class, finalist))
        store.add(ArmsChosen(ARMS, None, at_reference=False, looks=LOOKS))
        yield new_study(store, tmp_path, 1000.0)


def steady(gain: float) -> list[float]:
    """Return nine rounds' gains of which none is a loss."""
    return [gain + 0.003 * (-1) ** k for k in range(9)]


def shaky(gain: float) -> list[float]:
    """Return nine rounds' gains of which three are losses; faster on average all the same."""
    return [gain if k % 3 else -0.02 * gain for k in range(9)]


def claims(
    study: Study,
    of_launch_only: list[float],
    of_same: list[float],
    host: Callable[[int], float] = lambda _: 0.0,
) -> Claims:
    """Write rounds on a host that runs so fast (log) in each; return what they allow to say."""
    for k, gains in enumerate(zip(of_launch_only, of_same, strict=True)):
        rates = {DEFAULT: 0.0} | dict(zip(ARMS, gains, strict=True))
        add_round(study.store, k + 1, {c: rate + host(k) for c, rate in rates.items()})
    study.evaluation.refresh()
    return make_claims(study)


@pytest.mark.parametrize(
    ("n_rounds", "one_in"), [(1, 2), (4, 2), (6, 3), (9, 4), (12, 5), (18, 7), (60, 21)]
)
def test_the_rounds_would_miss_one_launch_in_so_many_and_meet_more_frequent_ones(
    n_rounds: int, one_in: int
) -> None:
    assert stability_of(0, n_rounds).unseen_one_in == one_in
    assert (1 - 1 / one_in) ** n_rounds >= 0.05
    assert (1 - 1 / (one_in - 1)) ** n_rounds < 0.05


@pytest.mark.parametrize(
    ("n_slower", "n_rounds", "word"),
    [
        (0, 4, "unknown"),
        (0, 10, "unknown"),  # the upper bound is 21.7 %
        (0, 11, "stable"),  # 19.998 %
        (0, 18, "stable"),
        (1, 18, "unknown"),
        (1, 4, "unknown"),
        (2, 4, "unstable"),  # 12 %
        (2, 5, "unknown"),  # 9.4 %
        (3, 9, "unstable"),
        (4, 14, "unstable"),  # 10.1 %
        (4, 15, "unknown"),  # 9.4 %
        (4, 4, "unstable"),
    ],
)
def test_the_word_depends_on_how_many_launches_tell(
    n_slower: int, n_rounds: int, word: str
) -> None:
    found = stability_of(n_slower, n_rounds)
    assert found.word == word
    assert found.low <= found.probability == n_slower / n_rounds <= found.high


@pytest.mark.parametrize(
    ("n_slower", "n_rounds", "low", "high"),
    [(0, 9, 0.0, 0.2376), (1, 10, 0.011, 0.381), (9, 9, 0.7624, 1.0)],
)
def test_the_interval_is_jeffreys(n_slower: int, n_rounds: int, low: float, high: float) -> None:
    found = stability_of(n_slower, n_rounds)
    assert found.low == pytest.approx(low, abs=1e-3)
    assert found.high == pytest.approx(high, abs=1e-3)


def test_a_host_whose_speed_doubles_between_rounds_makes_no_launch_slow(study: Study) -> None:
    """Against the default's median over all rounds, half of these launches would be slower."""
    gains = [0.1 + 0.003 * (-1) ** k for k in range(12)]
    found = claims(study, gains, gains, host=lambda k: math.log(2) * (k // 2 % 2))
    median = statistics.median(found.rounds.series(DEFAULT).known())
    assert sum(log_score < median for log_score in found.rounds.series(TUNED).known()) == 6
    judged = stability(found, found.claim(WinnerClass.SAME_PRECISION))
    assert judged is not None
    assert (judged.n_slower, judged.n_rounds, judged.word) == (0, 12, "stable")


def test_a_winner_that_loses_in_every_third_launch_is_faster_and_unstable(study: Study) -> None:
    found = claims(study, steady(0.3), shaky(0.5))
    claim = found.claim(WinnerClass.SAME_PRECISION)
    judged = stability(found, claim)
    assert judged is not None
    assert (claim.verdict, judged.n_slower, judged.word) == ("faster", 3, "unstable")


def test_nothing_is_said_of_the_launches_of_what_is_not_claimed(study: Study) -> None:
    """That half of the launches of what is as fast as the default are slower is no news."""
    found = claims(study, steady(0.3), steady(0.0))
    assert stability(found, found.claim(WinnerClass.SAME_PRECISION)) is None


@pytest.mark.parametrize(
    ("of_launch_only", "of_same", "recommended", "unstable"),
    [
        (steady(0.30), shaky(0.5), WinnerClass.NO_CODE, [TUNED]),  # 1.35x instead of 1.39x
        (steady(0.30), steady(0.33), SAME, []),  # stable itself
        (steady(0.15), shaky(0.5), SAME, [TUNED]),  # 1.16x is no match for 1.39x
        (shaky(0.49), shaky(0.5), SAME, [NO_CODE, TUNED]),  # no better
        (steady(0.0), shaky(0.05), SAME, [TUNED]),  # not faster than the default
    ],
)
def test_an_unstable_winner_gives_way_to_one_that_is_not_and_nearly_as_fast(
    study: Study,
    of_launch_only: list[float],
    of_same: list[float],
    recommended: str,
    unstable: list[Configuration],
) -> None:
    found = claims(study, of_launch_only, of_same)
    assert found.claim(WinnerClass.SAME_PRECISION).verdict == "faster"
    winner_class = recommended_class(found, "same")
    assert winner_class == recommended
    told = [
        text for text in study_warnings(study, found, winner_class) if "unstable: in 3 of 9" in text
    ]
    assert [text.split()[0] for text in told] == [c.label() for c in unstable]
    instead = (
        "the winner with no code change is recommended instead: its 1.35x is nearly as fast as "
        "1.39x, and it was not found unstable"
    )
    assert any(instead in text for text in told) == (recommended == "no_code")
