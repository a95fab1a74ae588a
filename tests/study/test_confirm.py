"""Which arms the confirmation compares, from launches that are written by hand."""

import math
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import tuner.study.forecast
from tests.study.studies import BASELINE, Scripted, carried_out, is_granted, new_study
from tuner.measurement.bench import Bench
from tuner.measurement.confirmation import LOOKS
from tuner.measurement.replication import Scatter
from tuner.record.configuration import Configuration
from tuner.record.journal import (
    ArmsChosen,
    FinalistNamed,
    Phase,
    PhaseDone,
    RoundDone,
    WarningNoted,
)
from tuner.record.launch import LaunchRecord, LaunchRequest, Prepared, Purpose, Slice
from tuner.record.load import Slo, Trace
from tuner.record.objective import THROUGHPUT
from tuner.record.outcome import Ending, Outcome
from tuner.record.store import Store
from tuner.record.winner_class import WinnerClass
from tuner.space.as_run import AS_RUN
from tuner.space.baselines import Baseline
from tuner.study.compared import best_baseline
from tuner.study.confirm import choose_arms, confirm
from tuner.study.costs import Budget
from tuner.study.evaluation import Evaluation
from tuner.study.forecast import Forecast
from tuner.study.planner import Planner
from tuner.study.steps import Aim, Launch, NoTime, Round
from tuner.study.study import Study

DEFAULT = Configuration()
NO_CODE = Configuration.of({"launch.allocator": "jemalloc"})
SAME = Configuration.of({"fake.layout": "packed"})
REDUCED = Configuration.of({"fake.precision": "bf16"})
LAUNCH_S = 10.0
BOUND = Slo(0.99, 0.1, "p99=100ms")
REPLAYED = msgspec.structs.replace(BOUND, trace=Trace("arrivals", "", 2, 1.0))
QUIET = Scatter(0.01, 0.01)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "study") as opened:
        for configuration, rate in ((DEFAULT, 1.0), (BASELINE, 1.1), (NO_CODE, 1.2),
                                    (SAME, 1.3)):  # fmt: skip
            launch(opened, configuration, rate)
        yield opened


def launch(store: Store, configuration: Configuration, log_rate: float) -> LaunchRecord:
    id = store.next_launch_id()
    store.launches[id] = LaunchRecord(
        LaunchRequest(id, configuration, 4, Purpose.SEARCH),
        prepared=Prepared(0.1, 0.1, 0.5, True, 0, 0, ()),
        ending=Ending(Outcome.MEASURED),
        slices=[Slice(id * 10 + k, 1, 1, math.exp(-log_rate), id + k / 10) for k in range(8)],
        total_s=LAUNCH_S,
    )
    return store.launches[id]


def chosen_by(study: Study) -> ArmsChosen:
    return carried_out(study, choose_arms(study))


class Again(Scripted):
    """A study whose further launches are as fast as the others."""

    def write(
        self, configuration: Configuration, purpose: Purpose, *, beside: bool
    ) -> LaunchRecord:
        return launch(self.store, configuration, 1.3)


def name_finalists(store: Store, same: Configuration, reduced: Configuration | None = None) -> None:
    for winner_class, finalist in (
        (WinnerClass.NO_CODE, NO_CODE),
        (WinnerClass.SAME_PRECISION, same),
        (WinnerClass.REDUCED_PRECISION, reduced or same),
    ):
        store.add(FinalistNamed(Phase.MINIMISE, winner_class, finalist))


def test_the_baseline_gives_way_where_the_first_look_would_not_fit(
    store: Store, tmp_path: Path
) -> None:
    """Four rounds of four arms take 160 s and a reserve, of three arms 120 s."""
    name_finalists(store, SAME)
    chosen = chosen_by(new_study(store, tmp_path, budget_s=170))
    assert chosen.arms == (SAME, NO_CODE)  # the surest first
    assert chosen.best_baseline is None
    assert any("best baseline" in note.text for note in store.all(WarningNoted))


def test_with_time_for_all_the_baseline_is_confirmed(store: Store, tmp_path: Path) -> None:
    name_finalists(store, SAME)
    chosen = chosen_by(new_study(store, tmp_path, budget_s=250))
    assert chosen.arms == (SAME, NO_CODE, BASELINE)
    assert chosen.best_baseline == BASELINE


