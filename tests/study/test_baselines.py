"""Which baselines are measured where time is short, by launches that are written by a script."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.study.studies import BASELINE, Scripted, carried_out, new_study
from tests.study.test_minimise import add
from tuner.errors import NothingMeasured
from tuner.record.configuration import Configuration
from tuner.record.events import BestSoFar, Event
from tuner.record.journal import PhaseDone, WarningNoted
from tuner.record.launch import LaunchRecord, Purpose
from tuner.record.outcome import Ending, Outcome
from tuner.record.store import Store
from tuner.record.winner_class import WinnerClass
from tuner.space.as_run import AS_RUN
from tuner.space.baselines import Baseline
from tuner.space.knobs_of.launch import BATCH
from tuner.study.baselines import measure_baselines
from tuner.study.candidates import beats_default
from tuner.study.compared import confirmation_arms, never_launched, unmeasured_baselines
from tuner.study.costs import Budget
from tuner.study.notes import NO_TIME

DEFAULT = Configuration()
ANOTHER = Configuration.of({"fake.layout": "packed"})
LAUNCH_S = 10.0
"""Of every launch that `add` writes; a confirmation takes at least four of each arm."""


class TenSecondsEach(Scripted):
    """A study without a pacer, all of whose launches are as fast, but for one configuration's."""

    gain = 1.0
    """Of that one over the others."""
    leads = BASELINE

    def start_pacer(self) -> None:
        pass

    def write(
        self, configuration: Configuration, purpose: Purpose, *, beside: bool
    ) -> LaunchRecord:
        return add(self.store, configuration, self.gain if configuration == self.leads else 1.0)


class Unused(Budget):
    """A budget of which nothing is used, however slow the host is."""

    def used_s(self) -> float:
        return 0.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "study") as opened:
        yield opened


def ten_seconds_each(store: Store, folder: Path, budget_s: float) -> TenSecondsEach:
    study = new_study(store, folder, budget_s, TenSecondsEach)
    assert isinstance(study, TenSecondsEach)
    return study


def tried(store: Store, folder: Path, budget_s: float, gain: float = 1.0) -> list[Configuration]:
    """Measure two baselines; return what was tried, in that order."""
    study = ten_seconds_each(store, folder, budget_s)
    study.gain = gain
    study.baselines.append(Baseline("other", "a guide", ANOTHER, True, "", None, ()))
    carried_out(study, measure_baselines(study))
    return [trial.configuration for trial in study.evaluation.trials()]


def left_undone(store: Store) -> list[str]:
    return [n.text for n in store.all(WarningNoted) if n.text.startswith(NO_TIME)]


@pytest.mark.parametrize(
    ("launches", "told"),
    [
        (2, "too short for one: expect no verdict, but hints of what is fast"),
        (11, "cover it and 1 of 2 baseline(s), and no search"),
        (25, "cover it and the baselines, and hardly any search"),
        (
            40,
            "cover it, the baselines and about 12 of the 20 launches of a search, and few launches "
            "of winners without single settings",
        ),
        (55, "cover it and a search, but perhaps not the winners without each setting"),
        (100, ""),
    ],
)
def test_what_a_short_budget_can_and_cannot_do_is_said_once_after_the_defaults_launch(
    store: Store, tmp_path: Path, launches: int, told: str
) -> None:
    """A claim takes two arms in four rounds, a quarter more than ten seconds each: 100 s.

    A search leaves the same for five arms, 250 s, and a launch.
    """
    study = new_study(store, tmp_path, launches * LAUNCH_S, TenSecondsEach)
    study.budget = Unused(launches * LAUNCH_S)
    study.baselines.append(Baseline("other", "a guide", ANOTHER, True, "", None, ()))
    carried_out(study, measure_baselines(study))
    said = [n.text for n in store.all(WarningNoted) if n.text.startswith("a launch takes about")]
    assert len(said) == bool(told)
    for text in said:
        assert ("and 100 s one verdict" in text) == (launches < 10)
        assert "takes about 10 s here, and a verdict at least 100 s" in text
        assert told in text
        assert "; 11m for this study would cover baselines, a search and verdicts" in text


def test_at_other_batches_only_the_best_of_each_class_is_measured(
    store: Store, tmp_path: Path
) -> None:
    study = new_study(store, tmp_path, 100_000.0, TenSecondsEach)
    study.evaluation.batches = (4, 16)
    behind = Configuration.of({"env.FAKE_THREADS": 8})  # of the class of new_study's own baseline
    for name, configuration in (("behind", behind), ("other", ANOTHER)):
        study.baselines.append(Baseline(name, "a guide", configuration, True, "", None, ()))
    carried_out(study, measure_baselines(study))
    at_16 = {
        record.request.configuration.without(BATCH)
        for record in store.launches.values()
        if record.request.configuration.get(BATCH) == 16
    }
    assert at_16 == {DEFAULT, BASELINE, ANOTHER}
    assert left_undone(store) == []


