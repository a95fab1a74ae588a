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
from tuner.errors import StorageFailed
from tuner.record.configuration import Configuration
from tuner.record.journal import TrialNoted, WinnerClass
from tuner.record.outcome import Ending, Outcome
from tuner.search.sampler import Exhausted
from tuner.search.trials import Trials
from tuner.space.knobs import winner_class
from tuner.space.restrictions import Restrictions, parse_restrictions
from tuner.space.space import Space
from tuner.worker.frameworks.fake import Surface


class Search:
    """A search over the fake's true speed, without measuring."""

    def __init__(self, folder: Path, restrictions: Restrictions | None = None, seed: int = 0):
        self.space: Space = resolved(
            machine(folder / "machine"), "fake", FAKE_DEFAULTS, "fake", restrictions
        )
        self.surface = Surface(seed)
        self.tried: dict[Configuration, float | None] = {}
        self.trials = Trials(folder / "study.db", self.space, self.scores, seed)

    def scores(self) -> Mapping[Configuration, float | None]:
        return self.tried

    def step(self, klass: WinnerClass) -> Configuration:
        proposal = self.trials.ask(klass)
        score = self.surface.log_rate(proposal.configuration.as_dict())
        self.tried[proposal.configuration] = score
        self.trials.tell(proposal.number, Outcome.MEASURED, "", score)
        return proposal.configuration


@pytest.mark.parametrize("damage", ["half", "empty", "gone", "scribbled", "shorter"])
def test_a_damaged_file_is_made_again_from_what_is_noted(tmp_path: Path, damage: str) -> None:
    search = Search(tmp_path)
    noted = []
    for number in range(12):
        earlier = (tmp_path / "study.db").read_bytes()
        proposal = search.trials.ask(WinnerClass.REDUCED)
        assert proposal.number == number
        score = None if number == 5 else search.surface.log_rate(proposal.configuration.as_dict())
        search.trials.tell(number, Outcome.MEASURED, "", score)
        search.tried[proposal.configuration] = score
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
    again = Trials(path, search.space, search.scores, 0, noted)
    assert again.was_damaged
    stored = optuna.load_study(study_name="study", storage=f"sqlite:///{path}").trials
    assert [t.number for t in stored] == list(range(12))
    labels = {t.number: t.user_attrs.get("configuration") for t in stored}
    assert labels == {**{n.number: n.configuration.label() for n in noted}, 3: None}
    assert {t.number: t.value for t in stored if t.value is not None} == {
        n.number: pytest.approx(n.score) for n in noted if n.score is not None
    }
    new = again.ask(WinnerClass.REDUCED)
    assert new.number == 12
    assert new.configuration not in {n.configuration for n in noted}


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
@pytest.mark.parametrize("kib", [60, 100, 140, 180])
def test_a_full_disk_is_said_to_be_full(tmp_path: Path, kib: int) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", str(small)]
    if subprocess.run(mount, check=False).returncode:
        pytest.skip("this container may not mount a tmpfs")
    search = Search(tmp_path)
    try:
        with pytest.raises(StorageFailed, match="make room"):
            search.trials = Trials(small / "study.db", search.space, search.scores, 0)
            for _ in range(100):
                search.step(WinnerClass.REDUCED)
        subprocess.run(["mount", "-o", "remount,size=8m", str(small)], check=True)
        search.trials = Trials(small / "study.db", search.space, search.scores, 0)
        search.step(WinnerClass.REDUCED)
    finally:  # SQLite's connections are closed with the process
        subprocess.run(["umount", "--lazy", str(small)], check=True)


def test_a_sound_file_is_left_alone(tmp_path: Path) -> None:
    search = Search(tmp_path)
    configuration = search.step(WinnerClass.SAME)
    note = TrialNoted(0, configuration, "random", Ending(Outcome.MEASURED), (), 1.0)
    again = Trials(tmp_path / "study.db", search.space, search.scores, 0, [note])
    assert not again.was_damaged


def test_nothing_is_proposed_twice_and_everything_is_feasible(tmp_path: Path) -> None:
    search = Search(tmp_path)
    proposals = [search.step(klass) for _ in range(15) for klass in WinnerClass]
    assert len(set(proposals)) == len(proposals)
    assert all(search.space.contains(c) for c in proposals)


