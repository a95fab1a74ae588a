"""What the end of a run says of settings: what each is worth, and where they lie."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import asdict

from tests.output.test_figures import SAMPLE
from tuner.cli import summary
from tuner.findings.stability import stability_of
from tuner.output.report import render
from tuner.output.values import ratio
from tuner.record.course import Stability
from tuner.record.files import read_result
from tuner.record.result import Result


def result(*contributions: dict[str, Any]) -> Result:
    """Return a study whose recommendation has four settings, some of them measured."""
    data: dict[str, Any] = json.loads(msgspec.json.encode(read_result(SAMPLE)))
    data |= {"verdict": "faster", "recommended_class": "same", "contributions": contributions}
    data["winners"]["same"]["configuration"] = {
        "launch.allocator": "tcmalloc",
        "launch.instances": 2,
        "launch.placement": "spread",
        "torch.compile.mode": "default",
        "workload.batch": 16,
    }
    return msgspec.convert(data, Result)


PROVED = {
    "knob": "launch.allocator",
    "value": "tcmalloc",
    "ratio": 1.05,
    "speedup": {"point": 1.05, "low": 0.98, "high": 1.11, "confidence": 0.95},
    "n_rounds": 4,
}
HINT = {
    "knob": "launch.instances",
    "value": 2,
    "ratio": 1.2,
    "speedup": None,
    "n_rounds": 0,
    "along": ["launch.placement"],
}


def printed(shown: Result, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    summary.show(shown, folder)
    return " ".join(capsys.readouterr().out.split())


def test_what_settings_are_worth_has_its_interval_and_names_what_was_not_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        "the recommended settings are worth: launch.allocator=tcmalloc 1.05x (0.98 - 1.11), "
        "launch.instances=2 (with launch.placement) 1.20x (in the search); not measured: "
        "torch.compile.mode=default settings of the winners"
    ) in printed(result(PROVED, HINT), tmp_path, capsys)


def test_the_headline_says_of_which_launches_the_speedup_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = result()
    told = {**asdict(stability_of(0, 4)), "unseen_one_in": None}
    for stability, words in (
        (stability_of(0, 4), "of typical launches; a slow one in 2 would not have been seen"),
        (stability_of(0, 18), "of typical launches; a slow one in 7 would not have been seen"),
        (msgspec.convert(told, Stability), "of typical launches"),  # of an earlier version
    ):
        winner = msgspec.structs.replace(shown.winners["same"], stability=stability)
        shown = msgspec.structs.replace(shown, winners={**shown.winners, "same": winner})
        head = f"faster than the default {ratio(shown.speedup)} {words}"
        assert head in printed(shown, tmp_path, capsys)
        for template in ("report.md.j2", "report.html.j2"):
            assert f"fresh, interleaved launches ({words})" in render(shown, template)


def test_where_no_setting_was_measured_nothing_is_said_of_their_worth(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "are worth" not in printed(result(), tmp_path, capsys)


def test_the_file_of_settings_is_named_only_where_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("study").mkdir()
    assert "recommended.toml" not in printed(result(), Path("study"), capsys)
    Path("study/recommended.toml").touch()
    told = printed(result(), Path("study"), capsys)
    assert told.endswith("report: study/report.html settings: study/recommended.toml")