def test_what_was_measured_at_one_batch_is_not_called_unmeasured(
    store: Store, tmp_path: Path
) -> None:
    study = new_study(store, tmp_path, 11.5 * LAUNCH_S, TenSecondsEach)
    study.budget = Unused(11.5 * LAUNCH_S)
    study.evaluation.batches = (4, 16)
    carried_out(study, measure_baselines(study))
    assert [*study.evaluation.tried()][2:] == [BASELINE]
    assert left_undone(store) == ["the budget left no time to measure vendor at every batch"]
    assert unmeasured_baselines(study, WinnerClass.SAME_PRECISION) == []


def test_what_was_never_launched_is_named_in_the_classes_that_allow_it(
    store: Store, tmp_path: Path
) -> None:
    study = ten_seconds_each(store, tmp_path, 8 * LAUNCH_S)
    study.baselines.append(Baseline("other", "a guide", ANOTHER, True, "", None, ()))
    study.gain = 1.5
    carried_out(study, measure_baselines(study))
    assert [*study.evaluation.tried()] == [DEFAULT, BASELINE]
    assert unmeasured_baselines(study, WinnerClass.NO_CODE) == []
    assert unmeasured_baselines(study, WinnerClass.SAME_PRECISION) == ["other"]


@pytest.mark.parametrize(("gain_at_16", "first"), [(0.01, 4), (0.5, 16)])
def test_baselines_begin_at_the_smallest_batch_at_which_the_default_may_be_at_its_best(
    store: Store, tmp_path: Path, gain_at_16: float, first: int
) -> None:
    class FasterAt16(TenSecondsEach):
        def write(
            self, configuration: Configuration, purpose: Purpose, *, beside: bool
        ) -> LaunchRecord:
            is_at_16 = configuration.get(BATCH) == 16
            return add(self.store, configuration, 1.0 + (gain_at_16 if is_at_16 else 0.0))

    study = new_study(store, tmp_path, 100_000.0, FasterAt16)
    study.evaluation.batches = (4, 16)
    told: list[Event] = []
    study.listen = told.append
    carried_out(study, measure_baselines(study))
    # a batch of the default is the default, and none of the baselines is above it
    assert not [event for event in told if isinstance(event, BestSoFar)]
    tried = [c for c in study.evaluation.tried() if c.without(BATCH) == BASELINE]
    assert [c.get(BATCH) or 4 for c in tried] == [first, 20 - first]


def test_how_the_user_runs_it_comes_before_other_baselines(store: Store, tmp_path: Path) -> None:
    study = ten_seconds_each(store, tmp_path, 8 * LAUNCH_S)
    study.baselines.append(Baseline(AS_RUN, "this shell", ANOTHER, True, "", None, ()))
    study.leads, study.gain = ANOTHER, 1.5
    carried_out(study, measure_baselines(study))
    assert [t.configuration for t in study.evaluation.trials()] == [DEFAULT, ANOTHER]


def test_a_guide_that_the_user_follows_comes_before_others(store: Store, tmp_path: Path) -> None:
    study = ten_seconds_each(store, tmp_path, 8 * LAUNCH_S)
    study.baselines += [
        Baseline("other", "a guide", ANOTHER, True, "", None, ()),
        Baseline(AS_RUN, "this shell", ANOTHER, True, "", "other", ()),
    ]
    study.leads, study.gain = ANOTHER, 1.5
    carried_out(study, measure_baselines(study))
    trials = study.evaluation.trials()
    assert [(t.configuration, t.source) for t in trials] == [
        (DEFAULT, "default"),
        (ANOTHER, "other"),
    ]


@pytest.mark.parametrize(
    ("launches", "gain", "expected", "missing"),
    [
        (0.5, 1.5, [DEFAULT], "vendor, other"),
        (1.5, 1.5, [DEFAULT, BASELINE, ANOTHER], ""),  # no confirmation has a chance
        (8, 1.5, [DEFAULT, BASELINE], "other"),
        (8, 1.02, [DEFAULT, BASELINE, ANOTHER], ""),  # rounds would hardly decide that
        (100.0, 1.5, [DEFAULT, BASELINE, ANOTHER], ""),
    ],
)
def test_time_is_kept_for_a_confirmation_once_something_promises_a_verdict(
    store: Store,
    tmp_path: Path,
    launches: float,
    gain: float,
    expected: list[Configuration],
    missing: str,
) -> None:
    assert tried(store, tmp_path, launches * LAUNCH_S, gain) == expected
    is_complete = len(expected) == 3
    (done,) = store.all(PhaseDone)
    assert done.reason == ("all measured" if is_complete else "no time for all")
    study = new_study(store, tmp_path / "again", launches * LAUNCH_S)
    study.baselines.append(Baseline("other", "a guide", ANOTHER, True, "", None, ()))
    assert [b.name for b in never_launched(study)] == [*filter(None, missing.split(", "))]
    add(store, ANOTHER, 1.0)  # by a later phase
    assert [b.name for b in never_launched(study)] == [*filter(None, missing.split(", "))][:-1]


STAND_IN = Configuration.of({"fake.layout": "packed"})


