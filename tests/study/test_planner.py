"""The course of phases, and that no step is lost on the way to the planner."""

import ast
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tuner.study
from tests.study.studies import BASELINE, Scripted, carried_out, new_study
from tuner.launchers.clock import VirtualClock
from tuner.measurement.confirmation import FIRST_LOOK, LOOKS
from tuner.record.configuration import Configuration
from tuner.record.events import Event, TimeLeft
from tuner.record.launch import LaunchRecord, LaunchRequest, Prepared, Purpose
from tuner.record.load import Slo
from tuner.record.objective import Objective
from tuner.record.outcome import Ending, Outcome
from tuner.record.store import Store
from tuner.study.costs import Budget
from tuner.study.forecast import Forecast
from tuner.study.planner import Planner
from tuner.study.steps import (
    Aim,
    EarlyLook,
    ExtraRound,
    Launch,
    LoadgenRun,
    NoTime,
    Round,
    Step,
    Steps,
    TimeShare,
    ask,
)
from tuner.study.study import Study


class TenSecondsEach(Scripted):
    """A study whose launches take ten seconds of a clock that stands still."""

    def write(
        self, configuration: Configuration, purpose: Purpose, *, beside: bool
    ) -> LaunchRecord:
        id = self.store.next_launch_id()
        self.store.launches[id] = LaunchRecord(
            LaunchRequest(id, configuration, 4, purpose),
            prepared=Prepared(0.1, 0.1, 0.5, True, 0, 0, ()),
            ending=Ending(Outcome.MEASURED),
            total_s=10.0,
        )
        return self.store.launches[id]


@pytest.fixture
def study(tmp_path: Path) -> Iterator[Study]:
    with Store(tmp_path / "study") as store:
        yield new_study(store, tmp_path, 1000.0, TenSecondsEach)


Phase = Callable[[Study], Steps[None]]


def phase(name: str, said: list[str], n: int) -> Phase:
    """Return a phase of `n` launches that says when it begins, goes on and ends."""

    def steps(study: Study) -> Steps[None]:
        for k in range(n):
            said.append(f"{name}{k}")
            yield from ask(Launch(BASELINE, Purpose.RACE, Aim.CONTENTION))
        said.append(f"{name} ends")

    return steps


def test_a_phase_begins_when_those_before_it_have_ended(study: Study) -> None:
    said: list[str] = []
    Planner(study).run([phase("a", said, 2), phase("b", said, 0), phase("c", said, 1)])
    assert said == ["a0", "a1", "a ends", "b ends", "c0", "c ends"]
    assert len(study.store.launches) == 3


def test_a_phase_goes_on_after_a_step_that_was_refused(tmp_path: Path) -> None:
    answers: list[LaunchRecord | NoTime] = []

    def steps() -> Steps[int]:
        for _ in range(2):
            answers.append((yield from ask(Launch(BASELINE, Purpose.RACE, Aim.CONTENTION))))
        return len(answers)

    with Store(tmp_path / "study") as store:
        assert carried_out(new_study(store, tmp_path, 1.0, TenSecondsEach), steps()) == 2
    assert answers == [NoTime(), NoTime()]


def test_what_measuring_raises_ends_the_run(study: Study) -> None:
    class Unanswered(Planner):
        def answer(self, step: Step[Any]) -> Any:
            raise KeyboardInterrupt

    said: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        Unanswered(study).run([phase("a", said, 1), phase("b", said, 1)])
    assert said == ["a0"]


def functions_of_steps(nodes: Sequence[ast.AST]) -> set[str]:
    return {
        node.name
        for node in nodes
        if isinstance(node, ast.FunctionDef)
        and node.returns is not None
        and ast.unparse(node.returns).startswith("Steps[")
    }


def test_steps_that_a_phase_calls_for_reach_the_planner() -> None:
    """A generator that is called and not driven does nothing, and no checker says so."""
    folder = Path(tuner.study.__path__[0])
    modules = {p.stem: list(ast.walk(ast.parse(p.read_text()))) for p in folder.glob("*.py")}
    steps = {f"tuner.study.{name}": functions_of_steps(nodes) for name, nodes in modules.items()}
    lost, n_calls = [], 0
    for name, nodes in modules.items():
        own = steps[f"tuner.study.{name}"]
        known = {*own, *(f"self.{each}" for each in own), *(f"reduction.{each}" for each in own)}
        for node in nodes:
            if isinstance(node, ast.ImportFrom):
                known |= steps.get(node.module or "", set()) & {a.name for a in node.names}
        passed_on = {id(n.value) for n in nodes if isinstance(n, ast.YieldFrom | ast.Return)}
        calls = [n for n in nodes if isinstance(n, ast.Call) and ast.unparse(n.func) in known]
        n_calls += len(calls)
        lost += [ast.unparse(node) for node in calls if id(node) not in passed_on]
    assert n_calls > 20
    assert lost == []


