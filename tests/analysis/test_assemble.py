"""What a result says, from launches that are written by hand."""

import math
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.space.spaces import FAKE_DEFAULTS, machine, model, workload
from tests.study.studies import BASELINE, new_study
from tuner.analysis.assemble import Context, assemble
from tuner.output.report import render
from tuner.record.configuration import Configuration
from tuner.record.journal import (
    ArmsChosen,
    FinalistNamed,
    Phase,
    PhaseDone,
    RoundDone,
    SessionOpened,
    StudyOpened,
    TrialNoted,
)
from tuner.record.launch import LaunchRecord, LaunchRequest, Prepared, Purpose, Slice
from tuner.record.numerics import Numerics
from tuner.record.objective import THROUGHPUT, Objective
from tuner.record.outcome import Ending, Outcome
from tuner.record.result import ModelInput, ModelSection, Result
from tuner.record.store import Store
from tuner.record.winner_class import WinnerClass
from tuner.space.as_run import AS_RUN
from tuner.space.baselines import Baseline
from tuner.study.evaluation import Evaluation

SAME = WinnerClass.SAME_PRECISION

DEFAULT = Configuration()
WINNER = Configuration.of({"fake.layout": "packed", "launch.allocator": "jemalloc"})
PLAIN = Configuration.of({"fake.layout": "packed"})
REDUCED = Configuration.of({"fake.precision": "bf16"})


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "study") as opened:
        opened.add(StudyOpened("identity", {}, "2026-11-22", "0"))
        yield opened


def add(store: Store, configuration: Configuration, purpose: Purpose, rate: float,
        compile_s: float = 0.0) -> int:  # fmt: skip
    id = store.next_launch_id()
    seconds = math.exp(-rate)
    store.launches[id] = LaunchRecord(
        LaunchRequest(id, configuration, 4, purpose),
        prepared=Prepared(seconds + compile_s, seconds, 0.5, True, 0, 0, ()),
        slices=[Slice(id * 10 + k, 1, 1, seconds, id + k / 10) for k in range(4)],
        ending=Ending(Outcome.MEASURED),
        total_s=10.0,
    )
    return id


def confirm(
    store: Store,
    rates: dict[Configuration, float],
    best: Configuration | None,
    compile_s: float = 0.0,
    of_reduced: Configuration = WINNER,
) -> None:
    """Write four rounds of the default, the finalists and perhaps the best baseline.

    compile_s: what the winner's launches spend on compiling; of_reduced: the finalist of `reduced`.
    """
    for winner_class in WinnerClass:
        finalist = of_reduced if winner_class is WinnerClass.REDUCED_PRECISION else WINNER
        store.add(FinalistNamed(Phase.MINIMISE, winner_class, finalist))
    store.add(PhaseDone(Phase.BASELINES, "all measured"))
    arms = tuple(dict.fromkeys(c for c in (WINNER, of_reduced, best) if c is not None))
    store.add(ArmsChosen(arms, best, False, (4,)))
    for number in range(1, 5):
        wobble = 0.002 * (-1) ** number
        launches = (
            add(store, c, Purpose.CONFIRM, rate + (wobble if c == WINNER else 0),
                compile_s if c == WINNER else 0.0)
            for c, rate in rates.items()
            if c in (DEFAULT, *arms)
        )  # fmt: skip
        store.add(RoundDone(number, tuple(launches)))
    store.add(PhaseDone(Phase.CONFIRM, "decided"))


def assembled(
    store: Store,
    folder: Path,
    *,
    vendor: bool = True,
    own: Baseline | None = None,
    batches: tuple[int, ...] = (4,),
    numerics: Numerics = "same",
    objective: Objective = THROUGHPUT,
) -> Result:
    study = new_study(store, folder, 1000.0)
    study.evaluation = Evaluation(store, 4, batches, objective)
    default = Baseline("as_installed", "nothing set", DEFAULT, True, "", "default", ())
    study.baselines = [default, *(study.baselines if vendor else []), *([own] if own else [])]
    context = Context(
        host=machine(folder / "machine"), profile="fake", profile_matches=True,
        workload=workload("fake"), facts=model(FAKE_DEFAULTS), numerics=numerics,
        goal="fastest", session=SessionOpened(1, "2026-01-01T00:00:00+00:00", 1000.0),
        command="tune-framework",
        environment={"FAKE_THREADS": "4"} if own else {},
    )  # fmt: skip
    return assemble(study, context)


