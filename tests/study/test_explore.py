"""When exploring ends, from launches that are written by a script."""

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.study.studies import BASELINE, Scripted, carried_out, is_granted, new_study
from tuner.record.configuration import Configuration
from tuner.record.journal import Phase, PhaseDone, TrialNoted, WarningNoted
from tuner.record.launch import LaunchRecord, LaunchRequest, Prepared, Purpose, Slice
from tuner.record.outcome import Ending, Outcome
from tuner.record.store import Store
from tuner.record.winner_class import WinnerClass
from tuner.search.proposals import UNION, Exhausted, Proposal
from tuner.search.search import Search, study_in
from tuner.study.costs import Costs
from tuner.study.evaluation import Evaluation
from tuner.study.explore import PROVED, explore, try_combinations
from tuner.study.forecast import Forecast
from tuner.study.planner import Planner
from tuner.study.steps import Aim, Launches, Step
from tuner.study.study import Study

COMPILED = Configuration.of({"fake.compile": "frozen"})
PROPOSAL = Configuration.of({"fake.compile": "fast"})
PROPOSED = Launches(lambda: PROPOSAL, Purpose.SEARCH, Aim.SEARCH)
COLD_S, WARM_S = 40.0, 10.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "study") as opened:
        rates = ((Configuration(), 1.0), (BASELINE, 0.9), (COMPILED, 1.3))
        for number, (configuration, log_rate) in enumerate(rates):
            total_s = COLD_S if configuration == COMPILED else WARM_S
            record = add(opened, configuration, log_rate, total_s)
            ending = Ending(Outcome.MEASURED)
            opened.add(
                TrialNoted(number, configuration, "script", ending, (record.request.id,), log_rate)
            )
        yield opened


def add(
    store: Store, configuration: Configuration, log_rate: float, total_s: float
) -> LaunchRecord:
    id = store.next_launch_id()
    store.launches[id] = LaunchRecord(
        LaunchRequest(id, configuration, 4, Purpose.SEARCH),
        prepared=Prepared(total_s - WARM_S, 0.0, 0.5, True, 0, 0, ()),
        slices=[Slice(id * 10 + k, 1, 1, math.exp(-log_rate), id + k / 10) for k in range(6)],
        ending=Ending(Outcome.MEASURED),
        total_s=total_s,
    )
    return store.launches[id]


class Warm(Scripted):
    """A study whose launches find a warm compiler's cache; none is better than the best so far."""

    def write(
        self, configuration: Configuration, purpose: Purpose, *, beside: bool
    ) -> LaunchRecord:
        log_rate = {Configuration(): 1.0, COMPILED: 1.3}.get(configuration, 1.1)
        return add(self.store, configuration, log_rate, WARM_S)


def n_launches(study: Study) -> int:
    return study.evaluation.n_launches(COMPILED)


@pytest.mark.parametrize(
    ("budget_s", "has_time", "n"),
    [
        (500.0, True, 1),  # 4 rounds at 75 s, 50 s for minimising, two launches at 40 s
        (290.0, True, 2),  # not so, but a warm cache makes a round 37.5 s
        (190.0, False, 1),  # nor would that be enough
        (340.0, True, 2),  # as above, with a neighbour in the confirmation
    ],
)
def test_what_was_compiled_cold_is_launched_again_where_that_may_free_time(
    store: Store, tmp_path: Path, budget_s: float, has_time: bool, n: int
) -> None:
    study = new_study(store, tmp_path, budget_s, Warm)
    assert is_granted(study, PROPOSED) is has_time
    assert n_launches(study) == n


def test_what_was_never_launched_costs_what_others_with_a_compiler_do_or_without(
    store: Store,
) -> None:
    """Without what compiles a launch is short, of whatever class it is."""
    add(store, Configuration.of({"fake.layout": "packed"}), 1.0, 16.0)
    costs = Costs(store, Evaluation(store, 4, (4,)))

    def own_s(**settings: str) -> float:
        return costs.own_s(Configuration.of({f"fake.{k}": v for k, v in settings.items()}))

    assert own_s(layout="blocked") == 16.0
    assert own_s(compile="fast") == COLD_S
    assert own_s(compile="fast", precision="bf16") == COLD_S  # none of its class was launched
    assert own_s(precision="bf16") == (2 * WARM_S + 16.0) / 3


