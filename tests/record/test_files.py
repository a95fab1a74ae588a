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


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("report.html", "is a report"),
        ("report.md", "is a report"),
        ("result.json", "is the result of a study"),
        ("run.sh", "is a launch script"),
        ("recommended.env", "is a file of environment variables"),
        ("study.db", "is a database"),
        ("page.HTML", "is a web page"),
        ("mine.py", "is a Python program"),
        ("xeon.toml", "is not a recommendation: Object missing required field"),
        ("unnamed", "is not a recommendation: Invalid statement (at line 1"),
    ],
)
def test_what_is_given_instead_of_a_recommendation_is_named_and_what_is_needed(
    tmp_path: Path, name: str, kind: str
) -> None:
    """Whatever stands in it: an HTML page was called an invalid statement in line 1."""
    (tmp_path / name).write_text("title = 'Xeon'" if name == "xeon.toml" else "<html>")
    needed = "; a recommended*.toml is needed here, for instance {}/recommended.toml"
    with pytest.raises(UsageError) as refused:
        read_recommendation(tmp_path / name)
    assert str(refused.value).startswith(f"{tmp_path / name} {kind}")
    assert str(refused.value).endswith(needed.format("DIR"))
    (tmp_path / "recommended.toml").touch()
    with pytest.raises(UsageError) as refused:
        read_recommendation(tmp_path / name)
    assert str(refused.value).endswith(needed.format(tmp_path))


def test_of_a_folder_without_a_recommendation_one_below_it_is_named(tmp_path: Path) -> None:
    below = tmp_path / "resnet50-torch" / "recommended.toml"
    below.parent.mkdir()
    below.touch()
    with pytest.raises(UsageError, match=f"cannot read .*for instance {below}$"):
        read_recommendation(tmp_path)


def test_what_is_given_instead_of_a_result_is_named(tmp_path: Path) -> None:
    for name, kind in (
        ("report.html", "a report"),
        ("recommended.same_precision.toml", "a recommendation"),
    ):
        (tmp_path / name).write_text("<html>")
        with pytest.raises(UsageError, match=f"{name} is {kind}; the result.json of a study"):
            read_result(tmp_path / name)