@pytest.mark.parametrize(
    ("of_baseline", "confirmed", "name", "gain"),
    [
        (0.1, True, "vendor", math.exp(0.3)),
        (-0.1, True, "as_installed", math.exp(0.4)),
        (0.1, False, "vendor", None),
    ],
)
def test_the_default_is_the_best_baseline_where_no_other_beats_it(
    store: Store, tmp_path: Path, of_baseline: float, confirmed: bool, name: str, gain: float | None
) -> None:
    """Else a winner would gain more over the best baseline than over the default."""
    rates = {DEFAULT: 0.0, BASELINE: of_baseline, WINNER: 0.4}
    for configuration, rate in rates.items():
        add(store, configuration, Purpose.SEARCH, rate)
    confirm(store, rates, BASELINE if confirmed else None)
    result = assembled(store, tmp_path)
    assert result.verdict == "faster"
    assert result.best_baseline == name
    over = result.speedup_over_best_baseline
    assert (over and over.point) == (pytest.approx(gain, rel=0.01) if gain else None)


def test_it_keeps_what_describes_the_model_and_how_sure_each_trial_is(
    store: Store, tmp_path: Path
) -> None:
    """Later studies of other models are told by these, and not by a name."""
    rates = {DEFAULT: 0.0, BASELINE: 0.1, WINNER: 0.4}
    for number, (configuration, rate) in enumerate(rates.items()):
        id = add(store, configuration, Purpose.SEARCH, rate)
        ending = Ending(Outcome.MEASURED)
        store.add(TrialNoted(number, configuration, "default", ending, (id,), rate))
    failed = Ending(Outcome.CRASHED, "killed by SIGSEGV")
    store.add(TrialNoted(3, PLAIN, "nearby", failed, ()))
    result = assembled(store, tmp_path)
    assert result.model_facts == ModelSection(
        kind="cnn",
        form="code",
        inputs=[ModelInput([3], "float32")],
        parameter_bytes=0,
        parameters_sha256="",
        graph_width=1.0,
        macs=None,
        macs_by="",
    )
    *worked, crashed = result.trials
    sd = Evaluation(store, 4, (4,)).score_sd(WINNER)
    assert sd > 0
    assert [t.search_sd for t in worked] == [round(sd, 4)] * 3
    assert (crashed.search_ratio, crashed.search_sd) == (None, None)


def test_only_a_candidate_without_rounds_shows_what_the_search_saw(
    store: Store, tmp_path: Path
) -> None:
    for configuration, rate in {DEFAULT: 0.0, BASELINE: 0.1, WINNER: 0.4}.items():
        add(store, configuration, Purpose.SEARCH, rate)
    for winner_class in WinnerClass:
        store.add(FinalistNamed(Phase.RACE, winner_class, WINNER))
    store.add(ArmsChosen((WINNER,), None, False, (4,)))
    unproved = assembled(store, tmp_path / "none").winners[SAME]
    assert (unproved.verdict, unproved.speedup) == ("ambiguous", None)
    assert unproved.search_ratio == pytest.approx(math.exp(0.4), rel=0.01)
    launches = (add(store, DEFAULT, Purpose.CONFIRM, 0.0), add(store, WINNER, Purpose.CONFIRM, -1))
    store.add(RoundDone(1, launches))
    begun = assembled(store, tmp_path / "one").winners[SAME]
    assert (begun.verdict, begun.speedup, begun.search_ratio) == ("ambiguous", None, None)


