"""A lead that is clear is confirmed while the search goes on, and written at once."""

from pathlib import Path

import msgspec
import pytest

from tests.space.spaces import FAKE_DEFAULTS, model, workload
from tuner.app.request import Request
from tuner.app.tune import Finished, tune
from tuner.errors import Interrupted
from tuner.launchers.made_up import MadeUp
from tuner.launchers.recorded import RecordedTestbed
from tuner.measurement.confirmation import EARLY_ALPHA, FIRST_LOOK, look_level
from tuner.record.configuration import Configuration
from tuner.record.events import Event, GainsAhead, LaunchBegins, PhaseBegins, VerdictReached
from tuner.record.files import read_result
from tuner.record.journal import ArmsChosen, EarlyRound, RoundDone
from tuner.record.launch import Purpose
from tuner.record.store import Store

THREADS = ("env.FAKE_THREADS", 4)


def lead(of: float) -> MadeUp:
    def log_rate(configuration: Configuration) -> float:
        return 5.0 + of * (THREADS in configuration.settings)

    return MadeUp(log_rate, launch_sd=0.01, slice_sd=0.01)


def run(source: MadeUp, folder: Path, heard: list[Event], budget_s: float = 260.0) -> Finished:
    card = msgspec.structs.replace(workload("fake").card, name="fake")
    request = Request(model="fake", hardware="fake", budget_s=budget_s, out=folder)
    testbed = RecordedTestbed(source, card, model(FAKE_DEFAULTS))
    (found,) = tune(request, heard.append, testbed)
    return found


def test_a_clear_lead_is_confirmed_before_the_search_begins(tmp_path: Path) -> None:
    heard: list[Event] = []
    found = run(lead(0.6), tmp_path / "out", heard)
    (reached,) = [each for each in heard if isinstance(each, VerdictReached)]
    assert "FAKE_THREADS=4" in reached.label
    point, low, high = reached.speedup
    assert low < 1.822 < high
    assert low < point < high
    explored = [isinstance(e, PhaseBegins) and e.name == "explore" for e in heard].index(True)
    assert heard.index(reached) < explored
    (said,) = [each for each in heard if isinstance(each, GainsAhead)]
    assert 0 < said.gain < 0.6
    assert found.result is not None
    assert found.result.verdict == "faster"
    assert found.result.confirmation.n_early == FIRST_LOOK
    assert found.result.speedup is not None
    assert found.result.speedup.low < 1.822 < found.result.speedup.high
    with Store(found.folder) as store:  # the later verdicts do without what the early one took
        assert store.all(ArmsChosen)[-1].level == look_level(0, EARLY_ALPHA) < look_level(0)


def test_what_is_confirmed_stands_though_the_study_is_stopped(tmp_path: Path) -> None:
    class Stopping(list[Event]):
        def append(self, event: Event) -> None:
            super().append(event)
            if isinstance(event, VerdictReached):
                raise Interrupted("stopped by SIGINT")

    with pytest.raises(Interrupted):
        run(lead(0.6), tmp_path / "out", Stopping())
    result = read_result(tmp_path / "out/result.json")
    assert result.verdict == "faster"
    assert any("resumes it" in warning for warning in result.warnings)
    assert "FAKE_THREADS" in (tmp_path / "out/recommended.toml").read_text()
    heard: list[Event] = []
    found = run(lead(0.6), tmp_path / "out", heard)
    assert not any(isinstance(each, VerdictReached) for each in heard)
    assert found.result is not None
    assert found.result.verdict == "faster"
    assert not any("resumes it" in warning for warning in found.result.warnings)


def test_a_stop_between_two_early_rounds_loses_none(tmp_path: Path) -> None:
    class Stopping(list[Event]):
        def append(self, event: Event) -> None:
            super().append(event)
            launched = [e for e in self if isinstance(e, LaunchBegins)]
            if sum(e.purpose is Purpose.CONFIRM for e in launched) == 4:
                raise Interrupted("stopped by SIGINT")

    with pytest.raises(Interrupted):
        run(lead(0.6), tmp_path / "out", Stopping())
    with Store(tmp_path / "out") as store:
        (first,) = store.all(EarlyRound)
    run(lead(0.6), tmp_path / "out", [])
    with Store(tmp_path / "out") as store:
        rounds = store.all(EarlyRound)
        assert rounds[0] == first
        assert len(rounds) == FIRST_LOOK
        assert {each.arm for each in rounds} == {first.arm}
        numbers = [store.launches[each.launches[0]].request.round for each in rounds]
        later = [store.launches[each.launches[0]].request.round for each in store.all(RoundDone)]
        assert len({*numbers, *later}) == len(numbers) + len(later)


@pytest.mark.parametrize(("gain", "budget_s"), [(0.02, 260.0), (0.6, 30.0)])
def test_no_time_is_spent_on_what_four_rounds_do_not_decide_or_take_too_much_for(
    tmp_path: Path, gain: float, budget_s: float
) -> None:
    heard: list[Event] = []
    found = run(lead(gain), tmp_path / "out", heard, budget_s)
    with Store(found.folder) as store:
        assert store.all(EarlyRound) == []
    assert not any(isinstance(each, VerdictReached) for each in heard)
