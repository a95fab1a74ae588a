"""A finished study goes on: with all that was measured, and at an error rate that it keeps."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.command import Here, result_of
from tests.made_up import MadeUpFake
from tests.study.fake_studies import FAKE, check_seconds
from tests.study.test_interrupted import check_store
from tuner.errors import Interrupted
from tuner.measurement.confirmation import ALPHA, look_level
from tuner.record.journal import (
    Added,
    ArmsChosen,
    Extended,
    Phase,
    PhaseDone,
    RoundDone,
    SessionOpened,
    StudyFailed,
    StudyFinished,
)
from tuner.record.launch import Purpose
from tuner.record.outcome import Outcome
from tuner.record.store import Store

SHORT = "4s"


def asked(cwd: Path, *how_long: str, model: str = "fake@seed=1") -> tuple[str, ...]:
    return ("--model", model, *FAKE, "--exclude", "launch.allocator", "--out", str(cwd / "out"),
            *how_long)  # fmt: skip


def done(here: Here, cwd: Path, *how_long: str, **options: Any) -> dict[str, Any]:
    """Run a command to its end; return its result."""
    ended = here(*asked(cwd, *how_long, **options), testbed=MadeUpFake())
    assert ended.returncode == 0, ended.stderr
    return result_of(ended.stdout)


def lines_of(folder: Path) -> dict[str, str]:
    return {p.name: p.read_text() for p in sorted((folder / "launches").glob("*.jsonl"))}


def measured(folder: Path) -> list[tuple[str, str]]:
    """Return the label of every launch to its end that the search may make only once."""
    with Store(folder) as store:
        return [
            (str(r.request.purpose), r.request.configuration.label())
            for r in store.launches.values()
            if r.request.purpose in (Purpose.BASELINE, Purpose.SEARCH)
            if r.ending is not None and r.ending.outcome is not Outcome.INTERRUPTED
        ]


def test_it_goes_on_with_all_that_was_measured_and_decides_what_was_open(
    here: Here, tmp_path: Path
) -> None:
    first = done(here, tmp_path, "--budget", "1.5s")
    assert "ambiguous" in {w["verdict"] for w in first["winners"].values()}
    before = lines_of(tmp_path / "out")
    found = done(here, tmp_path, "--extend", "20s")
    assert found["winners"]["same_precision"]["verdict"] == "faster"
    assert found["command"] == first["command"]  # pasted again, it opens no other extension
    assert found["budget_s"] == pytest.approx(first["seconds"]["wall"] + 20, abs=0.1)
    assert len(found["trials"]) > len(first["trials"])
    after = lines_of(tmp_path / "out")
    assert {name: after[name] for name in before} == before
    assert len(set(measured(tmp_path / "out"))) == len(measured(tmp_path / "out"))
    check_store(tmp_path / "out")
    check_seconds(found)
    with Store(tmp_path / "out") as store:
        assert store.n_extensions == 1
        assert store.is_finished
        of_both = [note.phase for note in store.all(PhaseDone)]
        assert of_both.count(Phase.CONFIRM) == 2


def test_what_was_decided_stays_so(here: Here, tmp_path: Path) -> None:
    first = done(here, tmp_path, "--budget", "12s")
    assert first["winners"]["same_precision"]["verdict"] == "faster"
    found = done(here, tmp_path, "--extend", "6s")
    kept = ("configuration", "verdict", "reason", "n_rounds", "speedup", "value", "rate",
            "removed")  # fmt: skip
    for winner_class, winner in first["winners"].items():
        if winner["verdict"] == "faster":
            again = found["winners"][winner_class]
            assert {k: again[k] for k in kept} == {k: winner[k] for k in kept}


def test_a_larger_budget_goes_on_as_far(here: Here, tmp_path: Path) -> None:
    """As --extend by what it leaves, launch by launch."""
    results = []
    for name in ("by_budget", "by_extension"):
        (tmp_path / name).mkdir()
        first = done(here, tmp_path / name, "--budget", SHORT)
        left_s = 12 - used_s(tmp_path / name / "out")
        how_long = ("--budget", "12s") if name == "by_budget" else ("--extend", f"{left_s:.9f}s")
        found = done(here, tmp_path / name, *how_long)
        assert len(found["trials"]) > len(first["trials"])
        assert found["budget_s"] == pytest.approx(12)
        results.append((found["winners"], [t["configuration"] for t in found["trials"]]))
    assert results[0] == results[1]


def used_s(folder: Path) -> float:
    with Store(folder) as store:
        return store.used_before_s


def test_the_same_budget_measures_nothing_and_says_what_goes_on(here: Here, tmp_path: Path) -> None:
    first = done(here, tmp_path, "--budget", SHORT)
    before = lines_of(tmp_path / "out")
    ended = here(*asked(tmp_path, "--budget", SHORT), testbed=MadeUpFake())
    assert ended.returncode == 0
    warned = [e["text"] for e in map(json.loads, ended.stdout.splitlines()) if "text" in e]
    (text,) = [text for text in warned if "is finished" in text]
    assert "--framework fake --extend 10m --out " in text
    assert "--budget" not in text
    assert result_of(ended.stdout)["winners"] == first["winners"]
    assert lines_of(tmp_path / "out") == before
    assert here(*asked(tmp_path, "--budget", "2s"), testbed=MadeUpFake()).returncode == 0
    assert lines_of(tmp_path / "out") == before


def test_stopped_in_an_extension_the_same_command_resumes_it(here: Here, tmp_path: Path) -> None:
    done(here, tmp_path, "--budget", SHORT)
    began_s = used_s(tmp_path / "out")
    for n in (1, 4, 9):
        begun: list[None] = []

        def stop(begun: list[None] = begun, n: int = n) -> None:
            begun.append(None)
            if len(begun) == n:
                raise Interrupted("stopped by SIGINT")

        before = lines_of(tmp_path / "out")
        ended = here(*asked(tmp_path, "--extend", "10s"), testbed=MadeUpFake(stop))
        assert ended.returncode == 130
        assert set(before) <= set(lines_of(tmp_path / "out"))
    found = done(here, tmp_path, "--extend", "10s")
    check_store(tmp_path / "out")
    with Store(tmp_path / "out") as store:
        assert store.n_extensions == 1
        assert {round(s.budget_s, 6) for s in store.current(SessionOpened)} == {
            round(began_s + 10, 6)
        }
    assert found["budget_s"] == pytest.approx(began_s + 10)


def test_time_is_added_to_a_stopped_study_once_and_opens_no_extension(
    here: Here, tmp_path: Path
) -> None:
    """What its budget had left stays; stopped again, the same command only resumes it."""

    def stopped_after(n: int, *how_long: str) -> None:
        begun: list[None] = []

        def stop() -> None:
            begun.append(None)
            if len(begun) == n:
                raise Interrupted("stopped by SIGINT")

        ended = here(*asked(tmp_path, *how_long), testbed=MadeUpFake(stop))
        assert ended.returncode == 130

    stopped_after(4, "--budget", SHORT)
    for n in (1, 5):
        stopped_after(n, "--extend", "10s")
    found = done(here, tmp_path, "--extend", "10s")
    assert found["budget_s"] == pytest.approx(4 + 10)
    check_store(tmp_path / "out")
    check_seconds(found)
    with Store(tmp_path / "out") as store:
        assert store.n_extensions == 0
        assert [note.added_s for note in store.all(Added)] == [10]
        assert len(store.all(ArmsChosen)) == 1
    done(here, tmp_path, "--extend", "10s")  # of the study that is finished now
    with Store(tmp_path / "out") as store:
        assert store.n_extensions == 1


def test_a_smaller_budget_resumes_an_extension_with_what_it_was_granted(
    here: Here, tmp_path: Path
) -> None:
    done(here, tmp_path, "--budget", SHORT)
    began_s = used_s(tmp_path / "out")

    def stop() -> None:
        raise Interrupted("stopped by SIGINT")

    assert here(*asked(tmp_path, "--extend", "10s"), testbed=MadeUpFake(stop)).returncode == 130
    found = done(here, tmp_path, "--budget", SHORT)
    assert found["budget_s"] == pytest.approx(began_s + 10)


def test_what_cannot_be_measured_is_tried_again_in_each_extension(
    here: Here, tmp_path: Path
) -> None:
    broken = "fake@faults=fake.compile=off:crash"
    for how_long in ("--budget", "--extend", "--extend"):
        ended = here(*asked(tmp_path, how_long, "10s", model=broken), testbed=MadeUpFake())
        assert ended.returncode == 3
    with Store(tmp_path / "out") as store:
        assert store.n_extensions == 2
        assert [bool(extent[StudyFailed]) for extent in store.extents] == [True] * 3


def test_each_extent_looks_for_good_at_a_level_of_its_own(here: Here, tmp_path: Path) -> None:
    assert sum(map(look_level, range(50))) < ALPHA
    flat = "fake@flat=true,noise=0.03"
    done(here, tmp_path, "--budget", SHORT, model=flat)
    done(here, tmp_path, "--extend", SHORT, model=flat)
    done(here, tmp_path, "--extend", SHORT, model=flat)
    with Store(tmp_path / "out") as store:
        levels = [chosen.level for chosen in store.all(ArmsChosen)]
        n_looked = [bool(extent[RoundDone]) for extent in store.extents]
        assert len(store.all(Extended)) == 2
        assert len(store.all(StudyFinished)) == 3
    assert levels == [look_level(sum(n_looked[:i])) for i in range(3)]
    assert levels[0] == pytest.approx(0.8 * ALPHA)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--extend", "10s"), "--extend continues a study, and there is none in"),
        (("--extend", "10s", "--budget", "20s"), "both say how long to go on"),
        (("--extend", "soon"), "is not a duration"),
        (("--budget", "0.01s"), "is too short to measure anything"),
    ],
)
def test_wrong_uses_are_refused_in_one_line(
    here: Here, tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    ended = here(*asked(tmp_path, *options), testbed=MadeUpFake())
    assert ended.returncode == 2
    assert len(ended.stderr.strip().splitlines()) == 1
    assert said in ended.stderr
    assert not (tmp_path / "out").exists()


def test_the_least_budget_that_is_named_is_not_refused(here: Here, tmp_path: Path) -> None:
    ended = here(*asked(tmp_path, "--budget", "0.01s"), testbed=MadeUpFake())
    least = ended.stderr.partition("give at least ")[2].partition(",")[0]
    assert here(*asked(tmp_path, "--budget", least), testbed=MadeUpFake()).returncode == 0


def test_a_study_of_other_options_is_not_gone_on_with(here: Here, tmp_path: Path) -> None:
    done(here, tmp_path, "--budget", SHORT)
    before = lines_of(tmp_path / "out")
    ended = here(*asked(tmp_path, "--extend", "10s", model="fake@seed=2"), testbed=MadeUpFake())
    assert ended.returncode != 0
    assert "holds another study" in ended.stderr
    assert lines_of(tmp_path / "out") == before
    with Store(tmp_path / "out") as store:
        assert store.n_extensions == 0


def test_several_models_are_not_gone_on_with(here: Here, tmp_path: Path) -> None:
    ended = here("--models", "fake,fake@seed=3", *FAKE, "--extend", "10s", testbed=MadeUpFake())
    assert ended.returncode == 2
    assert "--extend continues the study of one model" in ended.stderr
