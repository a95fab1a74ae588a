"""How much longer a class that is not decided would take, from written rounds."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.study.studies import new_study
from tests.study.test_claims import DEFAULT, TUNED, add_round
from tuner.findings.outlook import rounds_won, seconds_to_decide
from tuner.measurement.confirmation import LOOKS
from tuner.record.journal import ArmsChosen, FinalistNamed, Phase, WinnerClass
from tuner.record.store import Store
from tuner.study.confirm import make_claims
from tuner.study.study import Study

SAME = WinnerClass.SAME


@pytest.fixture
def study(tmp_path: Path) -> Iterator[Study]:
    with Store(tmp_path / "study") as store:
        for klass in WinnerClass:
            store.add(FinalistNamed(Phase.MINIMISE, klass, TUNED))
        store.add(ArmsChosen((TUNED,), None, at_reference=False, looks=LOOKS))
        yield new_study(store, tmp_path, 1000.0)


def outlook(
    study: Study, gains: Sequence[float]
) -> tuple[str, tuple[int | None, int], float | None]:
    """Write a round for each gain (log); return verdict, rounds won, and seconds to decide."""
    for k, gain in enumerate(gains):
        add_round(study.store, k + 1, {DEFAULT: 0.0, TUNED: gain})
    study.ledger.refresh()
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
            needed.append(seconds / study.costs.round_s([DEFAULT, TUNED]))
    assert needed == [round(n) for n in needed]  # whole rounds
    assert 0 < needed[0] < needed[1] <= LOOKS[-1] - 4


@pytest.mark.parametrize(
    "gains", [[0.4, -0.4, 0.4, -0.3], [-0.1, 0.08, -0.1, 0.08]], ids=["scatters", "is slower"]
)
def test_no_time_is_named_where_all_rounds_would_not_do(study: Study, gains: list[float]) -> None:
    assert outlook(study, gains) == ("ambiguous", (2, 4), None)


def test_too_few_rounds_for_a_claim_are_told_how_many_more_it_takes(study: Study) -> None:
    verdict, n_won, seconds = outlook(study, [0.40, 0.41])
    assert (verdict, n_won) == ("ambiguous", (2, 2))
    assert seconds == pytest.approx(2 * study.costs.round_s([DEFAULT, TUNED]), abs=0.1)