def test_a_baseline_that_is_a_finalist_stays(store: Store, tmp_path: Path) -> None:
    name_finalists(store, BASELINE)
    chosen = chosen_by(new_study(store, tmp_path, budget_s=170))
    assert chosen.arms == (NO_CODE, BASELINE)
    assert chosen.best_baseline == BASELINE


@pytest.mark.parametrize(
    ("budget_s", "expected"),
    [
        (205.0, (REDUCED, SAME, NO_CODE)),
        (195.0, (SAME, NO_CODE)),
        (145.0, (SAME,)),
        (75.0, (SAME,)),
        (65.0, (REDUCED, SAME, NO_CODE)),
    ],
)
def test_a_verdict_on_what_ships_comes_before_none_on_each(
    store: Store, tmp_path: Path, budget_s: float, expected: tuple[Configuration, ...]
) -> None:
    """Four rounds beside the default take 40 s and 40 for each arm; of a single one, 10 overdrawn.

    Of several there is a reserve of a quarter. What ships is the winner of the same numerics, or
    else the one that only launches otherwise. Where nothing fits, nothing is left out.
    """
    launch(store, REDUCED, 1.4)
    name_finalists(store, SAME, REDUCED)
    study = new_study(store, tmp_path, budget_s)
    chosen = chosen_by(study)
    assert chosen.arms == expected
    said = {note.text.rpartition(" to confirm ")[2] for note in store.all(WarningNoted)}
    for left_out in {NO_CODE, SAME, REDUCED} - {*expected}:
        assert left_out.label() in said
    assert not {arm.label() for arm in expected} & said
    study.bench.__class__ = Undecided
    study.budget = Budget(1000)
    carried_out(study, confirm(study))
    launched = {r.request.configuration for r in store.launches.values() if r.request.round}
    assert launched == {DEFAULT, *expected}  # whatever time there is in the end


COSTLY = Configuration.of({"fake.compile": "fast"})


@pytest.mark.parametrize(("budget_s", "expected"), [(275.0, COSTLY), (265.0, NO_CODE)])
def test_what_ships_gives_way_where_only_another_fits(
    store: Store, tmp_path: Path, budget_s: float, expected: Configuration
) -> None:
    """Four rounds of a launch of 60 s and the default's take 280 s."""
    launch(store, COSTLY, 1.3)
    store.launches[max(store.launches)].total_s = 60.0
    name_finalists(store, COSTLY)
    assert chosen_by(new_study(store, tmp_path, budget_s)).arms == (expected,)


def test_a_winner_of_equal_numerics_is_compared_with_baselines_of_equal_numerics(
    store: Store, tmp_path: Path
) -> None:
    """A guide's bf16 is no match for it, however fast."""
    lower = Baseline(
        "low", "a guide", Configuration.of({"fake.precision": "bf16"}), True, "", None, ()
    )
    record = LaunchRecord(
        LaunchRequest(store.next_launch_id(), lower.configuration, 4, Purpose.BASELINE),
        prepared=Prepared(0.1, 0.1, 0.5, True, 0, 0, ()),
        ending=Ending(Outcome.MEASURED),
        slices=[Slice(99, 1, 1, 0.01, 99.0)],
        total_s=LAUNCH_S,
    )
    store.launches[record.request.id] = record
    same = new_study(store, tmp_path, budget_s=100)
    same.baselines.append(lower)
    same.evaluation.refresh()
    assert best_baseline(same) == BASELINE
    same.widest = WinnerClass.REDUCED_PRECISION
    assert best_baseline(same) == lower.configuration


@pytest.mark.parametrize(
    ("budget_s", "kept_s"), [(240.0, 200.0), (700.0, 700 / 3), (900.0, 300.0), (3600.0, 450.0)]
)
def test_cheap_rounds_are_given_the_time_to_decide(
    store: Store, tmp_path: Path, budget_s: float, kept_s: float
) -> None:
    """A round of four arms is estimated at 50 s: a third of the budget, at least 4, at most 9."""
    name_finalists(store, SAME)
    launch(store, DEFAULT, 1.3)
    assert Forecast(new_study(store, tmp_path, budget_s)).looks_s() == pytest.approx(kept_s)


