"""What the tests run of each room, before and after a change."""

from benchmarks.rooms import Covered, lower, rooms, table


def summary(lines: int, lines_run: int, branches: int, branches_run: int) -> dict[str, object]:
    counts = {"num_statements": lines, "covered_lines": lines_run}
    return {"summary": {**counts, "num_branches": branches, "covered_branches": branches_run}}


BEFORE = {
    "files": {
        "tuner/study/a.py": summary(10, 9, 4, 3),
        "tuner/study/b.py": summary(10, 6, 0, 0),
        "tuner/worker/gallery/c.py": summary(5, 0, 2, 0),
        "tuner/errors.py": summary(3, 3, 2, 2),
        "/tmp/copy/tuner/plan.py": summary(3, 0, 2, 0),
    }
}


def test_files_are_counted_by_the_folder_below_tuner_and_copies_are_not() -> None:
    assert rooms(BEFORE) == {
        "study": Covered(20, 15, 4, 3),
        "worker": Covered(5, 0, 2, 0),
        "(root)": Covered(3, 3, 2, 2),
        "all": Covered(28, 18, 8, 5),
    }


def test_a_room_that_was_cut_out_of_another_is_counted_as_that_one() -> None:
    found = rooms(BEFORE, {"worker": "study"})
    assert found["study"] == Covered(25, 15, 6, 3)
    assert "worker" not in found


def test_both_reports_stand_side_by_side() -> None:
    after = {"study": Covered(20, 15, 4, 4), "launchers": Covered(1, 1, 0, 0)}
    lines = table([rooms(BEFORE), after])
    assert "| study | 75.00 % of 4 | 75.00 % of 20 | 100.00 % of 4 | 75.00 % of 20 |" in lines
    assert "| launchers | - | - | 100.00 % of 0 | 100.00 % of 1 |" in lines


def test_a_room_with_a_smaller_share_of_branches_is_named() -> None:
    before = {"study": Covered(20, 15, 4, 3), "plan": Covered(20, 15, 4, 3)}
    after = {"study": Covered(20, 20, 8, 5), "plan": Covered(20, 1, 8, 6)}
    assert lower(before, after) == ["study"]
