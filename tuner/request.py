"""What a user asks for, as typed: read, and refused where no host could carry it out."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import msgspec

from tuner.errors import UnknownName, UsageError
from tuner.frameworks import FRAMEWORKS
from tuner.record.load import MOST_CALLERS, OFFLINE, SCENARIOS, Slo
from tuner.record.objective import GOALS, Bound, Objective
from tuner.space.catalogue import fault_of_value
from tuner.space.knobs_of.launch import BATCH
from tuner.space.restrictions import Numerics, Restrictions, check_consistent

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}
_LATENCIES = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_LONGEST_S = 600.0
"""Of a latency: who answers later is no server."""


def parse_duration(text: str) -> float:
    """Read 90s, 10m, 1.5h or 1h30m into seconds; raises UsageError."""
    number = r"[0-9]+(?:\.[0-9]+)?"  # not \d, which takes the digits of every script
    parts = re.fullmatch(rf"(?:{number}[smh])*{number}[smh]?", text.strip())
    pieces = re.findall(rf"({number})([smh]?)", text) if parts else []
    seconds = sum(float(number) * _UNITS[unit] for number, unit in pieces)
    if not 0 < seconds < 1e7:
        raise UsageError(f"the budget {text!r} is not a duration; write 90s, 10m or 1h")
    return seconds


def parse_size(text: str) -> float:
    """Read 4G, 512M or 1.5GiB into bytes, in powers of 1024; raises UsageError."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT])(?:i?B)?", text.strip(), re.IGNORECASE)
    if found is None:
        raise UsageError(f"the size {text!r} is a number with K, M, G or T: write 512M, 4G or 1.5G")
    size = float(found[1]) * 1024.0 ** (" KMGT".index(found[2].upper()))
    if not 0 < size < 2**63:
        raise UsageError(f"the size {text!r} must be above 0 and below 8E: write 512M, 4G or 1.5G")
    return size


class Request(msgspec.Struct, frozen=True):
    """What is to be tuned, as typed."""

    model: str
    """Empty where a whole program is tuned."""
    program: str | None = None
    hardware: str = "auto"
    together: tuple[str, ...] = ()
    """In a run of several models: every framework that it has studies of. Settings of any may be
    asked for, though this study knows none of them."""
    device: str | None = None
    """With hardware auto: which device the profile must measure on; None for any."""
    frameworks: tuple[str, ...] = ()
    budget_s: float = 600.0
    out: Path | None = None
    below: Path | None = None
    """The folder in which studies are named by themselves where `out` names none; reports if None.
    """
    batch: int | None = None
    inputs: Path | None = None
    tolerance: float | None = None
    allows_pickle: bool = False
    seed: int = 0
    restrictions: Restrictions = Restrictions()
    designed: bool = False
    """Whether the designed part is measured first (space/design.py)."""
    scenario: str = OFFLINE
    callers: int | None = None
    """How many call at the same time; None: as many as the scenario has."""
    slo: str = ""
    """The latency that a server's requests keep within, as typed: p99=15ms; empty for the tool's
    own."""
    goal: str = "fastest"
    price_per_hour: float | None = None
    """Of the host, in any currency: what an item costs is then told."""
    max_memory: str = ""
    """The most memory that a winner may need, as typed: 4G; empty for no bound."""
    learn_from: tuple[Path, ...] = ()
    """Folders below which earlier studies lie."""
    guidelines: Path | None = None
    """A guidelines.json whose rules say where to look first."""
    command: str = ""
    environment: dict[str, str] | None = None
    """The tuning variables that are set, as host/secrets.py states them; None where nothing asks
    how they do beside the default."""


def check_request(request: Request) -> None:
    """Raise UsageError for what no host could carry out."""
    restrictions = request.restrictions
    _check_choice("--numerics", restrictions.numerics, get_args(Numerics))
    _check_choice("--goal", request.goal, tuple(GOALS))
    _check_choice("--scenario", request.scenario, tuple(SCENARIOS))
    _check_load(request)
    for name in request.frameworks:
        _check_choice("--framework", name, tuple(FRAMEWORKS))
    if request.tolerance is not None and not math.isfinite(request.tolerance):
        raise UsageError(
            f"--tolerance {request.tolerance} is none; give a finite number such as 0.02"
        )
    if request.batch is not None and (fault := fault_of_value(BATCH, request.batch)):
        raise UsageError(f"--batch {request.batch}: {fault}")
    price = request.price_per_hour
    if price is not None and not 0 < price < 1e6:
        raise UsageError(f"--price-per-hour {price} is none; give what the host costs: 0.68")
    if not 0 <= request.seed < 2**32:
        raise UsageError(f"--seed {request.seed} is none; give a whole number below 2**32")
    check_consistent(restrictions)