def test_what_is_dear_for_another_reason_than_compiling_is_not_launched_again(
    store: Store, tmp_path: Path
) -> None:
    """Its launches stay as costly: one more only costs the confirmation its time."""
    for record in store.launches.values():
        record.prepared = Prepared(2.0, 0.0, 0.5, True, 0, 0, ())
    study = new_study(store, tmp_path, 290.0, Warm)
    assert not is_granted(study, PROPOSED)
    assert n_launches(study) == 1


@pytest.mark.parametrize(("n_proposed", "is_first_look"), [(6, True), (7, False)])
def test_the_first_few_proposals_only_leave_time_for_a_first_look(
    store: Store, tmp_path: Path, n_proposed: int, is_first_look: bool
) -> None:
    """Where no lead is clear, more looks are kept later."""
    add(store, Configuration(), 1.25, WARM_S)
    for streams in range(n_proposed - 3):  # three are there
        add(store, Configuration.of({"env.FAKE_THREADS": streams}), 0.5, WARM_S)
    store.add(PhaseDone(Phase.BASELINES, "all measured"))
    forecast = Forecast(new_study(store, tmp_path, 3600.0, Warm))
    assert forecast.looks_s() > forecast.first_look_s()
    assert (forecast.confirming_s() == forecast.first_look_s()) is is_first_look


@pytest.mark.parametrize(
    ("budget_s", "is_spent"),
    [
        (600.0, True),  # the rest would be useful for minimising and explaining
        pytest.param(90_000.0, False, marks=pytest.mark.slow),  # there is time for both
    ],
)
def test_a_search_that_finds_nothing_more_leaves_its_time_to_the_later_phases(
    store: Store, tmp_path: Path, budget_s: float, is_spent: bool
) -> None:
    store.add(PhaseDone(Phase.BASELINES, "all measured"))
    study = new_study(store, tmp_path, budget_s, Warm)
    carried_out(study, explore(study))
    (reason,) = [note.reason for note in store.all(PhaseDone) if note.phase is Phase.EXPLORE]
    n_new = study.n_proposed() - 3  # three are there
    assert ("nothing better was found" in reason) is is_spent
    assert (n_new == 3 * 3) is is_spent


class Together(Warm):
    """Two of its launches may be prepared side by side."""

    most_together = 2

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.measured: list[list[Configuration]] = []

    def measure_several(
        self, configurations: Sequence[Configuration], purpose: Purpose, *, may_prune: bool = False
    ) -> list[LaunchRecord]:
        self.measured.append(list(configurations))
        return super().measure_several(configurations, purpose, may_prune=may_prune)


def test_as_many_are_asked_for_as_may_be_prepared_together(store: Store, tmp_path: Path) -> None:
    store.add(PhaseDone(Phase.BASELINES, "all measured"))
    study = new_study(store, tmp_path, 600.0, Together)
    assert isinstance(study, Together)
    carried_out(study, explore(study))
    sizes = [len(configurations) for configurations in study.measured]
    assert set(sizes[:-1]) == {2}
    proposed = [c for configurations in study.measured for c in configurations]
    assert len(set(proposed)) == len(proposed)
    told = {trial.configuration for trial in study.evaluation.trials()}
    assert told.issuperset(proposed)


def test_no_more_are_asked_for_than_there_is_time_for(store: Store, tmp_path: Path) -> None:
    store.add(PhaseDone(Phase.BASELINES, "all measured"))
    budget_s = 600.0
    for k in range(5):  # what is kept is in part a share of the budget
        cost_s = new_study(store, tmp_path / f"{k}", budget_s).costs.launch_s(PROPOSAL)
        kept_s = Planner(new_study(store, tmp_path / f"{k}", budget_s)).after_search_s(cost_s)
        budget_s = kept_s + 1.5 * cost_s
    study = new_study(store, tmp_path / "short", budget_s, Together)
    assert isinstance(study, Together)
    carried_out(study, explore(study))
    assert len(study.measured[0]) == 1


def why_it_ended(store: Store) -> str:
    (reason,) = [note.reason for note in store.all(PhaseDone) if note.phase is Phase.EXPLORE]
    return reason