class DefaultIsSilent(TenSecondsEach):
    """A study of what answers no request with nothing set."""

    def write(
        self, configuration: Configuration, purpose: Purpose, *, beside: bool
    ) -> LaunchRecord:
        record = add(self.store, configuration, 1.0)
        if configuration == DEFAULT:
            record.slices.clear()
            record.ending = Ending(Outcome.TIMED_OUT, "it takes requests and does not answer")
        return record


def test_a_default_that_never_answers_is_an_outcome_and_what_does_is_measured(
    store: Store, tmp_path: Path
) -> None:
    study = new_study(store, tmp_path, 100_000.0, DefaultIsSilent)
    study.evaluation.stand_in = STAND_IN
    carried_out(study, measure_baselines(study))
    outcomes = [(t.configuration, t.ending.outcome) for t in study.evaluation.trials()]
    assert outcomes == [
        (DEFAULT, Outcome.TIMED_OUT),
        (STAND_IN, Outcome.MEASURED),
        (BASELINE, Outcome.MEASURED),
    ]
    (said,) = [n.text for n in store.all(WarningNoted) if "answers no request" in n.text]
    assert f"outputs are compared with those under {STAND_IN.label()}" in said
    evaluation = study.evaluation
    assert evaluation.default_is_silent
    assert evaluation.ratio(BASELINE) is None
    assert beats_default(evaluation, STAND_IN)
    assert study.candidates.candidate(WinnerClass.SAME_PRECISION) in (STAND_IN, BASELINE)
    # no round waits for the default
    assert confirmation_arms(study, [BASELINE], at_reference=True) == [STAND_IN, BASELINE]


def test_a_default_that_fails_where_nothing_stands_in_for_it_ends_the_study(
    store: Store, tmp_path: Path
) -> None:
    with pytest.raises(NothingMeasured, match="does not answer"):
        study = new_study(store, tmp_path, 100_000.0, DefaultIsSilent)
        carried_out(study, measure_baselines(study))


class FailsAt16(TenSecondsEach):
    """A study in which batch 16 is too large for the default."""

    def write(
        self, configuration: Configuration, purpose: Purpose, *, beside: bool
    ) -> LaunchRecord:
        record = add(self.store, configuration, 1.0)
        if configuration.get(BATCH) == 16:
            record.slices.clear()
            record.ending = Ending(Outcome.OUT_OF_MEMORY, "MemoryError")
        return record


def test_where_the_default_fails_at_a_batch_no_baseline_is_launched_there_and_it_is_said(
    store: Store, tmp_path: Path
) -> None:
    study = new_study(store, tmp_path, 100_000.0, FailsAt16)
    study.evaluation.batches = (4, 16)
    carried_out(study, measure_baselines(study))
    at_16 = [c for c in study.evaluation.tried() if c.get(BATCH) == 16]
    assert at_16 == [DEFAULT.with_value(BATCH, 16)]
    assert "the default fails at batch 16: no baseline was measured there" in [
        n.text for n in store.all(WarningNoted)
    ]
    (done,) = store.all(PhaseDone)
    assert done.reason == "all measured"


def test_a_default_that_works_at_no_batch_ends_the_study_with_every_reason(
    store: Store, tmp_path: Path
) -> None:
    class Crashing(TenSecondsEach):
        def write(
            self, configuration: Configuration, purpose: Purpose, *, beside: bool
        ) -> LaunchRecord:
            record = add(self.store, configuration, 1.0)
            record.slices.clear()
            record.ending = Ending(Outcome.CRASHED, "SIGSEGV")
            return record

    study = new_study(store, tmp_path, 100_000.0, Crashing)
    study.evaluation.batches = (4, 16)
    with pytest.raises(NothingMeasured, match=r"cannot be measured: 2 x crashed: SIGSEGV$"):
        carried_out(study, measure_baselines(study))


class UsedUp(Unused):
    """A budget that launches use up."""

    store: Store

    def used_s(self) -> float:
        return LAUNCH_S * len(self.store.launches)


@pytest.mark.parametrize(("budget_s", "batches"), [(15.0, [None]), (35.0, [None, 16, 32])])
def test_where_a_launch_takes_as_long_as_the_budget_the_default_is_launched_once(
    store: Store, tmp_path: Path, budget_s: float, batches: list[int | None]
) -> None:
    """Not at every batch whatever the time: a budget is overdrawn by one launch at the most."""
    study = new_study(store, tmp_path, budget_s, TenSecondsEach)
    study.budget = UsedUp(budget_s)
    study.budget.store = store
    study.costs.least_launch_s = LAUNCH_S
    study.evaluation.batches = (4, 16, 32, 64)
    carried_out(study, measure_baselines(study))
    assert [c.get(BATCH) for c in study.evaluation.tried()] == batches


def test_a_budget_that_holds_few_launches_has_none_for_a_pacer(
    store: Store, tmp_path: Path
) -> None:
    """It would cost as much as the default, beside which there is nothing to compare."""
    study = new_study(store, tmp_path, 60.0)
    study.costs.least_launch_s = 18.0
    study.start_pacer()
    assert not study.bench.pacer.is_running
    assert study.most_together == 1
    (said,) = [n.text for n in store.all(WarningNoted)]
    assert "the budget is too short for more launches" in said
