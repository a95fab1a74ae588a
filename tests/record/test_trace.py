"""Recorded arrivals: what a file may hold, and which part of it is for what."""

import random
from pathlib import Path

import pytest

from tuner.errors import UsageError
from tuner.record.load import Slo
from tuner.record.trace import check_length, proved_by, read_trace, tuned_by


def write(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text("\n".join(lines))
    return path


def test_moments_may_be_seconds_or_dates_below_a_heading(tmp_path: Path) -> None:
    for number, lines in enumerate(
        (
            ("10", "10.5", "", "# a remark", "12"),
            ("TIMESTAMP,tokens", "2023-11-16 18:15:46.0000000,3", "2023-11-16 18:15:46.5000000,4",
             "2023-11-16 18:15:48.0000000,1"),
            ("when", "2026-11-26T01:00:00+01:00", "2026-11-26T00:00:00.5Z", "2026-11-26T00:00:02Z"),
        )
    ):  # fmt: skip
        folder = tmp_path / str(number)
        folder.mkdir()
        trace = read_trace(write(folder, *lines))
        assert trace.n_requests == 3
        assert trace.rate == pytest.approx(1.0)
        assert proved_by(trace, 10) == pytest.approx((0.0, 1.5))


def test_both_halves_keep_the_pace_of_the_whole(tmp_path: Path) -> None:
    """A rush in the second half stays one: ten times as fast as the first."""
    moments = [i * 1.0 for i in range(100)] + [100 + i * 0.1 for i in range(100)]
    trace = read_trace(write(tmp_path, *map(str, moments)))
    assert trace.rate == pytest.approx(199 / 109.9)
    first, second = tuned_by(trace), proved_by(trace, 1000)
    assert len(first) == len(second) == 100
    assert first[0] == second[0] == 0.0
    assert first[-1] == pytest.approx(99 * trace.rate)
    assert second[-1] == pytest.approx(9.9 * trace.rate)


def test_what_is_proved_by_is_the_rush_hour(tmp_path: Path) -> None:
    gaps = random.Random(1)
    moment, moments = 0.0, []
    for i in range(1000):
        moment += gaps.expovariate(10.0 if 700 <= i < 760 else 1.0)
        moments.append(moment)
    trace = read_trace(write(tmp_path, *map(repr, moments)))
    second = [(m - moments[0]) * trace.rate for m in moments[500:]]
    taken = proved_by(trace, 50)
    assert len(taken) == 50
    closest = min(second[i + 49] - second[i] for i in range(451))
    assert taken[-1] == pytest.approx(closest)
    assert taken[-1] < 0.3 * 49, "ten times as close together, but for the pace of the whole"


def test_moments_of_which_only_the_second_is_known_are_spread_over_it(tmp_path: Path) -> None:
    known = [0.0, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5]
    trace = read_trace(write(tmp_path, *["0", "1", "1", "1", "1", "2", "2"]))
    assert trace.rate == pytest.approx(6 / 2.5)
    (tmp_path / "exact").mkdir()
    exact = read_trace(write(tmp_path / "exact", *map(str, known)))
    assert proved_by(trace, 10) == pytest.approx(proved_by(exact, 10))
    (tmp_path / "together").mkdir()
    together = read_trace(write(tmp_path / "together", "0", "1", "1", "1.5", "1.5", "1.5"))
    assert proved_by(together, 10) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (("1", "2", "1.5"), ":3: '1.5' is before the line above it"),
        (("when", "1", "soon"), ":3: 'soon' is no moment"),
        (("1", "nan"), ":2: 'nan' is no moment"),
        (("1764000000000", "1764000000100"), ":1: '1764000000000' is no moment in seconds"),
        (("when", "what"), ":2: 'what' is no moment"),
        ((), "holds no two moments"),
        (("1",), "holds no two moments"),
        (("1.5", "1.5"), "holds no two moments"),
    ],
)
def test_what_is_no_trace_is_said_with_its_line(
    tmp_path: Path, lines: tuple[str, ...], told: str
) -> None:
    with pytest.raises(UsageError) as raised:
        read_trace(write(tmp_path, *lines))
    assert told in str(raised.value)


def test_half_a_trace_holds_what_the_quantile_takes(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, *map(str, range(199))))
    check_length(trace, Slo(0.95, 1.0, ""))
    with pytest.raises(UsageError, match="199 requests: a half of them"):
        check_length(trace, Slo(0.99, 1.0, ""))


def test_another_file_in_its_place_is_no_trace_of_the_study(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, "1", "2", "3"))
    moved = tmp_path / "moved.csv"
    moved.write_text("1\n2\n4\n")
    other = type(trace)(str(moved), trace.sha256, trace.n_requests, trace.rate)
    with pytest.raises(UsageError, match="is not the trace any more"):
        tuned_by(other)
