"""Where the vendor recommendations of a study come from, numbered as footnotes."""

from __future__ import annotations

from tuner.record.result import Result


def sources(result: Result) -> dict[str, int]:
    """Return each source once with its number, from 1 in the order of the baselines."""
    distinct = dict.fromkeys(baseline.source for baseline in result.baselines)
    return {source: number for number, source in enumerate(distinct, start=1)}