@pytest.mark.parametrize("klass", WinnerClass)
def test_a_class_is_never_left(tmp_path: Path, klass: WinnerClass) -> None:
    search = Search(tmp_path)
    order = list(WinnerClass)
    for _ in range(12):
        found = winner_class(search.step(klass))
        assert order.index(found) <= order.index(klass)


def test_the_first_neighbour_of_a_class_tries_what_only_it_allows(tmp_path: Path) -> None:
    search = Search(tmp_path)
    for settings in ({}, {"workload.batch": 16}, {"env.FAKE_THREADS": 4}):
        proposal = search.trials.ask_for(Configuration.of(settings), "baseline")
        search.tried[proposal.configuration] = score = search.surface.log_rate(settings)
        search.trials.tell(proposal.number, Outcome.MEASURED, "", score)
    for klass in (WinnerClass.SAME, WinnerClass.REDUCED):
        assert winner_class(search.step(klass)) is klass


@pytest.mark.parametrize("seed", range(5))
def test_a_value_that_failed_does_not_come_first_again(tmp_path: Path, seed: int) -> None:
    search = Search(tmp_path, seed=seed)
    for settings in ({}, {"fake.precision": "bf16"}):
        proposal = search.trials.ask_for(Configuration.of(settings), "baseline")
        failed = "fake.precision" in settings
        search.tried[proposal.configuration] = None if failed else 1.0
        outcome = Outcome.CRASHED if failed else Outcome.MEASURED
        search.trials.tell(proposal.number, outcome, "", None if failed else 1.0)
    better = search.trials.ask_for(Configuration.of({"workload.batch": 16}), "baseline")
    search.tried[better.configuration] = 2.0
    search.trials.tell(better.number, Outcome.MEASURED, "", 2.0)
    found = search.step(WinnerClass.REDUCED)
    assert "fake.precision" not in found.as_dict()


_PROPOSALS = """
import sys
from pathlib import Path
from tests.search.test_trials import Search
from tuner.record.journal import WinnerClass
search = Search(Path(sys.argv[1]))
print([str(search.step(klass)) for _ in range(8) for klass in WinnerClass])
"""


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
    search = Search(tmp_path)
    n = 4 * 3 * 2  # threads x allocators x batches
    found = {search.step(WinnerClass.LAUNCH_ONLY) for _ in range(n)}
    assert len(found) == n
    with pytest.raises(Exhausted):
        search.step(WinnerClass.LAUNCH_ONLY)
    assert search.step(WinnerClass.SAME)


def test_fixed_settings_are_in_every_proposal(tmp_path: Path) -> None:
    restrictions = parse_restrictions([], ["fake.layout=packed"], ["fake.streams"], "both")
    search = Search(tmp_path, restrictions)
    for _ in range(20):
        proposal = search.step(WinnerClass.REDUCED)
        assert proposal.get("fake.layout") == "packed"
        assert proposal.get("fake.streams") is None


@pytest.mark.parametrize("seed", range(3))
def test_the_optimum_is_found_within_a_tenth_of_the_space(tmp_path: Path, seed: int) -> None:
    search = Search(tmp_path, seed=seed)
    best = max(search.surface.log_rate(c.as_dict()) for c in search.space.configurations())
    for _ in range(86):
        search.step(WinnerClass.REDUCED)
    assert max(s for s in search.tried.values() if s is not None) == pytest.approx(best)


def test_failures_are_told_as_infeasible(tmp_path: Path) -> None:
    search = Search(tmp_path)
    proposal = search.trials.ask(WinnerClass.REDUCED)
    search.tried[proposal.configuration] = None
    search.trials.tell(proposal.number, Outcome.CRASHED, "killed by SIGSEGV", None)
    study = optuna.load_study(study_name="study", storage=f"sqlite:///{tmp_path / 'study.db'}")
    (trial,) = study.get_trials()
    assert trial.state is optuna.trial.TrialState.PRUNED
    assert trial.user_attrs["outcome"] == "crashed"
    assert "SIGSEGV" in trial.user_attrs["reason"]
    assert [value > 0 for value in trial.constraints.values()] == [True]