def as_run(same_as: str | None, configuration: Configuration = BASELINE) -> Baseline:
    return Baseline(AS_RUN, "this shell", configuration, True, "", same_as, ())


@pytest.mark.parametrize(
    ("of_winner", "of_own", "same_as", "over", "said"),
    [
        (0.4, 0.1, None, 0.3, "1.35x (1.3"),
        (0.4, 0.1, "vendor", 0.3, "1.35x (1.3"),
        (0.0, -0.2, None, 0.2, "1.22x (1.22 - 1.22), with nothing set"),  # keep the default
        (0.0, 0.1, None, None, "that is the recommendation"),  # it alone proved faster
        (0.4, 0.0, "default", None, "the same: these settings have no effect here"),
    ],
)
def test_what_is_recommended_is_told_against_how_the_user_runs_it(
    store: Store, tmp_path: Path, of_winner: float, of_own: float, same_as: str | None,
    over: float | None, said: str,
) -> None:  # fmt: skip
    rates = {DEFAULT: 0.0, BASELINE: of_own, WINNER: of_winner}
    for configuration, rate in rates.items():
        add(store, configuration, Purpose.SEARCH, rate)
    confirm(store, rates, BASELINE)
    own = as_run(same_as, DEFAULT if same_as == "default" else BASELINE)
    result = assembled(store, tmp_path, vendor=same_as == "vendor", own=own)
    found = result.speedup_over_as_run
    assert (found and math.log(found.point)) == (pytest.approx(over, abs=0.01) if over else None)
    row = result.baselines[-1]
    assert (row.name, row.same_as, row.speedup is None) == (
        AS_RUN, same_as, same_as == "default"
    )  # fmt: skip
    page = render(result, "report.md.j2")
    assert f"Compared with your present settings: **{said}" in page
    assert "| environment | FAKE_THREADS=4: set in the shell" in page


def test_where_nothing_was_set_nothing_is_said_of_it(store: Store, tmp_path: Path) -> None:
    add(store, DEFAULT, Purpose.SEARCH, 0.0)
    result = assembled(store, tmp_path)
    assert (result.environment, result.speedup_over_as_run) == ({}, None)
    assert "how you run it now" not in render(result, "report.md.j2")


def test_without_any_other_baseline_the_default_is_the_best(store: Store, tmp_path: Path) -> None:
    rates = {DEFAULT: 0.0, WINNER: 0.4}
    for configuration, rate in rates.items():
        add(store, configuration, Purpose.SEARCH, rate)
    confirm(store, rates, None)
    result = assembled(store, tmp_path, vendor=False)
    assert (result.best_baseline, result.speedup_over_best_baseline) == (
        "as_installed",
        result.speedup,
    )


def test_before_the_baselines_are_measured_none_is_the_best(store: Store, tmp_path: Path) -> None:
    add(store, DEFAULT, Purpose.SEARCH, 0.0)
    for winner_class in WinnerClass:
        store.add(FinalistNamed(Phase.MINIMISE, winner_class, DEFAULT))
    result = assembled(store, tmp_path)
    assert (result.best_baseline, result.speedup_over_best_baseline) == (None, None)


def test_without_time_for_a_recommendation_none_is_the_best(store: Store, tmp_path: Path) -> None:
    """The default is the best of all only where all were tried, and failed."""
    add(store, DEFAULT, Purpose.SEARCH, 0.0)
    add(store, WINNER, Purpose.SEARCH, 0.4)
    confirm(store, {DEFAULT: 0.0, WINNER: 0.4}, None)
    result = assembled(store, tmp_path)
    assert (result.best_baseline, result.speedup_over_best_baseline) == (None, None)
    crashed = Ending(Outcome.CRASHED, "it fell over")
    store.add(TrialNoted(1, BASELINE, "vendor", crashed, (), None))
    result = assembled(store, tmp_path)
    assert result.best_baseline == "as_installed"
    assert result.speedup_over_best_baseline == result.speedup