def _check_load(request: Request) -> None:
    """Raise UsageError for what contradicts the scenario."""
    scenario = SCENARIOS[request.scenario]
    if request.program is not None and not scenario.bears_programs:
        raise UsageError(
            f"--scenario {request.scenario} is for a model, whose calls are timed one by one; a "
            "program (--command) times itself: leave one of them out"
        )
    _check_callers(request.callers, request.scenario)
    if request.designed and request.scenario != OFFLINE:
        raise UsageError(
            f"--designed is what guidelines are learnt from, which are of --scenario {OFFLINE}: "
            f"leave out one of --designed and --scenario {request.scenario}"
        )
    if request.slo:
        slo = parse_slo(request.slo)
        if not scenario.is_served:
            those = ", ".join(name for name, each in SCENARIOS.items() if each.is_served)
            raise UsageError(
                f"{slo.asked} bounds the latency of requests that arrive by themselves, and "
                f"--scenario {request.scenario} sends one when the last is answered: take "
                f"--scenario {those}"
            )
    restrictions = request.restrictions
    asked = {*restrictions.values.get(BATCH, ()), restrictions.fixed.get(BATCH), request.batch}
    others = [str(batch) for batch in asked if batch not in (None, scenario.batch)]
    if scenario.batch is not None and others:
        raise UsageError(
            f"--scenario {request.scenario} sends {scenario.batch} sample(s) in a request: leave "
            f"out the batch of {', '.join(others)}, or take --scenario {OFFLINE}"
        )


def _check_callers(callers: int | None, scenario: str) -> None:
    if callers is None:
        return
    those = ", ".join(name for name, each in SCENARIOS.items() if each.callers > 1)
    if SCENARIOS[scenario].callers == 1:
        raise UsageError(
            f"--callers {callers}: --scenario {scenario} has one caller a process; those with "
            f"several: {those}"
        )
    if not 2 <= callers <= MOST_CALLERS:
        raise UsageError(
            f"--callers {callers}: give 2 to {MOST_CALLERS}; one caller is --scenario single-stream"
        )


def callers_of(request: Request) -> int:
    """Return how many call at the same time."""
    return request.callers or SCENARIOS[request.scenario].callers


def parse_slo(text: str) -> Slo:
    """Read p99=15ms or p99.9=1.5s; raises UsageError."""
    number = r"[0-9]+(?:\.[0-9]+)?"
    found = re.fullmatch(rf"p({number})=({number})(us|ms|s)", text.strip())
    if found is None:
        raise UsageError(
            f"--slo {text!r} is no latency at a percentile with a unit: write p99=15ms, p95=200us "
            "or p99.9=1s"
        )
    percent, seconds = float(found[1]), float(found[2]) * _LATENCIES[found[3]]
    if not 50 <= percent <= 99.9:
        raise UsageError(
            f"--slo {text}: give a percentile from p50 to p99.9: beyond it, a trial of seconds "
            "holds too few requests"
        )
    if not 0 < seconds <= _LONGEST_S:
        raise UsageError(f"--slo {text}: give a latency above 0 and up to {_LONGEST_S:.0f} s")
    return Slo(percent / 100, seconds, f"--slo {text.strip()}")


def objective_of(request: Request) -> Objective:
    """Return what the request maximises or minimises, within its bounds; raises UsageError."""
    bounds = []
    if request.max_memory:
        asked = f"--max-memory {request.max_memory}"
        bounds.append(Bound("memory", parse_size(request.max_memory), asked))
    found = Objective.of(SCENARIOS[request.scenario].metric, bounds, request.goal)
    return msgspec.structs.replace(found, slo=parse_slo(request.slo)) if request.slo else found


def _check_choice(option: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise UnknownName(f"value of {option}", value, allowed, f"allowed: {', '.join(allowed)}")
