"""What counts as a failure of the guest, without booting one."""

import json

import pytest

from tests.guest.results import Outcomes, names, read

PASSED = {"test": "test_a.py::test_x[1]", "word": "passed", "seconds": 0.1, "text": ""}
FAILED = {"test": "test_a.py::test_x[2]", "word": "failed", "seconds": 0.1, "text": "assert 1 == 2"}


def told(*lines: object, ended_in_time: bool = True) -> Outcomes:
    text = "\r\n".join(json.dumps(line) for line in lines)
    return read(text, "Kernel panic\r\n", seconds=9.0, ended_in_time=ended_in_time)


def test_a_test_that_passed_in_a_guest_that_came_to_its_end_has_no_fault() -> None:
    assert told(PASSED, {"ran": 1}).fault("test_a.py::test_x") is None


@pytest.mark.parametrize(
    ("outcomes", "fault"),
    [
        (told(PASSED, FAILED, {"ran": 2}), "assert 1 == 2"),
        (told({**PASSED, "word": "skipped"}, {"ran": 1}), "skipped in the guest"),
        (told({"ran": 0}), "did not run"),
        (told(), "Kernel panic"),
        (told(PASSED), "before its tests were through"),
        (told(PASSED, {"ran": 2}), "before its tests were through"),
        (told(PASSED, ended_in_time=False), "stopped after 9 s"),
        (told({**FAILED, "test": "test_a.py"}, {"ran": 1}), "could not be collected"),
    ],
)
def test_everything_else_is_a_fault_with_its_reason(outcomes: Outcomes, fault: str) -> None:
    assert fault in (outcomes.fault("test_a.py::test_x") or "")


def test_a_line_that_was_cut_off_is_no_result() -> None:
    whole = json.dumps(PASSED)
    outcomes = read(whole[:30], "", seconds=1.0, ended_in_time=True)
    assert outcomes.tests == ()


def test_the_tests_inside_are_found_without_importing_them() -> None:
    found = names()
    assert "test_detection.py::test_the_topology_is_that_of_the_machine" in found
    assert len(found) == len(set(found))