def test_what_the_search_saw_of_the_default_is_told_where_no_round_does(
    store: Store, tmp_path: Path
) -> None:
    add(store, DEFAULT, Purpose.SEARCH, 0.0)
    add(store, WINNER, Purpose.SEARCH, 0.4)
    for winner_class in WinnerClass:
        store.add(FinalistNamed(Phase.MINIMISE, winner_class, WINNER))
    found = assembled(store, tmp_path).default
    assert found.value is None
    assert found.search_value == pytest.approx(1.0)
    by_mean = assembled(store, tmp_path, objective=Objective.of("latency_p90"))
    assert by_mean.objective.searched_by
    assert by_mean.default.search_value is None  # what the search goes by is another figure
    confirm(store, {DEFAULT: 0.0, WINNER: 0.4}, None)
    assert assembled(store, tmp_path).default.search_value is None


@pytest.mark.parametrize(("first_s", "cold", "warm"), [(0.1, 0.1, 0.1), (2.0, 2.0, 2.5)])
def test_where_the_first_launch_compiled_nothing_the_others_do_not_either(
    store: Store, tmp_path: Path, first_s: float, cold: float, warm: float
) -> None:
    """Launches that were prepared beside others took longer for these."""
    add(store, DEFAULT, Purpose.SEARCH, 0.0)
    ids = [add(store, WINNER, Purpose.SEARCH, 0.4, seconds) for seconds in (first_s, 2.6, 2.4)]
    for id in ids[1:]:
        record = store.launches[id]
        record.request = msgspec.structs.replace(record.request, n_companions=1)
    for winner_class in WinnerClass:
        store.add(FinalistNamed(Phase.MINIMISE, winner_class, WINNER))
    found = assembled(store, tmp_path).winners[SAME].compile_seconds
    assert [found.cold, found.warm] == pytest.approx([cold, warm])
    assert found.in_company is (first_s > 1)


@pytest.mark.parametrize(
    ("own", "cold", "warm"),
    [
        ([], 8.0, 6.0),  # nothing better known: another allocator's warm launches
        ([5.0, 7.0], 8.0, 6.0),
        ([13.0, 15.0], None, 14.0),  # another allocator's cold launch says nothing of these
    ],
)
def test_what_compiling_costs_is_told_of_the_winners_own_launches(
    store: Store, tmp_path: Path, own: list[float], cold: float | None, warm: float
) -> None:
    add(store, DEFAULT, Purpose.SEARCH, 0.0)
    for compile_s in (8.0, 6.0):
        add(store, PLAIN, Purpose.SEARCH, 0.3, compile_s)
    for compile_s in own:
        add(store, WINNER, Purpose.SEARCH, 0.4, compile_s)
    for winner_class in WinnerClass:
        store.add(FinalistNamed(Phase.MINIMISE, winner_class, WINNER))
    found = assembled(store, tmp_path).winners[SAME].compile_seconds
    assert found.cold == (pytest.approx(cold, abs=0.1) if cold else None)
    assert found.warm == pytest.approx(warm, abs=0.1)


def test_compile_seconds_beside_other_launches_are_marked(store: Store, tmp_path: Path) -> None:
    add(store, DEFAULT, Purpose.SEARCH, 0.0)
    ids = [add(store, WINNER, Purpose.SEARCH, 0.4, seconds) for seconds in (9.0, 4.0, 7.0)]
    records = [store.launches[i] for i in ids]
    for winner_class in WinnerClass:
        store.add(FinalistNamed(Phase.MINIMISE, winner_class, WINNER))
    assert not assembled(store, tmp_path).winners[SAME].compile_seconds.in_company
    for record in (records[0], records[2]):
        record.request = msgspec.structs.replace(record.request, n_companions=1)
    found = assembled(store, tmp_path).winners[SAME].compile_seconds
    assert found.in_company
    assert found.warm == pytest.approx(4.0, abs=0.1)  # of the launch that was prepared alone
    records[0].request = msgspec.structs.replace(records[0].request, n_companions=0)
    assert not assembled(store, tmp_path).winners[SAME].compile_seconds.in_company