@pytest.mark.parametrize("aim", [Aim.CONTENTION, Aim.SEARCH, Aim.RACE])
@pytest.mark.parametrize(("budget_s", "is_kept"), [(65.0, False), (75.0, True)])
def test_nothing_is_kept_for_a_verdict_that_cannot_be_had(
    store: Store, tmp_path: Path, aim: Aim, budget_s: float, *, is_kept: bool
) -> None:
    """Four minimal rounds of two arms take 80 s, and may overdraw the budget by a launch, 10 s."""
    name_finalists(store, SAME)
    launch(store, DEFAULT, 1.3)
    study = new_study(store, tmp_path, budget_s, Again)
    assert Forecast(study).is_out_of_reach() is not is_kept
    assert is_granted(study, Launch(SAME, Purpose.RACE, aim)) is not is_kept


@pytest.mark.parametrize(("compile_s", "is_out"), [(60.0, False), (0.0, True)])
def test_what_compiled_from_nothing_is_not_out_of_reach_for_that(
    tmp_path: Path, compile_s: float, *, is_out: bool
) -> None:
    """Of the only finalist's 70 s 60 were the compiler's, whose cache the rounds find; or none."""
    with Store(tmp_path / "study") as store:
        launch(store, DEFAULT, 1.3)
        launch(store, SAME, 1.4)
        store.add(FinalistNamed(Phase.RACE, WinnerClass.SAME_PRECISION, SAME))
        record = store.launches[max(store.launches)]
        record.prepared = Prepared(0.1 + compile_s, 0.1, 0.5, True, 0, 0, ())
        record.total_s = 70.0
        study = new_study(store, tmp_path, budget_s=80.0)
        study.bench.__class__ = Undecided
        assert Forecast(study).is_out_of_reach() is is_out
        # or nothing is done at all: neither searched nor confirmed
        assert is_granted(study, Round([DEFAULT, SAME], 1, Purpose.CONFIRM)) is not is_out


def test_where_the_leads_are_clear_only_the_first_look_is_reckoned_with(
    store: Store, tmp_path: Path
) -> None:
    """20 and 30 % in a search that scatters by 2 % will be decided after four rounds."""
    name_finalists(store, SAME)
    assert Forecast(new_study(store, tmp_path, budget_s=3600)).looks_s() == pytest.approx(200)


def long_study(store: Store, folder: Path, left_s: float) -> Study:
    """Return a study of half an hour with four baselines, the last the best."""
    study = new_study(store, folder, budget_s=1800)
    for threads, log_rate in ((1, 0.7), (2, 0.8), (8, 1.15)):
        configuration = Configuration.of({"env.FAKE_THREADS": threads})
        launch(store, configuration, log_rate)
        study.baselines.append(Baseline(f"{threads}", "a guide", configuration, True, "", None, ()))
    study.evaluation.refresh()
    study.budget = Budget(1800, used_before_s=1800 - left_s)
    return study


@pytest.mark.parametrize(
    ("left_s", "threads", "warning"),
    [
        (1800, (8, 4, 2, 1), ""),
        (255, (8, 4), "every baseline"),
        (205, (8,), "every baseline"),
        (155, (), "the best baseline"),
    ],
)
def test_half_an_hour_confirms_as_many_baselines_as_a_first_look_allows(
    store: Store, tmp_path: Path, left_s: float, threads: tuple[int, ...], warning: str
) -> None:
    """Four rounds of the default and the finalists take 150 s, each baseline 50 s more."""
    name_finalists(store, SAME)
    chosen = chosen_by(long_study(store, tmp_path, left_s))
    baselines = [Configuration.of({"env.FAKE_THREADS": n}) for n in threads]
    assert list(chosen.arms) == [SAME, NO_CODE, *baselines]
    warnings = [note.text for note in store.all(WarningNoted) if "baseline" in note.text]
    assert [warning in text for text in warnings] == ([True] if warning else [])


