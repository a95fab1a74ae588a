"""Why a readable result.json cannot be the result of a study.

It may have been damaged, or written by hand. Rendering, comparing and learning rely on these
checks.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tuner.record.interval import Interval
from tuner.record.objective import METRICS
from tuner.record.result import READABLE_VERSIONS, Result
from tuner.record.winner_class import WinnerClass
from tuner.record.workload import CPU

_LARGEST = 2**63
"""No count of ours reaches it, and no float is too small to hold it."""
_LARGEST_LOG = 700
"""No float holds the exponential of a larger one."""


class _Processor(msgspec.Struct):
    model: str
    vendor: str
    arch: str
    isa: list[str]
    virtualised: bool


class _Identity(msgspec.Struct):
    """The parts of a host's identity that reports tell."""

    processor: _Processor
    allowed_cpus: str
    sockets: int
    numa_nodes: int
    physical_cores: int
    logical_cpus: int
    quota_cores: float | None
    memory_gib: float
    libraries: dict[str, str]


def fault_of_result(result: Result) -> str | None:
    """Return why a result cannot be one of ours, or None."""
    if result.schema_version not in READABLE_VERSIONS:
        readable = " and ".join(map(str, READABLE_VERSIONS))
        return f"it is of version {result.schema_version}, and this tool reads {readable}"
    if result.objective.metric not in METRICS:
        return f"its metric {result.objective.metric!r} is unknown"
    return (
        _fault_of_winners(result)
        or _fault_of_parts(result, "")
        or _fault_of_figures(result)
        or _fault_of_host(result)
    )


def _fault_of_winners(result: Result) -> str | None:
    """Check that the parts of the claims agree."""
    missing = [winner_class for winner_class in WinnerClass if winner_class not in result.winners]
    if missing:
        return f"it has no winner of the class {missing[0]}"
    has_ratios = result.default_meets_slo is not False
    for name, winner in result.winners.items():
        if winner.verdict == "faster" and winner.speedup is None and has_ratios:
            return f"the winner of {name} is faster and has no speedup"
    recommended = result.winners[result.recommended_class]
    if (result.verdict, result.speedup) != (recommended.verdict, recommended.speedup):
        return f"its verdict or speedup is not that of its winner of {result.recommended_class}"
    names = [baseline.name for baseline in result.baselines]
    if result.best_baseline is not None and result.best_baseline not in names:
        return f"its best_baseline {result.best_baseline!r} is no baseline of it"
    return None


def _fault_of_figures(result: Result) -> str | None:
    """Check what ratios and logarithms are taken of."""
    ratios = [b.search_ratio for b in result.baselines] + [t.search_ratio for t in result.trials]
    ratios += [w.search_ratio for w in result.winners.values()]
    ratios += [c.ratio for w in result.winners.values() for c in w.contributions]
    ratios += [c.ratio for c in result.contributions or ()]
    if any(ratio is not None and ratio <= 0 for ratio in ratios):
        return "a ratio in it is not above 0"
    if result.default.search_value is not None and result.default.search_value <= 0:
        return "the default's value in its search is not above 0"
    if min((result.reference_batch, result.default.batch, *result.batches)) < 1:
        return "a batch in it is below 1"
    for done in result.confirmation.rounds:
        if len(done.log_rates) != len(result.confirmation.arms):
            return f"round {done.number} of its confirmation has not one rate for each arm"
        if any(
            log_score is not None and not abs(log_score) < _LARGEST_LOG
            for log_score in done.log_rates
        ):
            return f"round {done.number} of its confirmation holds what is no logarithm of a value"
    return None


def _fault_of_parts(part: Any, where: str) -> str | None:
    """Check every interval and every whole number, however deep."""
    if isinstance(part, Interval):
        return fault_of_interval(part, where)
    if isinstance(part, int):
        return None if abs(part) < _LARGEST else f"{where} is too large a number"
    if isinstance(part, msgspec.Struct):
        inside = {name: getattr(part, name) for name in part.__struct_fields__}
    elif isinstance(part, dict):
        inside = part
    elif isinstance(part, list):
        inside = {str(i): each for i, each in enumerate(part)}
    else:
        return None
    begin = f"{where}." if where else ""
    found = (_fault_of_parts(each, f"{begin}{name}") for name, each in inside.items())
    return next((fault for fault in found if fault), None)


def fault_of_interval(interval: Interval, where: str) -> str | None:
    """Return why an estimate is not consistent with its interval, with its place, or None."""
    i = interval
    if 0 < i.low <= i.point <= i.high and 0 < i.confidence < 1:
        return None
    return f"{where} is no interval: {i.low} - {i.point} - {i.high}"


def _fault_of_host(result: Result) -> str | None:
    try:
        msgspec.convert(result.host.identity, _Identity)
    except msgspec.ValidationError as error:
        return f"host.identity: {error}"
    if result.device != CPU and not result.host.identity.get("gpus"):
        return f"its device is {result.device!r}, and host.identity names no GPU"
    return None
