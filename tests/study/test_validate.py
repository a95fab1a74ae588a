"""About which rates LoadGen is asked, and what is made of its words."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import pytest

import tuner.study.validate
from tests.study.loadgen_words import STOLEN, said
from tests.study.studies import new_study
from tuner.analysis.serving import too_slow
from tuner.measurement.confirmation import LOOKS
from tuner.record.configuration import Configuration
from tuner.record.journal import (
    ArmsChosen,
    FinalistNamed,
    Phase,
    RoundDone,
    ValidationNoted,
    WarningNoted,
)
from tuner.record.launch import LaunchRecord, LaunchRequest, Purpose, Slice, packed
from tuner.record.load import Batching, Slo
from tuner.record.objective import THROUGHPUT, Objective
from tuner.record.outcome import Ending, Outcome
from tuner.record.serving import Served, Serving, Validation
from tuner.record.store import Store
from tuner.record.winner_class import WinnerClass
from tuner.study.confirm import make_claims
from tuner.study.explain import explain
from tuner.study.steps import LoadgenRun, NoTime, Steps
from tuner.study.study import Study
from tuner.study.validate import next_asked, validate, validate_further, validations_of


def test_what_was_kept_is_not_asked_about_again() -> None:
    assert next_asked([]) is None  # the first time is another's
    for word in ("valid", "too_short"):
        assert next_asked([said(word)]) is None
        assert next_asked([said(word, disturbed=STOLEN)]) is None
    assert next_asked([Validation(100.0, None, "LoadGen failed")]) is None


def test_what_was_too_slow_is_asked_about_again_where_it_was_disturbed() -> None:
    disturbed = said("too_slow", disturbed=STOLEN)
    assert next_asked([disturbed]) == next_asked([disturbed] * 2) == 100.0
    assert next_asked([disturbed] * 3) == pytest.approx(90.0)
    assert next_asked([disturbed, said("too_slow")]) == pytest.approx(90.0)
    assert next_asked([disturbed, said("valid")]) is None


def test_lower_rates_are_asked_about_down_to_a_half() -> None:
    told = [said("too_slow")]
    while rate := next_asked(told):
        told.append(said("too_slow", rate))
    rates = [100, 90, 81, 72.9, 65.61, 59.05, 53.14]
    assert [each.rate for each in told] == pytest.approx(rates, rel=1e-3)
    assert next_asked([said("too_slow"), said("valid", 90.0)]) is None


def test_a_reader_is_warned_of_a_rate_that_was_never_kept() -> None:
    late, disturbed = said("too_slow"), said("too_slow", disturbed=STOLEN)
    assert too_slow("x", []) == too_slow("x", [disturbed, said("valid")]) == []
    (text,) = too_slow("x", [disturbed, late, said("valid", 90.0)])
    assert "too late at 100 requests/s" in text and "in time at 90:" in text
    assert "disturbed" not in text
    (text,) = too_slow("x", [late, said("too_short", 90.0)])
    assert text.endswith("; at 90 its run was too short to say (0 of 2000 late)")
    (text,) = too_slow("x", [disturbed] * 3)
    assert text.endswith("while something disturbed it")


@pytest.mark.parametrize(("rate", "is_warned"), [(98.0, False), (115.0, True)])
def test_late_requests_that_clusters_explain_are_no_contradiction(
    rate: float, is_warned: bool
) -> None:
    """40 of 2000 late at 100/s: where 98/s are kept, 23 + 1.6 sqrt(7 * 23) may be."""
    serving = Serving(
        [], 4, 4, is_open=False, queue_share=None, generator=0.0, slope=7.0, rate=rate
    )
    most = serving.most_late(100.0, 2000, 0.01)
    assert most is not None and (most < 40) == is_warned
    assert bool(too_slow("x", [said("too_slow")], serving, SLO)) == is_warned


WINNER, DEFAULT = Configuration.of({"fake.layout": "packed"}), Configuration()
SLO = Slo(0.99, 0.1, "--slo p99=100ms")
SERVED = msgspec.structs.replace(Objective.of("rate_within"), slo=SLO)


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Study]:
    """A study of a server, on a host that has LoadGen."""
    monkeypatch.setattr(tuner.study.validate, "is_installed", lambda: True)
    with Store(tmp_path / "study") as store:
        yield new_study(store, tmp_path, 100.0, objective=SERVED)


def asked_about(
    steps: Steps[None], *words: Validation | NoTime
) -> list[tuple[Configuration, float]]:
    """Answer what LoadGen is asked; return of which configurations, and about which rates."""
    asked: list[tuple[Configuration, float]] = []
    answers = iter(words)
    try:
        step = steps.send(None)
        while True:
            assert isinstance(step, LoadgenRun)
            asked.append((step.configuration, step.rate))
            step = steps.send(next(answers))
    except StopIteration:
        assert next(answers, None) is None, "fewer were asked for"
    return asked


def test_it_goes_on_to_lower_rates_until_one_is_kept(study: Study) -> None:
    study.store.add(ValidationNoted(WINNER, said("too_slow")))
    study.store.add(ValidationNoted(DEFAULT, said("valid", 50.0)))
    further = validate_further(study, [WINNER])
    asked = asked_about(further, said("too_slow", 90.0), said("valid", 81.0))
    assert [configuration for configuration, _ in asked] == [WINNER, WINNER]
    assert [rate for _, rate in asked] == pytest.approx([90.0, 81.0])
    told = validations_of(study.store, WINNER)
    assert [(each.rate, each.is_too_slow) for each in told] == [
        (100.0, True), (90.0, True), (81.0, False),
    ]  # fmt: skip
    assert len(validations_of(study.store, DEFAULT)) == 1


def test_what_there_is_no_time_for_is_not_asked_and_the_next_is(study: Study) -> None:
    for configuration in (WINNER, DEFAULT):
        study.store.add(ValidationNoted(configuration, said("too_slow")))
    asked = asked_about(validate_further(study, [WINNER]), NoTime(), NoTime())
    assert [configuration for configuration, _ in asked] == [WINNER, DEFAULT]
    assert len(study.store.all(ValidationNoted)) == 2


def test_nobody_asks_about_rates_where_there_is_no_bound(study: Study) -> None:
    study.store.add(ValidationNoted(WINNER, said("too_slow")))
    study.evaluation.objective = THROUGHPUT
    assert asked_about(validate(study, [WINNER])) == []
    assert asked_about(validate_further(study, [WINNER])) == []


def test_without_loadgen_it_is_said_once_and_nothing_is_asked(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuner.study.validate, "is_installed", lambda: False)
    study.store.add(ValidationNoted(WINNER, said("too_slow")))
    assert asked_about(validate(study, [WINNER])) == []
    assert asked_about(validate_further(study, [WINNER])) == []
    (warned,) = study.store.all(WarningNoted)
    assert warned.text.startswith("LoadGen did not test the rates: ")


def confirmed(store: Store, rates: Mapping[Configuration, float]) -> None:
    """Write four rounds in which servers keep within the bound up to so many requests a second."""
    for number in range(1, 5):
        ids = []
        for configuration, rate in rates.items():
            id = store.next_launch_id()
            request = LaunchRequest(id, configuration, 1, Purpose.CONFIRM, round=number, slo=SLO)
            record = LaunchRecord(request, ending=Ending(Outcome.MEASURED))
            sustained = rate * (1 + 0.01 * (number % 2))
            record.slices = [in_turn(10 * id, sustained)]
            store.launches[id] = record
            ids.append(id)
        store.add(RoundDone(number, tuple(ids)))


def in_turn(index: int, sustained: float) -> Slice:
    """Return a slice of a server that is expected to sustain a rate."""
    served = Served(Batching((1,)), 30, sustained=sustained)
    calls = packed([0.001] * 30)
    return Slice(index, 1, 30, 0.03, 0.5, packed_calls=calls, served=served)


def test_the_lower_bounds_of_the_winners_and_the_defaults_rates_are_asked_about_once(
    study: Study,
) -> None:
    confirmed(study.store, {DEFAULT: 50.0, WINNER: 80.0})
    study.evaluation.refresh()
    rates = {c: make_claims(study).rounds.value(c) for c in (WINNER, DEFAULT)}
    lows = {c: value.low for c, value in rates.items() if value is not None}
    first = asked_about(validate(study, [WINNER]), said("valid", lows[WINNER]), NoTime())
    assert first == [(WINNER, lows[WINNER]), (DEFAULT, lows[DEFAULT])]
    assert 79.0 < lows[WINNER] < 80.5 and 49.0 < lows[DEFAULT] < 50.5
    (left,) = study.store.all(WarningNoted)
    assert "to ask LoadGen about the rates" in left.text
    assert asked_about(validate(study, [WINNER]), NoTime()) == [(DEFAULT, lows[DEFAULT])]


def test_loadgen_speaks_before_anything_is_explained_and_again_with_what_is_left(
    study: Study,
) -> None:
    for winner_class in WinnerClass:
        study.store.add(FinalistNamed(Phase.MINIMISE, winner_class, WINNER))
    study.store.add(ArmsChosen((WINNER,), None, at_reference=False, looks=LOOKS))
    confirmed(study.store, {DEFAULT: 50.0, WINNER: 80.0})
    study.evaluation.refresh()
    asked: list[tuple[Configuration, float] | str] = []
    answer: object = None
    steps = explain(study)
    while True:
        try:
            step = steps.send(answer)
        except StopIteration:
            break
        answer = NoTime()
        if isinstance(step, LoadgenRun):
            asked.append((step.configuration, round(step.rate)))
            is_first = step.configuration == WINNER and len(asked) == 1
            answer = said("too_slow" if is_first else "valid", step.rate)
        elif asked[-1:] != ["others"]:
            asked.append("others")
    assert asked == [(WINNER, 80), (DEFAULT, 50), "others", (WINNER, 72)]