@pytest.mark.parametrize(("compile_s", "items"), [(6.0, 6.0 / (1 - math.exp(-0.4))), (0.3, None)])
def test_a_longer_start_is_paid_back_after_so_many_items(
    store: Store, tmp_path: Path, compile_s: float, items: float | None
) -> None:
    """Where nothing is compiled, a first call that took a moment longer is no such start."""
    rates = {DEFAULT: 0.0, WINNER: 0.4}
    for configuration, rate in rates.items():
        add(store, configuration, Purpose.SEARCH, rate)
    confirm(store, rates, None, compile_s)
    found = assembled(store, tmp_path).winners[SAME].compile_seconds
    assert found.items_to_pay == (pytest.approx(items, rel=0.02) if items else None)


def test_a_baseline_that_was_confirmed_at_another_batch_than_its_best_has_an_interval(
    store: Store, tmp_path: Path
) -> None:
    rates = {
        DEFAULT: 0.0,
        BASELINE: 0.1,
        WINNER: 0.4,
        BASELINE.with_value("workload.batch", 16): 0.2,
    }
    for configuration, rate in rates.items():
        add(store, configuration, Purpose.SEARCH, rate)
    confirm(store, rates, BASELINE)
    (vendor,) = [
        b for b in assembled(store, tmp_path, batches=(4, 16)).baselines if b.name == "vendor"
    ]
    assert vendor.speedup and vendor.speedup.point == pytest.approx(math.exp(0.1), rel=0.01)


@pytest.mark.parametrize(
    ("of_reduced", "numerics", "recommended"),
    [
        (0.5, "reduced", "reduced_precision"),
        (0.0, "reduced", "same_precision"),
        (0.5, "both", "same_precision"),
    ],
)
def test_where_reduced_numerics_may_ship_but_are_not_faster_what_keeps_them_ships(
    store: Store, tmp_path: Path, of_reduced: float, numerics: Numerics, recommended: str
) -> None:
    rates = {DEFAULT: 0.0, WINNER: 0.4, REDUCED: of_reduced}
    for configuration, rate in rates.items():
        add(store, configuration, Purpose.SEARCH, rate)
    confirm(store, rates, None, of_reduced=REDUCED)
    result = assembled(store, tmp_path, vendor=False, numerics=numerics)
    assert (result.recommended_class, result.verdict) == (recommended, "faster")


def test_where_no_class_holds_anything_better_the_widest_that_may_ship_says_why(
    store: Store, tmp_path: Path
) -> None:
    rates = {DEFAULT: 0.0, WINNER: 0.0, REDUCED: -0.2}
    for configuration, rate in rates.items():
        add(store, configuration, Purpose.SEARCH, rate)
    confirm(store, rates, None, of_reduced=REDUCED)
    expected: dict[Numerics, str] = {
        "reduced": "reduced_precision", "both": "same_precision",
    }  # fmt: skip
    for numerics, winner_class in expected.items():
        result = assembled(store, tmp_path, vendor=False, numerics=numerics)
        assert (result.recommended_class, result.verdict) == (winner_class, "keep_default")


def test_without_any_round_the_defaults_batch_is_the_searchs_best(
    store: Store, tmp_path: Path
) -> None:
    """Where nothing is recommended, recommended.toml names this one."""
    default_16 = Configuration.of({"workload.batch": 16})
    for configuration, rate in {DEFAULT: 0.0, default_16: 0.3, PLAIN: -0.2}.items():
        add(store, configuration, Purpose.SEARCH, rate)
    for winner_class in WinnerClass:
        store.add(FinalistNamed(Phase.MINIMISE, winner_class, default_16))
    result = assembled(store, tmp_path, batches=(4, 16))
    assert result.winners[SAME].configuration == {"workload.batch": 16}
    assert result.default.batch == 16
