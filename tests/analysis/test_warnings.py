"""What a reader is told beside the figures, from launches that are written by hand."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest

from tests.space.spaces import FAKE_DEFAULTS, machine, resolved
from tests.study.studies import new_study
from tests.study.test_neighbours import BOTH, FIRM, FRAGILE, RATE, rounds, search
from tuner.analysis.warnings import _of_outputs, study_warnings
from tuner.analysis.winners import faster_not_shipped
from tuner.record.configuration import Configuration, Value
from tuner.record.journal import Phase
from tuner.record.objective import Objective
from tuner.record.output_check import OutputCheck
from tuner.record.store import Store
from tuner.record.winner_class import WinnerClass
from tuner.space.restrictions import Restrictions
from tuner.study.claim import Claim
from tuner.study.confirm import make_claims
from tuner.study.costs import Budget

COMPILED = Configuration.of({"fake.compile": "fast"})


@pytest.mark.parametrize(
    ("winner", "beside", "goal", "words"),
    [
        (FRAGILE, 4, "fastest", "degrades next to a busy neighbour: 5% of its rate is left"),
        (FIRM, 4, "fastest", ""),
        (FIRM, 0, "fastest", "fare next to a busy neighbour"),
        (FIRM, 2, "fastest", ""),
        (FIRM, 2, "robust", "fare next to a busy neighbour"),
        (FIRM, 4, "robust", ""),
    ],
)
def test_how_a_winner_bears_a_neighbour_is_remarked(
    tmp_path: Path, winner: Configuration, beside: int, goal: str, words: str
) -> None:
    with Store(tmp_path / "study") as store:
        search(store, Configuration(), winner)
        rounds(store, winner, n=4, beside=beside)
        study = new_study(store, tmp_path, 2000.0)
        study.evaluation.objective = Objective.of("throughput", goal=goal)
        texts = study_warnings(study, make_claims(study), WinnerClass.SAME_PRECISION)
        found = [text for text in texts if "neighbour" in text]
    assert len(found) == bool(words)
    assert all(words in text for text in found)


@pytest.mark.parametrize(("used_s", "told"), [(30.0, True), (10.5, False)])
def test_a_budget_that_did_not_hold_is_remarked(tmp_path: Path, used_s: float, told: bool) -> None:
    with Store(tmp_path / "study") as store:
        search(store, Configuration(), FIRM)
        rounds(store, FIRM, n=4, beside=4)
        study = new_study(store, tmp_path, 10.0)
        study.budget = Budget(10.0, used_s)
        found = study_warnings(study, make_claims(study), WinnerClass.SAME_PRECISION)
    assert any(f"it took {used_s:.0f} s of a budget of 10 s" in text for text in found) == told


@pytest.mark.parametrize(("n_rounds", "told"), [(2, True), (4, False)])
def test_time_that_a_study_could_not_use_is_remarked(
    tmp_path: Path, n_rounds: int, told: bool
) -> None:
    with Store(tmp_path / "study") as store:
        search(store, Configuration(), FIRM)
        rounds(store, FIRM, n=n_rounds, beside=0)
        study = new_study(store, tmp_path, 100.0)
        study.budget = Budget(100.0, 60.0)
        study.notes.done(Phase.CONFIRM, "no time for a further round after 2: it is long")
        found = study_warnings(study, make_claims(study), WinnerClass.SAME_PRECISION)
    words = (
        "40 s of a budget of 100 s were not used: no time for a further round after 2: it is long"
    )
    assert (words in found) == told


@pytest.mark.parametrize(
    ("used_s", "reason", "told"),
    [
        (60.0, "decided after 4 rounds", True),
        (95.0, "decided after 4 rounds", False),
        (60.0, "no time for a further round after 0: the 40 s that are left hold no first look",
         False),
    ],
)  # fmt: skip
def test_time_that_is_left_although_there_was_none_for_something_is_explained(
    tmp_path: Path, used_s: float, reason: str, told: bool
) -> None:
    with Store(tmp_path / "study") as store:
        search(store, Configuration(), FIRM)
        rounds(store, FIRM, n=4, beside=0)
        study = new_study(store, tmp_path, 100.0)
        study.budget = Budget(100.0, used_s)
        study.notes.done(Phase.BASELINES, "no time for all")
        study.notes.done(Phase.CONFIRM, reason)
        (text,) = [
            t
            for t in study_warnings(study, make_claims(study), WinnerClass.SAME_PRECISION)
            if "no time" in t
        ]
    assert text.startswith("the budget left no time to measure vendor, nor to")
    assert ("(40 s were left in the end: they had been kept for the confirmation" in text) == told


@pytest.mark.parametrize(
    ("fixed", "told"),
    [({"fake.layout": "packed"}, True), ({"fake.streams": 2}, False), ({}, False)],
)
def test_what_the_user_fixed_is_not_passed_off_as_found(
    tmp_path: Path, fixed: dict[str, Value], told: bool
) -> None:
    with Store(tmp_path / "study") as store:
        search(store, Configuration(), FIRM)
        rounds(store, FIRM, n=4, beside=4)
        study = new_study(store, tmp_path, 2000.0)
        host = machine(tmp_path / "host")
        study.space = resolved(host, "fake", FAKE_DEFAULTS, "fake", Restrictions(fixed=fixed))
        found = study_warnings(study, make_claims(study), WinnerClass.SAME_PRECISION)
    assert any(text.startswith("fake.layout=packed was given by --fix") for text in found) == told


@pytest.mark.parametrize(
    ("times", "gain", "ships"), [(3, 0.0, False), (3, 0.3, True), (1, 0.0, True)]
)
def test_a_costly_setting_that_rounds_show_to_gain_nothing_does_not_ship(
    tmp_path: Path, times: int, gain: float, ships: bool
) -> None:
    """The rounds hold the winner without its second stream, for which it needs more memory."""
    mib = 2**20
    with Store(tmp_path / "study") as store:
        search(store, Configuration(), FIRM, BOTH)
        rounds(store, BOTH, n=4, beside=4, others=(FIRM,))
        for record in store.launches.values():
            is_costly = record.request.configuration == BOTH
            memory_bytes = 100 * mib * (times if is_costly else 1)
            assert record.prepared is not None
            record.prepared = msgspec.structs.replace(
                record.prepared, memory_peak_bytes=memory_bytes
            )
            if record.request.configuration == FIRM:  # within the noise of BOTH, less the gain
                slower = math.exp(gain - 0.305 + 0.01 * (-1) ** record.request.id)
                record.slices = [
                    msgspec.structs.replace(s, seconds=s.seconds * slower) for s in record.slices
                ]
        study = new_study(store, tmp_path, 2000.0)
        claim = make_claims(study).claim(WinnerClass.SAME_PRECISION)
    assert (claim.verdict, claim.configuration) == ("faster", BOTH if ships else FIRM)


@pytest.mark.parametrize("times", [3, 1])
def test_what_is_surely_faster_than_the_recommended_is_named_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """A confirmed arm is faster; it takes the winner's place unless a setting is too costly.

    By the search, it is as fast without that setting.
    """
    monkeypatch.setitem(RATE, FIRM, RATE[BOTH])
    monkeypatch.setitem(RATE, COMPILED, 0.2)
    with Store(tmp_path / "study") as store:
        search(store, Configuration(), FIRM, BOTH, COMPILED)
        rounds(store, COMPILED, n=4, beside=0, others=(BOTH,))
        for record in store.launches.values():
            assert record.prepared is not None
            n = times if record.request.configuration == BOTH else 1
            record.prepared = msgspec.structs.replace(
                record.prepared, memory_peak_bytes=n * 100 * 2**20
            )
        study = new_study(store, tmp_path, 2000.0)
        claims = make_claims(study)
        named = faster_not_shipped(study, claims, WinnerClass.SAME_PRECISION)
    is_costly = times > 1
    assert claims.claim(WinnerClass.SAME_PRECISION).configuration == (
        COMPILED if is_costly else BOTH
    )
    assert [Configuration.of(found.configuration) for found in named] == [BOTH] * is_costly
    assert all(found.lead.point == pytest.approx(1.36, abs=0.01) for found in named)
    assert all(found.reason.startswith("fake.streams raises memory") for found in named)


@pytest.mark.parametrize(
    ("n_inputs", "why"),
    [(20, "only 20 inputs were compared"), (128, "nearly all of the 128 inputs one class")],
)
def test_why_classes_that_agree_say_little_is_remarked(n_inputs: int, why: str) -> None:
    reduced = Configuration.of({"fake.precision": "bf16"})
    check = OutputCheck(0.01, n_inputs, 1.0, n_inputs, 9, top1_informative=False, top1_all=1.0)
    request = SimpleNamespace(configuration=reduced)
    record = SimpleNamespace(request=request, prepared=object(), check=check)
    store = cast(Store, SimpleNamespace(launches={1: record}))
    (text,) = _of_outputs(store, Claim(reduced, "faster", ""))
    assert "says little: " in text
    assert text.endswith(why)