def test_further_baselines_do_not_take_the_time_of_later_looks(
    store: Store, tmp_path: Path
) -> None:
    """Where a finalist's lead is not clear, nine rounds of the main arms are kept."""
    name_finalists(store, SAME)
    launch(store, DEFAULT, 1.3)
    chosen = chosen_by(long_study(store, tmp_path, left_s=9 * 50 + 60))
    assert chosen.arms == (SAME, NO_CODE, Configuration.of({"env.FAKE_THREADS": 8}), BASELINE)


AS_IT_IS_RUN = Configuration.of({"env.FAKE_THREADS": 1})


def own_study(store: Store, folder: Path, budget_s: float, launch_s: float = LAUNCH_S) -> Study:
    """Return a study begun in an environment that is slower than any baseline."""
    name_finalists(store, SAME)
    launch(store, AS_IT_IS_RUN, 0.5)
    store.launches[max(store.launches)].total_s = launch_s
    study = new_study(store, folder, budget_s)
    study.baselines.append(Baseline(AS_RUN, "this shell", AS_IT_IS_RUN, True, "", None, ()))
    return study


@pytest.mark.parametrize(
    ("budget_s", "baselines", "warning"),
    [
        (400, (AS_IT_IS_RUN, BASELINE), ""),
        (205, (AS_IT_IS_RUN,), "the best baseline, vendor"),
        (155, (), f"no time to confirm {AS_RUN}"),
    ],
)
def test_how_the_user_runs_it_is_confirmed_whatever_the_budget(
    store: Store, tmp_path: Path, budget_s: float, baselines: tuple[Configuration, ...],
    warning: str,
) -> None:  # fmt: skip
    """Four rounds of the default and the finalists take 150 s, each baseline 50 s more."""
    study = own_study(store, tmp_path, budget_s)
    chosen = chosen_by(study)
    assert chosen.arms == (SAME, NO_CODE, *baselines)
    assert chosen.best_baseline == (BASELINE if BASELINE in baselines else None)
    warnings = [n.text for n in store.all(WarningNoted) if "reference batch" not in n.text]
    assert any(warning in text for text in warnings) == bool(warning)


@pytest.mark.parametrize(("launch_s", "kept_s"), [(LAUNCH_S, 250.0), (100.0, 200.0)])
def test_time_is_kept_for_it_unless_it_takes_that_of_everything_else(
    store: Store, tmp_path: Path, launch_s: float, kept_s: float
) -> None:
    """A first look at five arms; one thread on a large machine would take 500 s more."""
    study = own_study(store, tmp_path, 1000.0, launch_s)
    assert Forecast(study).looks_s() == pytest.approx(kept_s)
    assert AS_IT_IS_RUN in chosen_by(study).arms  # the time is there after all


def test_what_the_user_runs_and_does_not_work_is_no_arm(store: Store, tmp_path: Path) -> None:
    study = own_study(store, tmp_path, 1000.0)
    request = LaunchRequest(store.next_launch_id(), AS_IT_IS_RUN, 4, Purpose.RACE)
    store.launches[request.id] = LaunchRecord(request, ending=Ending(Outcome.CRASHED, "it crashed"))
    study.evaluation.refresh()
    assert AS_IT_IS_RUN not in chosen_by(study).arms


def test_a_launch_that_was_cut_short_does_not_make_the_confirmation_free(
    store: Store, tmp_path: Path
) -> None:
    """A killed tool's first launch has no seconds: resumed, the study still plans."""
    store.launches.clear()
    store.launches[1] = LaunchRecord(
        LaunchRequest(1, DEFAULT, 4, Purpose.BASELINE),
        prepared=Prepared(0.1, 0.1, 0.5, True, 0, 0, ()),
        ending=Ending(Outcome.INTERRUPTED),
    )
    assert Forecast(new_study(store, tmp_path, budget_s=600)).confirming_s() > 0


def test_a_baseline_that_failed_when_launched_again_is_not_the_best(
    store: Store, tmp_path: Path
) -> None:
    study = long_study(store, tmp_path, left_s=1800)
    best = Configuration.of({"env.FAKE_THREADS": 8})
    assert best_baseline(study) == best
    request = LaunchRequest(store.next_launch_id(), best, 4, Purpose.RACE)
    store.launches[request.id] = LaunchRecord(request, ending=Ending(Outcome.CRASHED, "it crashed"))
    study.evaluation.refresh()
    assert best_baseline(study) == BASELINE


