"""The end of a run: every class, the commands that follow, and nothing that has to be scrolled."""

import json
import math
from pathlib import Path

import msgspec
import pytest

from tests.command import Here
from tests.made_up import MadeUpFake
from tests.output.test_figures import SAMPLE, SAMPLES
from tests.output.test_headline import UNDECIDED, with_winner
from tuner.analysis.stability import stability_of
from tuner.cli import summary
from tuner.cli.tables import text_console
from tuner.output.report import render
from tuner.output.values import ratio
from tuner.record.files import read_result
from tuner.record.interval import Interval
from tuner.record.result import Result
from tuner.record.study_stats import FasterNotShipped, Stability
from tuner.record.winner_class import WinnerClass

FILES = ("recommended.toml", "recommended.reduced_precision.toml", "recommended.no_code.toml")


def printed(shown: Result, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    summary.show(shown, folder)
    return " ".join(capsys.readouterr().out.split())


def filled(folder: Path) -> Path:
    """Return a folder with the files that a study leaves."""
    folder.mkdir(parents=True)
    for name in FILES:
        (folder / name).touch()
    return folder


def test_the_report_says_of_which_launches_the_speedup_is(tmp_path: Path) -> None:
    shown = read_result(SAMPLE)
    told = msgspec.structs.replace(stability_of(0, 4), unseen_one_in=None)
    for stability, words in (
        (stability_of(0, 4), "of typical launches; a slow one in 2 would not have been seen"),
        (stability_of(0, 18), "of typical launches; a slow one in 7 would not have been seen"),
        (told, "of typical launches"),  # of an earlier version
    ):
        assert isinstance(stability, Stability)
        shown = with_winner(shown, WinnerClass.SAME_PRECISION, stability=stability)
        for template in ("report.md.j2", "report.html.j2"):
            text = render(shown, template)
            assert ratio(shown.speedup) in text
            assert f"new, interleaved launches ({words})" in text


def test_a_file_of_settings_is_named_only_where_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shown, study = read_result(SAMPLE), Path("study")
    assert "recommended" not in printed(shown, study, capsys)
    filled(study)
    told = printed(shown, study, capsys)
    for name in FILES:
        assert f"tune-framework run study/{name} -- python serve.py" in told
    assert told.endswith("report study/report.html (10 warnings)")


@pytest.mark.parametrize("is_troubled", [False, True])
@pytest.mark.parametrize("frameworks", [("torch",), ("torch", "tensorflow")])
def test_the_end_of_a_run_fits_a_small_terminal(
    frameworks: tuple[str, ...],
    is_troubled: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With classes that are not decided, long commands, and much to be said beside them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    found = []
    for framework in frameworks:
        result = read_result(SAMPLES / f"resnet50-{framework}.json")
        result = with_winner(result, WinnerClass.NO_CODE, **UNDECIDED)
        if is_troubled:
            lead = Interval(1.09, 1.06, 1.12, 0.95)
            ahead = [FasterNotShipped({"a": "b" * 90}, "a_guide", lead, "it is costly " * 9)] * 3
            result = msgspec.structs.replace(result, ahead=ahead)
        found.append((result, filled(Path(f"reports/resnet50-{framework}-offline-12345678"))))
    summary.show_all(found)
    shown = capsys.readouterr().out.splitlines()
    assert sum(max(1, math.ceil(len(line) / 80)) for line in shown) <= 24
    text = "\n".join(shown)
    for result, folder in found:
        assert f"tune-framework run {folder}/recommended.toml -- python serve.py" in text
        assert f"--extend 12m --out {folder}" in text
        assert f"report {folder}/report.html" in " ".join(text.split())
        for name in ("bf16", "same precision", "no code change"):
            assert sum(line.startswith(name) for line in shown) == len(found)
        assert all(warning not in text for warning in result.warnings)
    assert ("surely faster" in text) == (is_troubled and len(found) == 1)


@pytest.mark.parametrize("width", [40, 80, 200])
def test_lines_of_classes_are_no_wider_than_the_terminal(width: int) -> None:
    result = with_winner(read_result(SAMPLE), WinnerClass.NO_CODE, **UNDECIDED)
    lines = summary._of_classes(result, width, 3)
    assert max(line.cell_len for line in lines) <= width
    if width == 200:
        assert len(lines) == 3
        assert "drift 2 %, top-1 100 %  3 lines of code" in lines[0].plain


def test_a_gain_is_green_only_where_it_is_confirmed() -> None:
    result = with_winner(read_result(SAMPLE), WinnerClass.NO_CODE, **UNDECIDED)
    console = text_console(200)
    styles = [
        str(segment.style)
        for line in summary._of_classes(result, 200, 1)
        for segment in console.render(line)
        if "x" in segment.text and segment.text.strip()[0].isdigit()
    ]
    assert ["green" in style for style in styles] == [True, True, False]


def test_a_warning_is_printed_once_when_it_comes_up(here: Here, tmp_path: Path) -> None:
    study = ("--model", "fake@seed=2,noise=0.03", "--hw", "fake", "--budget", "12s", "--out", "out")
    first, again = here(*study, testbed=MadeUpFake()), here(*study, testbed=MadeUpFake())
    result = read_result(tmp_path / "out/result.json")
    assert result.warnings
    for warning in result.warnings:
        assert first.stdout.count(f"warning: {warning}") == first.stdout.count(warning) == 1
        assert warning not in again.stdout  # rendered again, nothing has come up
    assert f"({len(result.warnings)} warning" in first.stdout


def test_live_lines_name_the_class_of_what_is_best_and_never_what_is_slower(
    here: Here, tmp_path: Path
) -> None:
    study = ("--model", "fake@seed=3,noise=0.03", "--hw", "fake", "--budget", "12s", "--json")
    events = map(json.loads, here(*study, testbed=MadeUpFake()).stdout.splitlines())
    best = [event for event in events if event["type"] == "best_so_far"]
    assert {(event["winner_class"], event["name"]) for event in best} == {
        ("no_code", "no code change"), ("same_precision", "same precision"),
        ("reduced_precision", "bf16"),
    }  # fmt: skip
    assert min(event["ratio"] for event in best) > 1