def test_a_proposal_that_there_is_no_time_for_is_closed_and_told(
    store: Store, tmp_path: Path
) -> None:
    """It is not left as one that runs, of which the next session would have to make something."""
    store.add(PhaseDone(Phase.BASELINES, "all measured"))
    study = new_study(store, tmp_path, 1.0, Warm)
    n_before = len(store.launches)
    carried_out(study, explore(study))
    assert len(store.launches) == n_before
    assert why_it_ended(store) == "the rest of the budget is for the later phases"
    with study_in(tmp_path / "study.db") as (name, storage):
        (trial,) = storage.get_all_trials(storage.get_study_id_from_name(name))
    assert trial.state.is_finished()
    assert (trial.user_attrs["outcome"], trial.user_attrs["reason"]) == (
        "pruned", "the budget is used up",
    )  # fmt: skip


def test_unions_that_there_is_no_time_for_are_closed_too(store: Store, tmp_path: Path) -> None:
    study = new_study(store, tmp_path, 1.0, Warm)
    for knob, value in (("fake.layout", "packed"), ("fake.streams", 2)):
        given = Configuration.of({knob: value})
        record = add(store, given, 1.2, WARM_S)
        study.evaluation.refresh()
        study.tell(study.search.enter(given, "script"), record)
    carried_out(study, try_combinations(study))
    with study_in(tmp_path / "study.db") as (name, storage):
        trials = storage.get_all_trials(storage.get_study_id_from_name(name))
    assert [t.user_attrs["source"] for t in trials] == ["script", "script", UNION]
    assert trials[-1].state.is_finished()
    assert trials[-1].user_attrs["reason"] == "the budget is used up"


class Near(Warm):
    """A study in which everything is all but as good as the best so far."""

    def write(
        self, configuration: Configuration, purpose: Purpose, *, beside: bool
    ) -> LaunchRecord:
        log_rate = 1.3 if configuration == COMPILED else 1.29
        return add(self.store, configuration, log_rate, WARM_S)


def after_proposals(study: Study, n: int) -> Callable[[Step[Any]], bool]:
    """Return what refuses further proposals after so many."""
    n_all = study.n_proposed() + n
    return lambda step: isinstance(step, Launches) and study.n_proposed() >= n_all


@pytest.mark.parametrize(("kind", "n"), [(Near, PROVED), (Warm, 1)])
def test_a_leader_whose_lead_may_be_luck_is_launched_three_times(
    store: Store, tmp_path: Path, kind: type[Study], n: int
) -> None:
    store.add(PhaseDone(Phase.BASELINES, "all measured"))
    study = new_study(store, tmp_path, 3000.0, kind)
    carried_out(study, explore(study), after_proposals(study, 4))
    assert n_launches(study) == n


class NothingLeft(Search):
    """A search that has nothing to propose."""

    def ask(self, winner_class: WinnerClass) -> Proposal:
        raise Exhausted("everything was tried")


IN_TURN = (WinnerClass.SAME_PRECISION, WinnerClass.NO_CODE, WinnerClass.REDUCED_PRECISION)
"""A class that is settled has no turn any more, so that the second is passed over once."""
EXHAUSTED = "; ".join(
    f"{winner_class}: exhausted: everything was tried" for winner_class in IN_TURN
)


def test_where_nothing_is_left_of_any_class_it_ends_for_that(store: Store, tmp_path: Path) -> None:
    study = new_study(store, tmp_path, 600.0, Warm)
    study.search.__class__ = NothingLeft
    carried_out(study, explore(study))
    assert why_it_ended(store) == EXHAUSTED
    assert not store.all(WarningNoted)


def test_where_nothing_could_be_proposed_at_all_a_warning_says_why(
    store: Store, tmp_path: Path
) -> None:
    for record in store.launches.values():
        request = record.request
        record.request = LaunchRequest(request.id, request.configuration, 4, Purpose.BASELINE)
    study = new_study(store, tmp_path, 600.0, Warm)
    study.search.__class__ = NothingLeft
    carried_out(study, explore(study))
    assert [note.text for note in store.all(WarningNoted)] == [
        f"nothing beyond the default and the baselines was tried: {EXHAUSTED}; the space holds "
        "nothing else that applies here"
    ]


def test_where_there_was_no_time_to_propose_anything_that_is_said(
    store: Store, tmp_path: Path
) -> None:
    for record in store.launches.values():
        request = record.request
        record.request = LaunchRequest(request.id, request.configuration, 4, Purpose.BASELINE)
    study = new_study(store, tmp_path, 1.0, Warm)
    carried_out(study, explore(study))
    assert [note.text for note in store.all(WarningNoted)] == [
        "the budget left no time to try anything beyond the default and the baselines"
    ]