class Undecided(Bench):
    """A bench on which arms scatter so much that nothing is decided."""

    def measure_round(
        self, arms: list[Configuration], number: int, purpose: Purpose, **_: object
    ) -> list[LaunchRecord]:
        records = []
        for arm in arms:
            id = self.store.next_launch_id()
            outcome = self.outcome(arm)
            record = LaunchRecord(
                LaunchRequest(id, arm, 4, purpose, round=number), ending=Ending(outcome)
            )
            if outcome is Outcome.MEASURED:
                seconds = 1.0 if arm == DEFAULT else math.exp(0.5 * (-1) ** number)
                record.slices = [Slice(id * 10, 1, 1, seconds, float(id))]
            self.store.launches[id] = record
            records.append(record)
        return records

    def outcome(self, arm: Configuration) -> Outcome:
        return Outcome.MEASURED


class Failing(Undecided):
    """A bench on which every arm but the default fails."""

    def outcome(self, arm: Configuration) -> Outcome:
        return Outcome.MEASURED if arm == DEFAULT else Outcome.CRASHED


def test_what_failed_in_a_round_is_not_launched_in_the_next(store: Store, tmp_path: Path) -> None:
    name_finalists(store, SAME)
    study = new_study(store, tmp_path, budget_s=1000)
    study.bench.__class__ = Failing
    carried_out(study, confirm(study))
    assert len(store.all(RoundDone)) == 1
    (done,) = [note for note in store.all(PhaseDone) if note.phase is Phase.CONFIRM]
    assert done.reason.startswith("no arm was left after 1 rounds: ")
    assert done.reason.count("it failed") == 3


def why_it_ended(store: Store) -> str:
    (reason,) = [note.reason for note in store.all(PhaseDone) if note.phase is Phase.CONFIRM]
    return reason


class Decided(Undecided):
    """A bench on which every arm is surely faster than the default."""

    def measure_round(
        self, arms: list[Configuration], number: int, purpose: Purpose, **_: object
    ) -> list[LaunchRecord]:
        records = super().measure_round(arms, number, purpose)
        for record in records:
            id, jitter = record.request.id, 1 + 0.01 * (record.request.id % 3)
            seconds = jitter if record.request.configuration == DEFAULT else 0.5 * jitter
            record.slices = [Slice(id * 10, 1, 1, seconds, float(id))]
        return records


def test_what_is_open_at_the_last_look_stays_so(store: Store, tmp_path: Path) -> None:
    name_finalists(store, SAME)
    study = new_study(store, tmp_path, budget_s=100_000)
    study.bench.__class__ = Undecided
    carried_out(study, confirm(study))
    assert [done.number for done in store.all(RoundDone)] == list(range(1, LOOKS[-1] + 1))
    assert why_it_ended(store) == f"still open after {LOOKS[-1]} rounds, the last look"


def test_rounds_end_at_the_first_look_that_decides_on_all(store: Store, tmp_path: Path) -> None:
    name_finalists(store, SAME)
    study = new_study(store, tmp_path, budget_s=100_000)
    study.bench.__class__ = Decided
    carried_out(study, confirm(study))
    assert len(store.all(RoundDone)) == LOOKS[0]
    assert why_it_ended(store) == f"decided after {LOOKS[0]} rounds"
    n_launches = len(store.launches)
    carried_out(study, confirm(study))  # it is done
    assert len(store.launches) == n_launches


def test_where_nothing_leads_and_no_baseline_differs_nothing_is_launched(
    store: Store, tmp_path: Path
) -> None:
    for winner_class in WinnerClass:
        store.add(FinalistNamed(Phase.MINIMISE, winner_class, DEFAULT))
    study = new_study(store, tmp_path, budget_s=1000)
    study.baselines.clear()
    n_launches = len(store.launches)
    carried_out(study, confirm(study))
    assert len(store.launches) == n_launches
    assert why_it_ended(store) == "nothing scored above the default, and no baseline differs"


