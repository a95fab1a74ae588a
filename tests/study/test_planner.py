"""The course of phases, and that no step is lost on the way to the planner."""

import ast
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import tuner.study
from tests.study.studies import BASELINE, Scripted, carried_out, new_study
from tuner.launchers.clock import VirtualClock
from tuner.record.configuration import Configuration
from tuner.record.launch import LaunchRecord, LaunchRequest, Prepared, Purpose
from tuner.record.outcome import Ending, Outcome
from tuner.record.store import Store
from tuner.study.costs import Budget
from tuner.study.forecast import Forecast
from tuner.study.planner import Planner
from tuner.study.steps import Aim, Launch, NoTime, Step, Steps, TimeShare, ask
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
