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
from tuner.record.load import OFFLINE, SCENARIOS
from tuner.record.objective import GOALS, Bound, Objective
from tuner.space.catalogue import fault_of_value
from tuner.space.knobs_of.launch import BATCH
from tuner.space.restrictions import Numerics, Restrictions, check_consistent

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}


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
    goal: str = "fastest"
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
    restrictions = request.restrictions
    asked = {*restrictions.values.get(BATCH, ()), restrictions.fixed.get(BATCH), request.batch}
    others = [str(batch) for batch in asked if batch not in (None, scenario.batch)]
    if scenario.batch is not None and others:
        raise UsageError(
            f"--scenario {request.scenario} sends {scenario.batch} sample(s) in a request: leave "
            f"out the batch of {', '.join(others)}, or take --scenario {OFFLINE}"
        )


def objective_of(request: Request) -> Objective:
    """Return what the request maximises or minimises, within its bounds; raises UsageError."""
    bounds = []
    if request.max_memory:
        asked = f"--max-memory {request.max_memory}"
        bounds.append(Bound("memory", parse_size(request.max_memory), asked))
    return Objective.of(SCENARIOS[request.scenario].metric, bounds, request.goal)


def _check_choice(option: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise UnknownName(f"value of {option}", value, allowed, f"allowed: {', '.join(allowed)}")
