import json
from pathlib import Path

import pytest

from tuner.errors import UsageError
from tuner.record.files import (
    RESULT_SCHEMA,
    read_recommendation,
    read_result,
    write_whole,
)


def test_the_contract_of_result_json_is_in_its_schema() -> None:
    promised = {
        "schema_version", "model", "framework", "scenario", "objective", "host", "versions",
        "verdict", "speedup", "winners", "baselines", "speedup_over_best_baseline", "noise_floor",
        "trials", "contributions", "seconds", "warnings", "budget_shares", "identity",
    }  # fmt: skip
    schema = json.loads(RESULT_SCHEMA.read_text())
    assert promised <= set(schema["$defs"]["Result"]["required"])


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "x"
    write_whole(path, "one")
    write_whole(path, "two", executable=True)
    assert path.read_text() == "two"
    assert path.stat().st_mode & 0o111
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_what_is_no_result_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no result in"):
        read_result(tmp_path / "result.json")
    (tmp_path / "result.json").write_text("{}")
    with pytest.raises(UsageError, match="not a result"):
        read_result(tmp_path / "result.json")
    (tmp_path / "r.toml").write_text("= broken")
    with pytest.raises(UsageError, match="not a recommendation"):
        read_recommendation(tmp_path / "r.toml")
    with pytest.raises(UsageError, match=r"cannot read .*/recommended\.toml: No such file"):
        read_recommendation(tmp_path)
