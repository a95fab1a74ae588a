"""Proposals over a real Optuna study in SQLite."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec
import optuna
import pytest

from tests.command import HANGS_S
from tests.space.spaces import FAKE_DEFAULTS, machine, resolved
from tests.wants import lack, needs
from tuner.errors import StorageFailed
from tuner.record.configuration import Configuration
from tuner.record.journal import TrialNoted
from tuner.record.outcome import Ending, Outcome
from tuner.record.winner_class import WinnerClass
from tuner.search.proposals import Exhausted
from tuner.search.search import Search
from tuner.space.catalogue import narrowest_class
from tuner.space.restrictions import Restrictions, parse_restrictions
from tuner.space.space import Space
from tuner.worker.frameworks.fake import Surface


class Searched:
    """A search over the fake's true speed, without measuring."""

    def __init__(self, folder: Path, restrictions: Restrictions | None = None, seed: int = 0):
        self.space: Space = resolved(
            machine(folder / "machine"), "fake", FAKE_DEFAULTS, "fake", restrictions
        )
        self.surface = Surface(seed)
        self.tried: dict[Configuration, float | None] = {}
        self.search = Search(folder / "study.db", self.space, self.scores, seed)

    def scores(self) -> Mapping[Configuration, float | None]:
        return self.tried

    def step(self, winner_class: WinnerClass) -> Configuration:
        proposal = self.search.ask(winner_class)
        score = self.surface.log_rate(proposal.configuration.as_dict())
        self.tried[proposal.configuration] = score
        self.search.tell(proposal, Outcome.MEASURED, "", score)
        return proposal.configuration


