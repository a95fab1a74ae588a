"""Guidelines and recordings that cannot be ours are refused, and conditions ask what they say."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tuner.errors import UsageError
from tuner.record.guidelines import (
    GUIDELINES_FILE,
    GUIDELINES_VERSION,
    Condition,
    Fact,
    Found,
    Guidelines,
    Rule,
    StudyOf,
    read_guidelines,
    write_as_json,
)
from tuner.record.interval import Interval
from tuner.record.winner_class import WinnerClass

SAME = WinnerClass.SAME_PRECISION

replace = msgspec.structs.replace

STUDY = StudyOf(
    name="fake-1",
    created="2026-11-01T00:00:00Z",
    tool_version="1",
    model="fake",
    framework="fake",
    family="cnn",
    parameters_sha256="",
    facts={"parameters": 1e6, "task": "images"},
    host="a host",
    fingerprint="abc",
    versions={},
    winners={SAME: Found("faster", {"fake.streams": 2}, Interval(1.5, 1.4, 1.6, 0.95))},
    effects={"streams": (0.4, 0.02)},
)
RULE = Rule(
    framework="fake",
    setting="streams",
    condition=None,
    mean=0.4,
    spread=0.1,
    n_families=2,
    effect=Interval(1.5, 1.4, 1.6, 0.95),
    expected=Interval(1.5, 1.2, 1.9, 0.9),
    advice="set",
    families={"cnn": 1.5},
    n_models=2,
    studies=["fake-1"],
)
OURS = Guidelines(
    schema_version=GUIDELINES_VERSION,
    tool_version="1",
    created="2026-11-01T00:00:00Z",
    launch_sd={"abc": 0.02},
    launch_freedom={"abc": 40},
    settings={"fake": {"streams": ["fake.streams=2"]}},
    studies=[STUDY],
    rules=[RULE],
)


def test_what_is_written_is_read_from_the_file_or_its_folder(tmp_path: Path) -> None:
    write_as_json(tmp_path / GUIDELINES_FILE, OURS)
    assert read_guidelines(tmp_path) == read_guidelines(tmp_path / GUIDELINES_FILE) == OURS
    assert OURS.hosts == ["a host"]


def of_study(**changes: Any) -> Guidelines:
    return replace(OURS, studies=[replace(STUDY, **changes)])


def of_rule(**changes: Any) -> Guidelines:
    return replace(OURS, rules=[replace(RULE, **changes)])


BACKWARDS = Interval(1.5, 1.6, 1.4, 0.95)


@pytest.mark.parametrize(
    ("damaged", "fault"),
    [
        (replace(OURS, schema_version=0), "is of schema_version 0; this version reads 1"),
        (of_study(name="../x"), "is not guidelines: a study is named '../x'"),
        (
            of_study(winners={SAME: Found("faster", {}, BACKWARDS)}),
            "the speedup of a winner is no interval",
        ),
        (of_study(fingerprint="other"), "fake-1 is of a host without a noise figure"),
        (of_study(effects={"streams": (20.0, 0.1)}), "an effect is larger than any can be"),
        (of_study(effects={"streams": (0.1, 20.0)}), "an effect is larger than any can be"),
        (of_rule(mean=-20.0), "an effect is larger than any can be"),
        (of_rule(spread=20.0), "an effect is larger than any can be"),
        (of_rule(effect=BACKWARDS), "the interval of 'streams' is out of order"),
        (of_rule(expected=BACKWARDS), "the interval of 'streams' is out of order"),
        (of_rule(expected=Interval(1.0, -1.0, 2.0, 0.9)), "the interval of 'streams' is out of"),
    ],
)
def test_what_no_rules_can_be_is_refused(tmp_path: Path, damaged: Guidelines, fault: str) -> None:
    path = tmp_path / "guidelines.json"
    write_as_json(path, damaged)
    with pytest.raises(UsageError) as error:
        read_guidelines(path)
    assert fault in str(error.value)


@pytest.mark.parametrize(
    "sound",
    [
        of_study(fingerprint="other", effects={}),
        of_study(winners={SAME: Found("ambiguous", {}, None)}),
        of_rule(mean=-19.9),
        of_rule(effect=Interval(1.0, 0.0, 1.0, 0.95)),
    ],
)
def test_what_rules_can_be_is_read(tmp_path: Path, sound: Guidelines) -> None:
    path = tmp_path / "guidelines.json"
    write_as_json(path, sound)
    assert read_guidelines(path) == sound


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*guidelines\.json: No such file"):
        read_guidelines(tmp_path)
    (tmp_path / GUIDELINES_FILE).write_text("{}")
    with pytest.raises(UsageError, match="is not guidelines: "):
        read_guidelines(tmp_path)


@pytest.mark.parametrize(
    ("condition", "own", "holds"),
    [
        (Condition("task", "==", "images"), "images", True),
        (Condition("task", "==", "images"), "text", False),
        (Condition("task", "!=", "images"), "text", True),
        (Condition("size", "<=", 10.0), 10.0, True),
        (Condition("size", "<=", 10.0), 10.5, False),
        (Condition("size", ">", 10.0), 10.0, False),
        (Condition("size", ">", 10.0), 10.5, True),
        (Condition("size", ">", 10.0), "large", None),
        (Condition("task", "<=", "images"), 10.0, None),
    ],
)
def test_a_condition_and_its_opposite_part_the_models(
    condition: Condition, own: Fact, holds: bool | None
) -> None:
    assert condition.holds({condition.fact: own}) is holds
    assert condition.holds({}) is None
    if condition.relation in ("==", "<="):
        opposite = condition.opposite().holds({condition.fact: own})
        assert opposite is (None if holds is None else not holds)
