"""What a recommendation costs stands beside what it gains, wherever its verdict is written."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.output.test_figures import SAMPLE
from tuner.cli import compare as compare_command
from tuner.cli import summary
from tuner.output.compare import StudyFound, compare
from tuner.output.price import price
from tuner.output.report import render, write_comparison
from tuner.record.files import read_result, write_result
from tuner.record.result import Result

TOLD = (
    "memory 1262 MiB (default 423 MiB); a call takes 1,435 ms at batch 16 in each of 2 instances "
    "(default 326 ms at batch 4)"
)
MIB = 2**20


def result(**changes: Any) -> Result:
    """Return a study whose recommendation has two instances; `changes` are of its winner."""
    data: dict[str, Any] = json.loads(msgspec.json.encode(read_result(SAMPLE)))
    data |= {"verdict": "faster", "recommended_class": "same_precision", "reference_batch": 4}
    data["speedup"] = {"point": 1.71, "low": 1.59, "high": 1.83, "confidence": 0.95}
    data["default"] |= {"memory_peak_bytes": 423 * MIB, "batch": 4}
    data["default"]["call"] = {"p50_s": 0.3258, "p99_s": 0.47, "n_calls": 230}
    data["winners"]["same_precision"] |= {
        "verdict": "faster",
        "configuration": {"launch.instances": 2, "workload.batch": 16},
        "speedup": data["speedup"],
        "memory_peak_bytes": 1262 * MIB,
        "call": {"p50_s": 1.4348, "p99_s": 2.39, "n_calls": 126},
        **changes,
    }
    return msgspec.convert(data, Result)


def words(text: str) -> str:
    """Return a text without its line breaks."""
    return " ".join(text.split())


@pytest.mark.parametrize("template", ["report.md.j2", "report.html.j2"])
def test_the_verdict_of_a_report_holds_the_price(template: str) -> None:
    text = render(result(), template)
    headline = next(line for line in text.splitlines() if "against torch" in line)
    assert "1.71x (1.59 - 1.83)" in headline
    assert TOLD in headline


def test_the_verdict_on_a_terminal_holds_the_price(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    summary.show(result(), tmp_path)
    told = words(capsys.readouterr().out)
    assert "same precision 1.71x faster (1.59 - 1.83) 21.7 items/s 1262 MiB" in told
    assert "call 1,435 ms" in told


def test_studies_side_by_side_have_their_price(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    (tmp_path / "one").mkdir()
    write_result(tmp_path / "one/result.json", result())
    compare_command.main([tmp_path], None, None, None, None, as_json=False)
    told = words(capsys.readouterr().out)
    write_comparison(tmp_path / "page.html", compare([StudyFound("one", result())]))
    page = (tmp_path / "page.html").read_text()
    for part in ("21.7 items/s", "1262 MiB", "call 1,435 ms"):
        assert part in told
        assert part in page


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"call": None}, "memory 1262 MiB (default 423 MiB)"),
        ({"memory_peak_bytes": None, "call": None}, ""),
        (
            {"configuration": {}, "call": {"p50_s": 0.0123, "p99_s": 0.02, "n_calls": 9},
             "memory_peak_bytes": None},
            "a call takes 12.3 ms at batch 4 (default 326 ms at batch 4)",
        ),
    ],
)  # fmt: skip
def test_what_an_earlier_version_did_not_store_is_left_out(
    changes: dict[str, Any], told: str
) -> None:
    assert price(result(**changes)) == told
    assert "against torch" in render(result(**changes), "report.md.j2")


def test_where_nothing_is_recommended_nothing_is_paid() -> None:
    assert price(msgspec.structs.replace(result(), verdict="ambiguous")) == ""
