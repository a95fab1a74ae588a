"""How much longer a class that is not decided would take, from written rounds."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.study.studies import new_study
from tests.study.test_claims import DEFAULT, TUNED, add_round
from tuner.analysis.winners import rounds_won, seconds_to_decide
from tuner.measurement.confirmation import FIRST_LOOK, LOOKS
from tuner.record.journal import ArmsChosen, Extended, FinalistNamed, Phase, PhaseDone
from tuner.record.store import Store
from tuner.record.winner_class import WinnerClass
from tuner.study.confirm import make_claims
from tuner.study.costs import Budget
from tuner.study.forecast import Forecast
from tuner.study.study import Study

SAME = WinnerClass.SAME_PRECISION
START_S = 30.0
"""Of an extension: that of the pacer, a launch of the default."""


@pytest.fixture
def study(tmp_path: Path) -> Iterator[Study]:
    with Store(tmp_path / "study") as store:
        for winner_class in WinnerClass:
            store.add(FinalistNamed(Phase.MINIMISE, winner_class, TUNED))
        store.add(ArmsChosen((TUNED,), None, at_reference=False, looks=LOOKS))
        yield new_study(store, tmp_path, 1000.0)


def outlook(
    study: Study, gains: Sequence[float]
) -> tuple[str, tuple[int | None, int], float | None]:
    """Write a round for each gain (log); return verdict, rounds won, and seconds to decide."""
    for k, gain in enumerate(gains):
        add_round(study.store, k + 1, {DEFAULT: 0.0, TUNED: gain})
    study.evaluation.refresh()
    claims = make_claims(study)
    claim = claims.claim(SAME)
    return claim.verdict, rounds_won(claims, claim), seconds_to_decide(study, claims, claim)


def test_what_is_decided_takes_no_more_time(study: Study) -> None:
    assert outlook(study, [0.40, 0.41, 0.40, 0.41]) == ("faster", (4, 4), None)


def test_a_gain_that_scatters_takes_more_rounds_the_more_it_scatters(tmp_path: Path) -> None:
    needed = []
    for scatter in (0.06, 0.09):
        folder = tmp_path / str(scatter)
        with Store(folder / "study") as store:
            store.add(FinalistNamed(Phase.MINIMISE, SAME, TUNED))
            store.add(ArmsChosen((TUNED,), None, at_reference=False, looks=LOOKS))
            gains = [0.1 + scatter, 0.1 - scatter, 0.1 + scatter, 0.1 - scatter]
            study = new_study(store, folder, 1000.0)
            verdict, n_won, seconds = outlook(study, gains)
            assert (verdict, n_won) == ("ambiguous", (4, 4))
            assert seconds is not None
            needed.append((seconds - START_S) / study.costs.round_s([DEFAULT, TUNED]))
    assert needed == pytest.approx([round(n) for n in needed], abs=0.01)  # whole rounds
    assert 0 < needed[0] < needed[1] <= LOOKS[-1]


@pytest.mark.parametrize(
    "gains", [[0.4, -0.4, 0.4, -0.3], [-0.1, 0.08, -0.1, 0.08]], ids=["scatters", "is slower"]
)
def test_no_time_is_named_where_all_rounds_would_not_do(study: Study, gains: list[float]) -> None:
    assert outlook(study, gains) == ("ambiguous", (2, 4), None)


def test_too_few_rounds_for_a_claim_are_told_how_many_more_it_takes(study: Study) -> None:
    verdict, n_won, seconds = outlook(study, [0.40, 0.41])
    assert (verdict, n_won) == ("ambiguous", (2, 2))
    assert seconds == pytest.approx(
        START_S + FIRST_LOOK * study.costs.round_s([DEFAULT, TUNED]), abs=0.1
    )


def test_an_extension_has_as_many_rounds_as_the_first_extent(study: Study) -> None:
    """Beside those before it: looks are counted from the begin of each."""
    gains = [0.08 + 0.1 * (-1) ** k for k in range(8)]
    verdict, _, seconds = outlook(study, gains)
    assert verdict == "ambiguous"
    assert seconds is not None
    n_more = (seconds - START_S) / study.costs.round_s([DEFAULT, TUNED])
    assert LOOKS[-1] - len(gains) < n_more <= LOOKS[-1]


def test_an_extension_keeps_what_the_result_said_would_decide(study: Study) -> None:
    _, _, seconds = outlook(study, [0.16, 0.04, 0.16, 0.04])
    assert seconds is not None
    study.store.add(PhaseDone(Phase.CONFIRM, "no time"))
    study.store.add(Extended(seconds))
    study.store.add(FinalistNamed(Phase.RACE, SAME, TUNED))
    study.budget = Budget(seconds)
    assert Forecast(study).looks_s() == pytest.approx(seconds - START_S, abs=0.1)
    assert Forecast(study).confirming_s() >= Forecast(study).looks_s()


def test_a_study_is_long_by_what_its_extent_was_granted(study: Study) -> None:
    study.budget = Budget(2000.0, 1900.0, began_at_s=1900.0)
    assert not study.is_long
    study.budget = Budget(2000.0)
    assert study.is_long