def test_a_removal_leaves_the_time_of_the_report(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the confirmation has come to need more than when its share was fixed."""
    confirming_s = 0.0
    monkeypatch.setattr(Forecast, "is_out_of_reach", lambda _: False)
    monkeypatch.setattr(Forecast, "confirming_s", lambda _: confirming_s)
    study.budget = Budget(100.0, kept_s=20.0, clock=VirtualClock())
    study.measure(BASELINE, Purpose.RACE)
    planner = Planner(study)
    removal = Launch(BASELINE, Purpose.RACE, Aim.REMOVAL, share=TimeShare(1))
    assert isinstance(planner.answer(removal), LaunchRecord)
    confirming_s = 70.0  # leaves the ten seconds of a launch
    assert isinstance(planner.answer(removal), LaunchRecord)
    confirming_s = 75.0
    assert isinstance(planner.answer(removal), NoTime)


CONFIRMING_S, MINIMISING_S, PROVING_S, LAUNCH_S = 70.0, 200.0, 30.0, 10.0


@pytest.mark.parametrize(
    ("aim", "needed_s"),
    [
        (Aim.CONTENTION, CONFIRMING_S + LAUNCH_S),
        (Aim.RACE, CONFIRMING_S + MINIMISING_S + LAUNCH_S),
        # and as much as itself for the race, and for what is launched after it
        (Aim.SEARCH, CONFIRMING_S + PROVING_S + 3 * LAUNCH_S),
    ],
)
def test_a_launch_leaves_the_later_phases_their_time(
    study: Study, monkeypatch: pytest.MonkeyPatch, aim: Aim, needed_s: float
) -> None:
    monkeypatch.setattr(Forecast, "is_out_of_reach", lambda _: False)
    monkeypatch.setattr(Forecast, "confirming_s", lambda _: CONFIRMING_S)
    monkeypatch.setattr(Forecast, "minimising_s", lambda _: MINIMISING_S)
    monkeypatch.setattr(Forecast, "proving_s", lambda _: PROVING_S)
    study.measure(BASELINE, Purpose.RACE)
    leaving = [BASELINE] if aim is Aim.SEARCH else []
    step = Launch(BASELINE, Purpose.RACE, aim, leaving=leaving)
    for left_s in (needed_s, needed_s - 1):
        study.budget = Budget(1000.0, 1000.0 - left_s, clock=VirtualClock())
        assert isinstance(Planner(study).answer(step), LaunchRecord) is (left_s == needed_s)


def test_to_prove_settings_takes_no_more_than_its_share(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Forecast, "is_out_of_reach", lambda _: False)
    monkeypatch.setattr(Forecast, "confirming_s", lambda _: CONFIRMING_S)
    monkeypatch.setattr(Forecast, "proving_s", lambda _: 1e6)
    assert Planner(study).after_search_s(LAUNCH_S) == CONFIRMING_S + 0.2 * 1000.0 + LAUNCH_S


def test_nothing_is_kept_where_no_verdict_fits(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Forecast, "is_out_of_reach", lambda _: True)
    monkeypatch.setattr(Forecast, "confirming_s", lambda _: 1e6)
    assert Planner(study).after_search_s(LAUNCH_S) == 0.0
    step = Launch(BASELINE, Purpose.RACE, Aim.CONTENTION)
    assert isinstance(Planner(study).answer(step), LaunchRecord)


class InRounds(TenSecondsEach):
    """A study that notes what is asked of its rounds."""

    asked: dict[str, Any]

    def measure_round(
        self, arms: list[Configuration], number: int, purpose: Purpose, **asked: Any
    ) -> list[LaunchRecord]:
        self.asked = {"number": number, **asked}
        return [self.measure(arm, purpose) for arm in arms]


@pytest.fixture
def in_rounds(tmp_path: Path) -> Iterator[InRounds]:
    with Store(tmp_path / "study") as store:
        study = new_study(store, tmp_path, 1000.0, InRounds)
        assert isinstance(study, InRounds)
        study.measure(BASELINE, Purpose.BASELINE)
        yield study


ROUND_S = 1.25 * 2 * LAUNCH_S
"""Of two arms, with a reserve."""


@pytest.mark.parametrize(
    ("step", "needed_s"),
    [
        (Round([BASELINE] * 2, 1, Purpose.EXPLAIN), 4 * ROUND_S),  # all four, or none
        (Round([BASELINE] * 2, 3, Purpose.EXPLAIN), 2 * ROUND_S),
        (Round([BASELINE] * 2, 1, Purpose.DESIGN), 0.0),  # the first tells what one takes
        (Round([BASELINE] * 2, 2, Purpose.DESIGN), ROUND_S),
    ],
)
def test_rounds_that_tell_nothing_by_themselves_are_granted_together_or_not_at_all(
    in_rounds: InRounds, step: Round, needed_s: float
) -> None:
    in_rounds.budget = Budget(1000.0, 1000.0 - needed_s, clock=VirtualClock())
    assert not isinstance(Planner(in_rounds).answer(step), NoTime)
    in_rounds.budget = Budget(1000.0, 1000.0 - needed_s + 1, clock=VirtualClock())
    found = Planner(in_rounds).answer(step)
    if needed_s:
        assert found == NoTime(f"it takes {needed_s:.0f} s")


def test_outputs_are_checked_in_rounds_of_the_designed_part_alone(in_rounds: InRounds) -> None:
    """Elsewhere what takes part in a round was checked before."""
    for purpose in (Purpose.DESIGN, Purpose.EXPLAIN):
        Planner(in_rounds).answer(Round([BASELINE] * 2, 1, purpose))
        assert in_rounds.asked["checks"] is (purpose is Purpose.DESIGN)


def test_rounds_before_the_first_look_share_the_time_that_is_left(in_rounds: InRounds) -> None:
    in_rounds.budget = Budget(1000.0, clock=VirtualClock())
    planner = Planner(in_rounds)
    for n_before, seconds in ((0, 250.0), (3, 1000.0), (FIRST_LOOK, math.inf)):
        planner.answer(Round([BASELINE] * 2, n_before + 1, Purpose.CONFIRM, n_before))
        assert in_rounds.asked["seconds"] == pytest.approx(seconds)


def test_a_first_look_of_an_early_verdict_takes_its_share_or_is_not_begun(
    in_rounds: InRounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Forecast, "is_out_of_reach", lambda _: False)
    monkeypatch.setattr(Forecast, "confirming_s", lambda _: CONFIRMING_S)
    arms, needed_s = [BASELINE] * 2, 4 * ROUND_S

    def answer(total_s: float, left_s: float, number: int) -> Any:
        in_rounds.budget = Budget(total_s, total_s - left_s, clock=VirtualClock())
        return Planner(in_rounds).answer(EarlyLook(arms, number))

    whole_s = needed_s / 0.15  # of which all four rounds are the share
    assert not isinstance(answer(whole_s + 1, needed_s + CONFIRMING_S, 1), NoTime)
    # replays draw launches by the number of their round
    assert in_rounds.asked["number"] == LOOKS[-1] + 1
    assert in_rounds.asked["seconds"] == pytest.approx(ROUND_S, rel=0.01)
    assert isinstance(answer(whole_s - 1, needed_s + CONFIRMING_S, 1), NoTime)
    assert isinstance(answer(whole_s + 1, needed_s + CONFIRMING_S - 1, 1), NoTime)
    # one that was begun is ended, and needs no more than what is missing
    assert not isinstance(answer(whole_s - 1, ROUND_S + CONFIRMING_S, 4), NoTime)
    assert isinstance(answer(whole_s - 1, ROUND_S + CONFIRMING_S, 3), NoTime)


SLO = Slo(0.99, 0.1, "--slo p99=100ms")


def test_loadgen_is_asked_where_its_run_fits_and_only_about_what_it_can_tell(
    in_rounds: InRounds,
) -> None:
    """A tenth of 1000 s holds 50 requests at half of one a second: too few for a p99."""
    in_rounds.evaluation.objective = msgspec.structs.replace(Objective.of("rate_within"), slo=SLO)
    step = LoadgenRun(BASELINE, 0.5)
    needed_s = LAUNCH_S + 100.0
    in_rounds.budget = Budget(1000.0, 1000.0 - needed_s + 1, clock=VirtualClock())
    assert Planner(in_rounds).answer(step) == NoTime()
    in_rounds.budget = Budget(1000.0, 1000.0 - needed_s, clock=VirtualClock())
    told: list[Event] = []
    in_rounds.listen = told.append
    found = Planner(in_rounds).answer(step)
    assert (found.rate, found.told) == (0.5, None)
    assert found.fault == "100 s hold too few requests at this rate to say anything of p99"
    assert told == [TimeLeft(needed_s)]


def test_a_round_after_the_verdict_wants_something_to_look_at(
    in_rounds: InRounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A profile, or what a neighbour leaves; for that, there must be two arms to compare."""
    monkeypatch.setattr(type(in_rounds.bench), "may_profile", lambda *_: False)
    in_rounds.budget = Budget(1000.0, clock=VirtualClock())
    planner = Planner(in_rounds)
    assert planner.answer(ExtraRound([BASELINE], 1)) == NoTime()
    assert not isinstance(planner.answer(ExtraRound([BASELINE] * 2, 1)), NoTime)
    asked = in_rounds.asked
    assert (asked["number"], asked["beside_neighbour"], asked["profiled"]) == (1, True, [])
    monkeypatch.setattr(type(in_rounds.bench), "may_profile", lambda *_: True)
    assert not isinstance(planner.answer(ExtraRound([BASELINE], 2)), NoTime)
    asked = in_rounds.asked
    assert (asked["beside_neighbour"], asked["profiled"]) == (False, [BASELINE])
    in_rounds.budget = Budget(1000.0, 999.0, clock=VirtualClock())
    assert Planner(in_rounds).answer(ExtraRound([BASELINE], 3)) == NoTime()
