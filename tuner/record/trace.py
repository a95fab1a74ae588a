"""Recorded arrivals: times from a file, in two halves.

A server is tuned on the first half and claims rest on the second, so that no claim is about the
arrivals that chose the winner. Both are kept at the pace of the whole trace, so that its rush hours
stay rush hours. The result is how much faster the whole trace may arrive.
"""

from __future__ import annotations

import csv
import functools
import hashlib
import itertools
import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from tuner.errors import UsageError
from tuner.record.files import UNREADABLE
from tuner.record.load import Slo, Trace

_MOST_BYTES = 1 << 28
_NO_SECONDS = 1e11
"""Since 1970, three thousand years from now: that is another unit."""
_MOST_EXPECTED = 2000
"""Requests in a row of the first half by which a configuration is ranked."""


class _Recorded(NamedTuple):
    trace: Trace
    first: list[float]
    """Moments at one request per second on average over the whole trace; so the other half."""
    second: list[float]


def read_trace(path: Path) -> Trace:
    """Read a trace: one line per request, with its arrival time in the first column.

    Seconds, or date and time; the rest of a line, and a heading, are ignored.

    Raises UsageError for an invalid file, or if the times are out of order.
    """
    return _read(str(path.absolute())).trace


def check_length(trace: Trace, slo: Slo) -> None:
    """Raise UsageError where half of a trace says nothing of the quantile of a bound."""
    if trace.n_requests // 2 < slo.least_requests:
        raise UsageError(
            f"the trace {trace.path} holds {trace.n_requests} requests: a half of them, by which "
            f"is tuned or proved, says nothing of {slo.name}, which takes {slo.least_requests}"
        )


@functools.cache
def tuned_by(trace: Trace) -> list[float]:
    """Return the moments that configurations are ranked by, the first at 0.

    At an average of one request per second over the whole trace, as what `proved_by` returns.
    """
    return _busiest(_of(trace).first, _MOST_EXPECTED)


def rush(trace: Trace) -> float:
    """Return how many times as close together those requests come as all of them on average."""
    moments = tuned_by(trace)
    return (len(moments) - 1) / moments[-1] if moments[-1] else math.inf


@functools.cache
def proved_by(trace: Trace, n_requests: int) -> tuple[float, ...]:
    """Return the n busiest consecutive times of the second half, or all.

    A trial is too short for a whole day. A server that sustains the rush hour sustains the rest.
    """
    return tuple(_busiest(_of(trace).second, n_requests))


def _busiest(moments: Sequence[float], n_requests: int) -> list[float]:
    """Return the n consecutive times that are closest together, or all; the first is 0."""
    n = min(n_requests, len(moments))
    begin = min(range(len(moments) - n + 1), key=lambda i: moments[i + n - 1] - moments[i])
    return [moment - moments[begin] for moment in moments[begin : begin + n]]


def _of(trace: Trace) -> _Recorded:
    """Return the content of a trace's file; raises UsageError if the file has changed."""
    found = _read(trace.path)
    if found.trace.sha256 != trace.sha256:
        raise UsageError(f"{trace.path} is not the trace any more that the study was begun with")
    return found


@functools.cache
def _read(path: str) -> _Recorded:
    try:
        if Path(path).stat().st_size > _MOST_BYTES:
            raise UsageError(f"the trace {path} is larger than {_MOST_BYTES >> 20} MiB: cut it")
        content = Path(path).read_bytes()
        moments = _spread(list(_moments(path, content.decode())))
    except OSError as error:
        raise UsageError(f"cannot read the trace {path}: {error.strerror}") from error
    except (*UNREADABLE, csv.Error) as error:
        raise UsageError(f"{path} is no trace: {error}") from error
    if len(moments) < 2 or moments[-1] <= moments[0]:
        raise UsageError(f"the trace {path} holds no two moments: a line for each request, in "
                         "the first column when it arrived, in seconds")  # fmt: skip
    rate = (len(moments) - 1) / (moments[-1] - moments[0])
    at_one = [(moment - moments[0]) * rate for moment in moments]
    middle = len(moments) // 2
    trace = Trace(
        str(Path(path).absolute()), hashlib.sha256(content).hexdigest(), len(moments), rate
    )
    return _Recorded(trace, at_one[:middle], at_one[middle:])


def _moments(path: str, text: str) -> Iterator[float]:
    """Yield the moments of a trace, in seconds."""
    before = -math.inf
    begun = False
    for number, row in enumerate(csv.reader(text.splitlines()), 1):
        if not row or not row[0].strip() or row[0].startswith("#"):
            continue
        moment = _seconds(row[0].strip())
        if moment is None and not begun:
            begun = True  # a heading
            continue
        begun = True
        if moment is not None and moment > _NO_SECONDS:
            raise UsageError(f"{path}:{number}: {row[0][:40]!r} is no moment in seconds: of "
                             "milliseconds since 1970, write seconds")  # fmt: skip
        if moment is None:
            raise UsageError(f"{path}:{number}: {row[0][:40]!r} is no moment: write seconds, or "
                             "date and time as 2026-11-26 17:30:00.25")  # fmt: skip
        if moment < before:
            raise UsageError(f"{path}:{number}: {row[0][:40]!r} is before the line above it: a "
                             "trace is sorted by when requests arrived")  # fmt: skip
        before = moment
        yield moment


def _spread(moments: Sequence[float]) -> list[float]:
    """Spread times that are known only to the second evenly over their seconds.

    If any has a fraction, return them as they are: equal ones then arrived together.
    """
    if any(moment != math.floor(moment) for moment in moments):
        return list(moments)
    found: list[float] = []
    for moment, equal in itertools.groupby(moments):
        n = len(list(equal))
        found += [moment + i / n for i in range(n)]
    return found


def _seconds(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            return None
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return found if math.isfinite(found) else None