@pytest.mark.parametrize(("n_before", "n_after"), [(3, 4), (4, 4)])
def test_rounds_before_the_first_look_are_not_left_in_vain(
    store: Store, tmp_path: Path, n_before: int, n_after: int
) -> None:
    """A round is estimated at 50 s with a reserve, at 40 s without; 10 s may be overdrawn."""
    name_finalists(store, SAME)
    study = new_study(store, tmp_path, budget_s=1000)
    study.bench.__class__ = Undecided
    arms = [DEFAULT, *chosen_by(study).arms]
    for number in range(1, n_before + 1):
        records = study.bench.measure_round(arms, number, Purpose.CONFIRM, noise=QUIET)
        store.add(RoundDone(number, tuple(r.request.id for r in records)))
    study.budget = Budget(1000, used_before_s=1000 - 35)
    carried_out(study, confirm(study))
    assert len(store.all(RoundDone)) == n_after
    (done,) = [note for note in store.all(PhaseDone) if note.phase is Phase.CONFIRM]
    assert "no time for a further round after 4" in done.reason


@pytest.mark.parametrize(("slo", "kept_s"), [(BOUND, 275.0), (REPLAYED, 0.0), (None, 0.0)])
def test_rounds_leave_loadgen_the_time_to_speak_of_what_is_proved(
    store: Store, tmp_path: Path, slo: Slo | None, kept_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked of the default and the winner: 10 s and 100 s of requests each, and a reserve."""
    monkeypatch.setattr(tuner.study.forecast, "is_installed", lambda: True)
    name_finalists(store, SAME)
    study = new_study(store, tmp_path, budget_s=1000)
    study.evaluation.objective = msgspec.structs.replace(THROUGHPUT, slo=slo)
    study.bench.__class__ = Undecided
    forecast = Forecast(study)
    assert forecast.validating_s() == pytest.approx(kept_s)
    before_s = forecast.confirming_s()  # no baseline gives way to it
    store.add(PhaseDone(Phase.BASELINES, ""))
    for number in range(7):
        launch(store, Configuration.of({"env.FAKE_THREADS": 10 + number}), 0.5)
    assert forecast.confirming_s() == pytest.approx(before_s + kept_s)
    study.budget = Budget(1000, used_before_s=1000 - 100)  # such a round takes 37.5 s
    arms = [DEFAULT, NO_CODE, SAME]
    assert is_granted(study, Round(arms, 5, Purpose.CONFIRM))
    found = Planner(study).answer(Round(arms, 6, Purpose.CONFIRM, is_proved=True))
    assert isinstance(found, NoTime) is (kept_s > 0)
    assert not kept_s or "LoadGen" in found.reason


def test_loadgen_sends_no_more_requests_than_it_needs(store: Store, tmp_path: Path) -> None:
    study = new_study(store, tmp_path, budget_s=1000)
    study.evaluation.objective = msgspec.structs.replace(THROUGHPUT, slo=BOUND)
    costs = Forecast(study)
    assert costs.loadgen_s(10.0) == 100.0  # a tenth of the budget
    assert costs.loadgen_s(100.0) == pytest.approx(20.0)  # 2,000: twenty times one beyond p99
    assert costs.loadgen_s(1e6) == 2.0
    study = new_study(store, tmp_path, budget_s=4000)
    study.evaluation.objective = msgspec.structs.replace(THROUGHPUT, slo=BOUND)
    assert Forecast(study).loadgen_s(10.0) == 150.0


def test_a_baseline_that_is_a_finalist_at_another_batch_is_confirmed_there(
    store: Store, tmp_path: Path
) -> None:
    """Finalists are chosen by what is believed of them, the best baseline by its score."""
    larger = BASELINE.with_value("workload.batch", 16)
    launch(store, larger, 1.15)
    study = new_study(store, tmp_path, budget_s=1000)
    study.evaluation = Evaluation(store, 4, (4, 16))
    assert best_baseline(study) == larger
    name_finalists(store, BASELINE)
    assert best_baseline(study) == BASELINE
    assert chosen_by(study).arms == (NO_CODE, BASELINE)
