"""What LoadGen says of a study's rates, in launches of its own."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.loadgen_words import WINNER, arms_of, ask, told
from benchmarks.other_question import DEFAULT
from tests.wants import needs
from tuner.record.load import Slo

SLO = {"quantile": 0.9, "seconds": 0.1}
RESULT: dict[str, Any] = {
    "model": "fake",
    "framework": "fake",
    "reference_batch": 8,
    "recommended_class": "same_precision",
    "objective": {"slo": SLO},
    "default": {"batch": 2, "value": None},
    "winners": {
        "same_precision": {"configuration": {"workload.batch": 4}, "value": {"low": 100.0}}
    },
}


def test_what_kept_no_rate_is_not_asked() -> None:
    arms = arms_of(RESULT)
    assert set(arms) == {WINNER}
    default = {"batch": 2, "value": {"low": 30.0}}
    arm, low = arms_of(RESULT | {"default": default})[DEFAULT]
    assert (arm.as_dict(), low) == ({"workload.batch": 2}, 30.0)


@needs("mlperf_loadgen")
@pytest.mark.slow
def test_a_launch_answers_our_own_requests_and_loadgens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "loadgen_words.jsonl"
    ask(path, RESULT, [WINNER], [0.5], 2)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(row["arm"], row["rate"], row["n"]) for row in rows] == [(WINNER, 50.0, 200)] * 2
    assert all(row["word"] in {"valid", "too_slow"} for row in rows)
    assert all(row["latency_s"] > 0 for row in rows)
    assert capsys.readouterr().out.count("winner at 50 requests/s: own: ") == 2


def test_why_there_is_no_word_is_told() -> None:
    row = {"arm": WINNER, "rate": 50.0, "n": 200, "late": 1, "latency_s": 0.05, "disturbed": []}
    row |= {"fault": "LoadGen did not end within 20 s", "disturbed_loadgen": ["it was busy"]}
    line = told(row, Slo(0.9, 0.1, ""))
    assert "own: 1 of 200 late, p90 0.050 s" in line
    assert line.endswith("no word: LoadGen did not end within 20 s; disturbed: it was busy")
