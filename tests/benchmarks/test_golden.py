"""The code of today does what was recorded of it, launch by launch."""

import math
import re
from pathlib import Path

import msgspec
import pytest

from benchmarks import golden
from benchmarks.contest import other_constants
from benchmarks.golden import FOLDER, Comparison, Job, play, sources
from benchmarks.golden_file import (
    Course,
    Ended,
    Golden,
    Launched,
    first_difference,
    read_golden,
    write_golden,
)
from benchmarks.replay import fake_plan

SOURCES = sources()
ALTERED = "noise-several"
N_SEEDS = 30
MOST_BYTES = 400_000


def quickest(source: str) -> Course:
    """Return the study of a source that computes least."""
    courses = read_golden(FOLDER / f"{source}.json.gz").courses
    return min(courses, key=lambda course: len(course.trials))


def with_another_last_launch(course: Course) -> Course:
    last = msgspec.structs.replace(course.launches[-1], configuration="launch.allocator=none")
    return msgspec.structs.replace(course, launches=(*course.launches[:-1], last))


@pytest.mark.slow
def test_studies_take_the_course_that_was_recorded_and_one_that_was_altered_is_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """In one run, as most of its time goes into the studies: one of each source."""
    chosen = {source: quickest(source) for source in SOURCES}
    altered = with_another_last_launch(chosen[ALTERED])
    for source, course in {**chosen, ALTERED: altered}.items():
        write_golden(tmp_path / f"{source}.json.gz", Golden({}, (course,)))
    assert golden.main(["compare", "--recorded", str(tmp_path)]) == 1
    (line,) = capfd.readouterr().out.splitlines()
    was = chosen[ALTERED].launches[-1]
    assert line == (
        f"1 of {len(SOURCES)} studies differ; the first: {ALTERED}, seed {altered.seed}, "
        f"launch {len(altered.launches)}: recorded {altered.launches[-1]}, now {was}"
    )


def test_a_study_that_is_recorded_again_in_other_processes_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "1")
    words = ["--only", "noise-one", "--seeds", "1", "--into", str(tmp_path / "new")]
    assert golden.main(["record", *words]) == 0
    (again,) = read_golden(tmp_path / "new" / "noise-one.json.gz").courses
    assert again == read_golden(FOLDER / "noise-one.json.gz").courses[0]


def test_what_is_identical_ends_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert golden.tell(Comparison(3, (), "")) == 0
    assert capsys.readouterr().out == "3 studies: identical\n"


def test_versions_that_may_explain_a_difference_are_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert golden.tell(Comparison(3, ("fc, seed 1, x", "fc, seed 2, y"), "numpy 1 (here 2)")) == 1
    assert capsys.readouterr().out.splitlines() == [
        "2 of 3 studies differ; the first: fc, seed 1, x",
        "They were recorded with numpy 1 (here 2).",
    ]


def test_all_is_recorded_from_thirty_seeds_in_small_files() -> None:
    n_bytes = 0
    for source in SOURCES:
        path = FOLDER / f"{source}.json.gz"
        found = read_golden(path)
        assert [course.seed for course in found.courses] == list(range(N_SEEDS))
        assert set(found.versions) == {"python", "numpy", "scipy", "optuna"}
        n_bytes += path.stat().st_size
    assert n_bytes < MOST_BYTES


def test_the_code_takes_the_recorded_course_and_a_changed_path_of_it_another() -> None:
    recorded = quickest("noise-several")
    job = Job("noise-several", recorded.seed, fake_plan())
    as_is = play(job)
    assert first_difference(recorded, as_is) == ""
    with other_constants({"tuner.study.explore.PROVED": 1}):
        changed = play(job)
    assert re.match(r"launch \d+: recorded .*, now .*", first_difference(as_is, changed))


def test_another_effect_is_another_course() -> None:
    nothing, one = (
        read_golden(FOLDER / f"{source}.json.gz").courses
        for source in ("noise-nothing", "noise-one")
    )
    for before, now in zip(nothing, one, strict=True):
        assert first_difference(before, now)


def course() -> Course:
    return quickest("noise-several")


def changed(value: object) -> object:
    if isinstance(value, str):
        return f"{value}x"
    if isinstance(value, float):
        return math.nextafter(value, math.inf)
    assert isinstance(value, tuple)
    return value[:-1]


@pytest.mark.parametrize("field", [f for f in Course.__struct_fields__ if f != "seed"])
def test_a_difference_in_any_part_of_a_course_is_named(field: str) -> None:
    whole = course()
    other = changed(getattr(whole, field))
    assert first_difference(whole, msgspec.structs.replace(whole, **{field: other}))
    assert first_difference(msgspec.structs.replace(whole, **{field: other}), whole)


def test_the_last_digit_of_a_score_is_a_difference() -> None:
    whole = course()
    number = next(n for n, trial in enumerate(whole.trials) if trial.score is not None)
    score = whole.trials[number].score
    assert score is not None
    nudged = msgspec.structs.replace(whole.trials[number], score=math.nextafter(score, 9.0))
    trials = (*whole.trials[:number], nudged, *whole.trials[number + 1 :])
    said = first_difference(whole, msgspec.structs.replace(whole, trials=trials))
    assert said.startswith(f"trial {number + 1} (")
    assert f"recorded score {score} " in said


def test_a_course_that_goes_on_or_breaks_off_says_so() -> None:
    launches = (Launched("default", 4, "pacer", 0, 3, "measured"),)
    begun = Course(0, launches, (), (), (), "same_precision", (Ended("race", 1.5),), 0.02)
    longer = msgspec.structs.replace(begun, launches=begun.launches * 2)
    assert first_difference(begun, begun) == ""
    assert first_difference(begun, longer) == (
        "recorded slices of launch 1 (pacer) 3, now launch 2 default (pacer, batch 4, round 0, "
        "measured)"
    )


def test_what_is_written_is_read_as_it_was(tmp_path: Path) -> None:
    found = Golden({"numpy": "1"}, (course(), msgspec.structs.replace(course(), finalists=())))
    write_golden(tmp_path / "a.json.gz", found)
    write_golden(tmp_path / "b.json.gz", found)
    assert read_golden(tmp_path / "a.json.gz") == found
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["record", "--only", "nobody"], "--only nobody: there are noise-nothing, "),
        (["record", "--seeds", "0"], "--seeds 0: give one at the least"),
        (["compare", "--recorded", "nowhere", "--only", "fc-torch"], "nothing is recorded of fc-"),
        (["compare", "--against", "no-such-revision"], "--against no-such-revision: "),
    ],
)
def test_bad_input_is_said(words: list[str], said: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        golden.main(words)
    assert ended.value.code == 2
    assert said in capfd.readouterr().err