def test_optuna_takes_no_failure_for_the_best(tmp_path: Path) -> None:
    search = Search(tmp_path)
    worked, failed = (search.trials.ask(WinnerClass.REDUCED) for _ in range(2))
    search.trials.tell(failed.number, Outcome.CRASHED, "killed by SIGSEGV", None)
    search.trials.tell(worked.number, Outcome.MEASURED, "", -3.0)
    study = optuna.load_study(study_name="study", storage=f"sqlite:///{tmp_path / 'study.db'}")
    assert study.best_trial.number == worked.number
    assert study.best_trial.constraints == {}


def test_what_a_killed_tool_left_running_is_closed(tmp_path: Path) -> None:
    search = Search(tmp_path)
    search.trials.ask(WinnerClass.SAME)
    again = Trials(tmp_path / "study.db", search.space, search.scores, 0)
    study = optuna.load_study(study_name="study", storage=f"sqlite:///{tmp_path / 'study.db'}")
    assert [t.state for t in study.get_trials()] == [optuna.trial.TrialState.FAIL]
    assert again.ask(WinnerClass.SAME).number == 1


_STOPPED_AT_ANY_MOMENT = """
import os, random, signal, sqlite3, sys, threading
from pathlib import Path
from tests.search.test_trials import Search
from tuner import interrupts
from tuner.errors import Interrupted
from tuner.record.journal import WinnerClass

Search(Path(sys.argv[1]) / "imported").step(WinnerClass.SAME)
moments, number = random.Random(5), signal.Signals[sys.argv[2]]
for i in range(30):
    folder = Path(sys.argv[1]) / str(i % 5 if number is signal.SIGTERM else i)
    child = os.fork()
    if not child:
        moment = moments.uniform(0.0, 0.15)
        try:
            with interrupts.heeded():
                threading.Timer(moment, os.kill, (os.getpid(), number)).start()
                search = Search(folder)
                while True:
                    search.step(WinnerClass.REDUCED)
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
    Search(folder).step(WinnerClass.SAME)
"""


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
    assert ran.stdout.split("\n") == [end] * 30 + [""], ran.stderr
    assert ran.returncode == 0, ran.stderr


def test_what_was_noted_but_not_told_is_told_on_resume(tmp_path: Path) -> None:
    search = Search(tmp_path)
    proposal = search.trials.ask(WinnerClass.SAME)
    search.tried[proposal.configuration] = 4.5  # the tool died before telling it
    Trials(tmp_path / "study.db", search.space, search.scores, 0)
    study = optuna.load_study(study_name="study", storage=f"sqlite:///{tmp_path / 'study.db'}")
    (trial,) = study.get_trials()
    assert trial.state is optuna.trial.TrialState.COMPLETE
    assert trial.value == 4.5


def test_a_baseline_outside_the_search_is_entered_all_the_same(tmp_path: Path) -> None:
    restrictions = parse_restrictions([], [], ["env.FAKE_THREADS"], "both")
    search = Search(tmp_path, restrictions)
    outside = Configuration.of({"env.FAKE_THREADS": 4})
    proposal = search.trials.ask_for(outside, "vendor_threads")
    assert proposal.configuration == outside
    search.trials.tell(proposal.number, Outcome.MEASURED, "", 1.0)


def test_of_late_knobs_little_is_expected_and_all_the_same_they_are_searched(
    tmp_path: Path,
) -> None:
    search = Search(tmp_path)
    late = [msgspec.structs.replace(k, is_late=k.id == "fake.layout") for k in search.space.knobs]
    search.space = Space(late, {})
    search.trials = Trials(tmp_path / "late.db", search.space, search.scores, 0)
    proposal = search.trials.ask_for(Configuration(), "default")
    search.tried[Configuration()] = 0.0
    search.trials.tell(proposal.number, Outcome.MEASURED, "", 0.0)
    found = []
    for _ in range(40):
        found.append(search.step(WinnerClass.REDUCED))
        search.tried[found[-1]] = -0.05  # nothing beats the default
    asked = [i for i, c in enumerate(found) if c.get("fake.layout") is not None]
    others = [i for i, c in enumerate(found) if c.get("fake.layout") is None]
    assert min(others) < 2 < min(asked)