@pytest.mark.parametrize("damage", ["half", "empty", "gone", "scribbled", "shorter"])
def test_a_damaged_file_is_made_again_from_what_is_noted(tmp_path: Path, damage: str) -> None:
    searched = Searched(tmp_path)
    noted = []
    for number in range(12):
        earlier = (tmp_path / "study.db").read_bytes()
        proposal = searched.search.ask(WinnerClass.REDUCED_PRECISION)
        assert proposal.number == number
        score = None if number == 5 else searched.surface.log_rate(proposal.configuration.as_dict())
        searched.search.tell(proposal, Outcome.MEASURED, "", score)
        searched.tried[proposal.configuration] = score
        ending = Ending(Outcome.MEASURED)
        noted.append(TrialNoted(number, proposal.configuration, proposal.source, ending, (), score))
    del noted[3]  # asked for by a tool that was killed before it was measured
    path = tmp_path / "study.db"
    whole = path.read_bytes()
    match damage:
        case "half":
            path.write_bytes(whole[: len(whole) // 2])
        case "empty":
            path.write_bytes(b"")
        case "gone":
            path.unlink()
        case "scribbled":
            path.write_bytes(whole[:20_000] + bytes(range(256)) * 80 + whole[40_480:])
        case "shorter":
            path.write_bytes(earlier[:-1] if earlier == whole else earlier)
    again = Search(path, searched.space, searched.scores, 0, noted)
    assert again.was_damaged
    stored = optuna.load_study(study_name="study", storage=f"sqlite:///{path}").trials
    assert [t.number for t in stored] == list(range(12))
    labels = {t.number: t.user_attrs.get("configuration") for t in stored}
    assert labels == {**{n.number: n.configuration.label() for n in noted}, 3: None}
    assert {t.number: t.value for t in stored if t.value is not None} == {
        n.number: pytest.approx(n.score) for n in noted if n.score is not None
    }
    new = again.ask(WinnerClass.REDUCED_PRECISION)
    assert new.number == 12
    assert new.configuration not in {n.configuration for n in noted}


@needs("root")
@pytest.mark.parametrize(
    "kib", [60, 100, *(pytest.param(kib, marks=pytest.mark.slow) for kib in (140, 180))]
)
def test_a_full_disk_is_said_to_be_full(tmp_path: Path, kib: int) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", str(small)]
    if subprocess.run(mount, check=False).returncode:
        lack("a mount of one's own")
    searched = Searched(tmp_path)
    try:
        with pytest.raises(StorageFailed, match="free disk space"):
            searched.search = Search(small / "study.db", searched.space, searched.scores, 0)
            for _ in range(100):
                searched.step(WinnerClass.REDUCED_PRECISION)
        subprocess.run(["mount", "-o", "remount,size=8m", str(small)], check=True)
        searched.search = Search(small / "study.db", searched.space, searched.scores, 0)
        searched.step(WinnerClass.REDUCED_PRECISION)
    finally:  # SQLite's connections are closed with the process
        subprocess.run(["umount", "--lazy", str(small)], check=True)


def test_a_sound_file_is_left_alone(tmp_path: Path) -> None:
    searched = Searched(tmp_path)
    configuration = searched.step(WinnerClass.SAME_PRECISION)
    note = TrialNoted(0, configuration, "random", Ending(Outcome.MEASURED), (), 1.0)
    again = Search(tmp_path / "study.db", searched.space, searched.scores, 0, [note])
    assert not again.was_damaged


def test_nothing_is_proposed_twice_and_everything_is_feasible(tmp_path: Path) -> None:
    searched = Searched(tmp_path)
    proposals = [searched.step(winner_class) for _ in range(15) for winner_class in WinnerClass]
    assert len(set(proposals)) == len(proposals)
    assert all(searched.space.contains(c) for c in proposals)


@pytest.mark.parametrize("winner_class", WinnerClass)
def test_a_class_is_never_left(tmp_path: Path, winner_class: WinnerClass) -> None:
    searched = Searched(tmp_path)
    order = list(WinnerClass)
    for _ in range(12):
        found = narrowest_class(searched.step(winner_class))
        assert order.index(found) <= order.index(winner_class)


def test_the_first_neighbour_of_a_class_tries_what_only_it_allows(tmp_path: Path) -> None:
    searched = Searched(tmp_path)
    for settings in ({}, {"workload.batch": 16}, {"env.FAKE_THREADS": 4}):
        proposal = searched.search.enter(Configuration.of(settings), "baseline")
        searched.tried[proposal.configuration] = score = searched.surface.log_rate(settings)
        searched.search.tell(proposal, Outcome.MEASURED, "", score)
    for winner_class in (WinnerClass.SAME_PRECISION, WinnerClass.REDUCED_PRECISION):
        assert narrowest_class(searched.step(winner_class)) is winner_class


@pytest.mark.parametrize("seed", range(5))
def test_a_value_that_failed_does_not_come_first_again(tmp_path: Path, seed: int) -> None:
    searched = Searched(tmp_path, seed=seed)
    for settings in ({}, {"fake.precision": "bf16"}):
        proposal = searched.search.enter(Configuration.of(settings), "baseline")
        failed = "fake.precision" in settings
        searched.tried[proposal.configuration] = None if failed else 1.0
        outcome = Outcome.CRASHED if failed else Outcome.MEASURED
        searched.search.tell(proposal, outcome, "", None if failed else 1.0)
    better = searched.search.enter(Configuration.of({"workload.batch": 16}), "baseline")
    searched.tried[better.configuration] = 2.0
    searched.search.tell(better, Outcome.MEASURED, "", 2.0)
    found = searched.step(WinnerClass.REDUCED_PRECISION)
    assert "fake.precision" not in found.as_dict()


_PROPOSALS = """
import sys
from pathlib import Path
from tests.search.test_search import Searched
from tuner.record.journal import WinnerClass
searched = Searched(Path(sys.argv[1]))
print([str(searched.step(winner_class)) for _ in range(8) for winner_class in WinnerClass])
"""


@pytest.mark.slow
def test_the_seed_alone_decides_what_is_proposed(tmp_path: Path) -> None:
    found = set()
    for hash_seed in "12":
        ran = subprocess.run(
            [sys.executable, "-c", _PROPOSALS, tmp_path / hash_seed],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=True,
        )
        found.add(ran.stdout)
    assert len(found) == 1


def test_a_small_class_is_exhausted_and_says_so(tmp_path: Path) -> None:
    searched = Searched(tmp_path)
    n = 4 * 3 * 2  # threads x allocators x batches
    found = {searched.step(WinnerClass.NO_CODE) for _ in range(n)}
    assert len(found) == n
    with pytest.raises(Exhausted):
        searched.step(WinnerClass.NO_CODE)
    assert searched.step(WinnerClass.SAME_PRECISION)


def test_fixed_settings_are_in_every_proposal(tmp_path: Path) -> None:
    restrictions = parse_restrictions([], ["fake.layout=packed"], ["fake.streams"], "both")
    searched = Searched(tmp_path, restrictions)
    for _ in range(20):
        proposal = searched.step(WinnerClass.REDUCED_PRECISION)
        assert proposal.get("fake.layout") == "packed"
        assert proposal.get("fake.streams") is None


@pytest.mark.parametrize("seed", range(3))
def test_the_optimum_is_found_within_a_tenth_of_the_space(tmp_path: Path, seed: int) -> None:
    searched = Searched(tmp_path, seed=seed)
    best = max(searched.surface.log_rate(c.as_dict()) for c in searched.space.configurations())
    for _ in range(86):
        searched.step(WinnerClass.REDUCED_PRECISION)
        highest = max(s for s in searched.tried.values() if s is not None)
        if highest == pytest.approx(best):
            break
    assert highest == pytest.approx(best)


def test_failures_are_told_as_infeasible(tmp_path: Path) -> None:
    searched = Searched(tmp_path)
    proposal = searched.search.ask(WinnerClass.REDUCED_PRECISION)
    searched.tried[proposal.configuration] = None
    searched.search.tell(proposal, Outcome.CRASHED, "killed by SIGSEGV", None)
    study = optuna.load_study(study_name="study", storage=f"sqlite:///{tmp_path / 'study.db'}")
    (trial,) = study.get_trials()
    assert trial.state is optuna.trial.TrialState.PRUNED
    assert trial.user_attrs["outcome"] == "crashed"
    assert "SIGSEGV" in trial.user_attrs["reason"]
    assert [value > 0 for value in trial.constraints.values()] == [True]


def test_optuna_takes_no_failure_for_the_best(tmp_path: Path) -> None:
    searched = Searched(tmp_path)
    worked, failed = (searched.search.ask(WinnerClass.REDUCED_PRECISION) for _ in range(2))
    searched.search.tell(failed, Outcome.CRASHED, "killed by SIGSEGV", None)
    searched.search.tell(worked, Outcome.MEASURED, "", -3.0)
    study = optuna.load_study(study_name="study", storage=f"sqlite:///{tmp_path / 'study.db'}")
    assert study.best_trial.number == worked.number
    assert study.best_trial.constraints == {}


def test_what_a_killed_tool_left_running_is_closed(tmp_path: Path) -> None:
    searched = Searched(tmp_path)
    searched.search.ask(WinnerClass.SAME_PRECISION)
    again = Search(tmp_path / "study.db", searched.space, searched.scores, 0)
    study = optuna.load_study(study_name="study", storage=f"sqlite:///{tmp_path / 'study.db'}")
    assert [t.state for t in study.get_trials()] == [optuna.trial.TrialState.FAIL]
    assert again.ask(WinnerClass.SAME_PRECISION).number == 1


_STOPPED_AT_ANY_MOMENT = """
import os, random, signal, sqlite3, sys, threading
from pathlib import Path
from tests.search.test_search import Searched
from tuner import interrupts
from tuner.errors import Interrupted
from tuner.record.journal import WinnerClass

Searched(Path(sys.argv[1]) / "imported").step(WinnerClass.SAME_PRECISION)
moments, number = random.Random(5), signal.Signals[sys.argv[2]]
for i in range(16):
    folder = Path(sys.argv[1]) / str(i % 5 if number is signal.SIGTERM else i)
    child = os.fork()
    if not child:
        moment = moments.uniform(0.0, 0.15)
        try:
            with interrupts.heeded():
                threading.Timer(moment, os.kill, (os.getpid(), number)).start()
                searched = Searched(folder)
                while True:
                    searched.step(WinnerClass.REDUCED_PRECISION)
        except Interrupted:
            os._exit(130)
        except BaseException as error:
            print(repr(error), flush=True)
            os._exit(1)
    moments.random()
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
    if (folder / "study.db").exists():
        with sqlite3.connect(folder / "study.db") as database:
            found = database.execute("select name from sqlite_master").fetchall()
        assert ("ix_studies_study_name",) in found
    Searched(folder).step(WinnerClass.SAME_PRECISION)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("number", "end"), [("SIGTERM", "130"), ("SIGKILL", "-9")])
def test_a_signal_at_any_moment_leaves_a_study_that_goes_on(
    tmp_path: Path, number: str, end: str
) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _STOPPED_AT_ANY_MOMENT, tmp_path, number],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=HANGS_S,
        check=False,
    )
    assert ran.stdout.split("\n") == [end] * 16 + [""], ran.stderr
    assert ran.returncode == 0, ran.stderr


def test_what_was_noted_but_not_told_is_told_on_resume(tmp_path: Path) -> None:
    searched = Searched(tmp_path)
    proposal = searched.search.ask(WinnerClass.SAME_PRECISION)
    searched.tried[proposal.configuration] = 4.5  # the tool died before telling it
    Search(tmp_path / "study.db", searched.space, searched.scores, 0)
    study = optuna.load_study(study_name="study", storage=f"sqlite:///{tmp_path / 'study.db'}")
    (trial,) = study.get_trials()
    assert trial.state is optuna.trial.TrialState.COMPLETE
    assert trial.value == 4.5


def test_a_baseline_outside_the_search_is_entered_all_the_same(tmp_path: Path) -> None:
    restrictions = parse_restrictions([], [], ["env.FAKE_THREADS"], "both")
    searched = Searched(tmp_path, restrictions)
    outside = Configuration.of({"env.FAKE_THREADS": 4})
    proposal = searched.search.enter(outside, "vendor_threads")
    assert proposal.configuration == outside
    searched.search.tell(proposal, Outcome.MEASURED, "", 1.0)


def test_of_late_knobs_little_is_expected_and_all_the_same_they_are_searched(
    tmp_path: Path,
) -> None:
    searched = Searched(tmp_path)
    late = [msgspec.structs.replace(k, is_late=k.id == "fake.layout") for k in searched.space.knobs]
    searched.space = Space(late, {})
    searched.search = Search(tmp_path / "late.db", searched.space, searched.scores, 0)
    proposal = searched.search.enter(Configuration(), "default")
    searched.tried[Configuration()] = 0.0
    searched.search.tell(proposal, Outcome.MEASURED, "", 0.0)
    found = []
    for _ in range(40):
        found.append(searched.step(WinnerClass.REDUCED_PRECISION))
        searched.tried[found[-1]] = -0.05  # nothing beats the default
    asked = [i for i, c in enumerate(found) if c.get("fake.layout") is not None]
    others = [i for i, c in enumerate(found) if c.get("fake.layout") is None]
    assert min(others) < 2 < min(asked)


def test_several_are_asked_for_before_the_first_is_told_and_none_twice(tmp_path: Path) -> None:
    searched = Searched(tmp_path)
    for _ in range(6):
        searched.step(WinnerClass.REDUCED_PRECISION)
    classes = (
        WinnerClass.SAME_PRECISION,
        WinnerClass.SAME_PRECISION,
        WinnerClass.REDUCED_PRECISION,
        WinnerClass.NO_CODE,
    )
    for _ in range(8):
        asked = [searched.search.ask(winner_class) for winner_class in classes]
        proposed = [proposal.configuration for proposal in asked]
        assert len({*proposed, *searched.tried}) == len(proposed) + len(searched.tried)
        for proposal in reversed(asked):  # in whatever order
            score = searched.surface.log_rate(proposal.configuration.as_dict())
            searched.tried[proposal.configuration] = score
            searched.search.tell(proposal, Outcome.MEASURED, "", score)
    stored = optuna.load_study(study_name="study", storage=f"sqlite:///{tmp_path / 'study.db'}")
    assert all(t.state is optuna.trial.TrialState.COMPLETE for t in stored.trials)


def test_a_belief_of_what_is_under_way_is_forgotten_once_it_is_told(tmp_path: Path) -> None:
    searched = Searched(tmp_path)
    for _ in range(6):
        searched.step(WinnerClass.REDUCED_PRECISION)
    first = searched.search.ask(WinnerClass.REDUCED_PRECISION)
    before = searched.search.beliefs([first.configuration])[0]
    second = searched.search.ask(WinnerClass.REDUCED_PRECISION)
    believed = searched.search.beliefs([first.configuration])[0]
    assert believed.mean == pytest.approx(before.mean, abs=0.05)
    assert believed.sd < before.sd  # as if it had been measured: there is no more to learn there
    for proposal in (first, second):
        searched.search.tell(proposal, Outcome.CRASHED, "", None)
        searched.tried[proposal.configuration] = None
    after = searched.search.beliefs([first.configuration])[0]
    assert after.sd > believed.sd


def test_more_may_be_asked_for_where_nothing_has_a_score_yet(tmp_path: Path) -> None:
    searched = Searched(tmp_path)
    asked = {searched.search.ask(WinnerClass.SAME_PRECISION).configuration for _ in range(5)}
    assert len(asked) == 5
