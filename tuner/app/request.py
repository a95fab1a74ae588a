"""A user's request as typed: read, and refused if no host could carry it out."""

from __future__ import annotations

import ipaddress
import math
import os
import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import get_args
from urllib.parse import urlsplit

import msgspec

from tuner.errors import UnknownName, UsageError
from tuner.frameworks import FRAMEWORKS
from tuner.host.secrets import hold_back, names_a_secret, redacted
from tuner.record.headers import Headers, filled, parse_headers, variables_of
from tuner.record.load import (
    INFERENCE,
    MOST_CALLERS,
    OFFLINE,
    SCENARIOS,
    SERVER,
    TRAINING,
    USUAL_QUANTILE,
    Slo,
    Trace,
)
from tuner.record.numerics import Numerics
from tuner.record.objective import GOALS, Bound, Cost, Objective
from tuner.record.trace import check_length, read_trace
from tuner.record.workload import LAST_BATCH_DIM
from tuner.space.catalogue import fault_of_value
from tuner.space.knobs_of.launch import BATCH
from tuner.space.restrictions import Restrictions, check_consistent

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}
_LATENCIES = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_ANY_PORT = 61001
"""Replaces {port}, to find its place."""
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


def parse_percentage(option: str, text: str, example: str) -> float:
    """Read 5% into 0.05; raises UsageError."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*%", text.strip())
    if found is None:
        raise UsageError(f"{option} {text!r} is not a percentage: write {example}")
    return float(found[1]) / 100


def parse_share(text: str) -> float:
    """Read 90% of a claimed gain into 0.9; raises UsageError."""
    return checked_share(parse_percentage("--at-least", text, "90%"))


def checked_share(share: float) -> float:
    """Return a share of a claimed gain; raises UsageError if it is invalid."""
    if not 0 < share <= 1:
        raise UsageError(
            f"at least {share:.4g} of the claimed gain cannot be asked for: write more than 0%, "
            "and 100% at the most"
        )
    return share


def parse_margin(text: str) -> float:
    """Read a share of additional steps, 5% into 0.05; raises UsageError."""
    return checked_margin(parse_percentage("--margin", text, "5%"))


def checked_margin(share: float) -> float:
    """Return a share of additional steps; raises UsageError if it is invalid.

    A configuration that needs twice the steps has learnt otherwise, whatever its speed.
    """
    if not 0 < share <= 1:
        raise UsageError(
            f"a margin of {share:.4g} is invalid: it is the share of additional steps that is not "
            "accepted, more than 0% and 100% at the most"
        )
    return share


def parse_size(text: str) -> float:
    """Read 4G, 512M or 1.5GiB into bytes, in powers of 1024; raises UsageError."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT])(?:i?B)?", text.strip(), re.IGNORECASE)
    if found is None:
        raise UsageError(f"the size {text!r} lacks its K, M, G or T: write 512M, 4G or 1.5G")
    size = float(found[1]) * 1024.0 ** (" KMGT".index(found[2].upper()))
    if not 0 < size < 2**63:
        raise UsageError(f"the size {text!r} must be above 0 and below 8E: write 512M, 4G or 1.5G")
    return size


def parse_costs(text: str) -> tuple[str, ...]:
    """Read memory,latency; check_request refuses unknown costs."""
    return tuple(part.strip() for part in text.split(","))


class Service(msgspec.Struct, frozen=True):
    """A server of the user's own, as typed."""

    command: str
    """The command that starts it; it has to listen at {port}, or at PORT in its environment."""
    url: str
    """Its address on the loopback interface, with {port}."""
    requests: Path
    """A file of requests, or a folder with a file for each."""
    headers: Headers = ()
    """Headers of each request; secrets by the names of their variables."""


class Request(msgspec.Struct, frozen=True):
    """What is tuned, as typed."""

    model: str
    """Empty if a whole program is tuned."""
    program: str | None = None
    service: Service | None = None
    """In the place of a model or a program."""
    hardware: str = "auto"
    together: tuple[str, ...] = ()
    """In a run of several models: every framework that it has studies of. Settings of any may be
    restricted, though this study knows none of them."""
    device: str | None = None
    """With hardware auto: which device the profile must measure on; None for any."""
    frameworks: tuple[str, ...] = ()
    budget_s: float = 600.0
    """Over all frameworks, in all sessions; with `extends`, in addition to the time used, or to the
    budget of an unfinished study."""
    extends: bool = False
    """Whether a study is gone on with that is finished, or had too little time."""
    out: Path | None = None
    below: Path | None = None
    """The folder in which studies are named by themselves where `out` names none; reports if None.
    """
    batch: int | None = None
    batch_dim: int | None = None
    """Which dimension of the model's inputs is the batch; None for the one that it states."""
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
    trace: Path | None = None
    """A file of recorded arrivals (record/trace.py); None: requests arrive at random."""
    goal: str = "fastest"
    price_per_hour: float | None = None
    """Price of the host, in any currency, from which the cost of an item is computed."""
    max_memory: str = ""
    """The most memory that a winner may need, as typed: 4G; empty for no bound."""
    accept_cost: tuple[str, ...] = ()
    """Costs that a winner may raise without a proof that they are needed: memory, latency."""
    learn_from: tuple[Path, ...] = ()
    """Folders below which earlier studies lie."""
    guidelines: Path | None = None
    """A guidelines.json whose rules guide the search."""
    command: str = ""
    environment: dict[str, str] | None = None
    """The tuning variables that are set, as host/secrets.py states them; None if they are not
    compared with the default."""


def given_in(request: Request) -> str:
    """Return the option in which the time of a request was given."""
    return "--extend" if request.extends else "--budget"


def check_request(request: Request) -> None:
    """Raise UsageError for what no host could carry out."""
    restrictions = request.restrictions
    _check_choice("--numerics", restrictions.numerics, get_args(Numerics))
    _check_choice("--goal", request.goal, tuple(GOALS))
    for cost in request.accept_cost:
        _check_choice("--accept-cost", cost, get_args(Cost))
    _check_choice("--scenario", request.scenario, tuple(SCENARIOS))
    _check_load(request)
    for name in request.frameworks:
        _check_choice("--framework", name, tuple(FRAMEWORKS))
    if request.tolerance is not None and not math.isfinite(request.tolerance):
        raise UsageError(
            f"--tolerance {request.tolerance} is invalid; give a finite number such as 0.02"
        )
    if request.batch is not None and (fault := fault_of_value(BATCH, request.batch)):
        raise UsageError(f"--batch {request.batch}: {fault}")
    dim = request.batch_dim
    if dim is not None and not 0 <= dim <= LAST_BATCH_DIM:
        raise UsageError(
            f"--batch-dim {dim} is invalid; give a dimension of the inputs, 0 to {LAST_BATCH_DIM}"
        )
    price = request.price_per_hour
    if price is not None and not 0 < price < 1e6:
        raise UsageError(f"--price-per-hour {price} is invalid; give what the host costs: 0.68")
    if not 0 <= request.seed < 2**32:
        raise UsageError(f"--seed {request.seed} is invalid; give a whole number below 2**32")
    check_consistent(restrictions)


def _check_load(request: Request) -> None:
    """Raise UsageError for what contradicts the scenario."""
    scenario = SCENARIOS[request.scenario]
    if request.program is not None and not scenario.bears_programs:
        raise UsageError(
            f"--scenario {request.scenario} is for a model, whose calls are timed one by one; a "
            "program (--command) times itself: leave one of them out"
        )
    if request.service is not None:
        _check_service(request.service, request.scenario)
    _check_callers(request.callers, request.scenario)
    if request.designed and request.scenario != OFFLINE:
        raise UsageError(
            f"--designed is what guidelines are learnt from, which are of --scenario {OFFLINE}: "
            f"leave out one of --designed and --scenario {request.scenario}"
        )
    _check_arrivals(request)
    restrictions = request.restrictions
    if scenario.mode == TRAINING and BATCH in restrictions.values:
        raise UsageError(
            f"--set {BATCH}: another batch trains otherwise, so that training has one: --batch N"
        )
    batches = {*restrictions.values.get(BATCH, ()), restrictions.fixed.get(BATCH), request.batch}
    others = [str(batch) for batch in batches if batch not in (None, scenario.batch)]
    if scenario.batch is not None and others:
        raise UsageError(
            f"--scenario {request.scenario} sends {scenario.batch} sample(s) in a request: leave "
            f"out the batch of {', '.join(others)}, or take --scenario {OFFLINE}"
        )


def scenario_of(scenario: str | None, mode: str | None, *, is_served: bool) -> str:
    """Return the scenario for the options --scenario and --mode; raises UsageError.

    is_served: whether a server is tuned.
    """
    usual = SERVER if is_served else OFFLINE
    if mode is None:
        return scenario or usual
    _check_choice("--mode", mode, (INFERENCE, TRAINING))
    found = scenario or (TRAINING if mode == TRAINING else usual)
    if (found == TRAINING) != (mode == TRAINING):
        raise UsageError(
            f"--mode {mode} contradicts --scenario {scenario}: training has one scenario, step "
            "after step, and the others are of inference; leave out one of them"
        )
    return found


def _check_arrivals(request: Request) -> None:
    """Raise UsageError for invalid options about arriving requests."""
    if not SCENARIOS[request.scenario].is_served and (request.slo or request.trace):
        asked = "a trace" if not request.slo else parse_slo(request.slo).asked
        those = ", ".join(name for name, each in SCENARIOS.items() if each.is_served)
        raise UsageError(
            f"{asked} is about requests that arrive by themselves, and in the scenario "
            f"{request.scenario} none do: take --scenario {those}"
        )
    slo = parse_slo(request.slo) if request.slo else Slo(USUAL_QUANTILE, math.inf, "")
    if (trace := trace_of(request)) is not None:
        check_length(trace, slo)


def service_of(
    serve: str | None,
    url: str | None,
    requests: Path | None,
    headers: Sequence[str] = (),
) -> Service | None:
    """Return a server as typed; raises UsageError if a part is missing."""
    parts = {"--serve": serve, "--url": url, "--requests": requests}
    if all(part is None for part in parts.values()) and not headers:
        return None
    given = _headers_of(headers)
    if serve is None or url is None or requests is None:
        lacking = " and ".join(name for name, part in parts.items() if part is None)
        raise UsageError(
            "a server is tuned by --serve COMMAND --url ADDRESS --requests FILE together; "
            f"not given: {lacking}"
        )
    return Service(serve, url, requests, given)


def _headers_of(typed: Sequence[str]) -> Headers:
    """Read headers, whose secrets must be in the environment; the typed form is kept."""
    headers = parse_headers(typed)
    hold_back(variables_of(headers))
    filled(headers, os.environ)
    for name, value in headers:
        is_secret = names_a_secret(name) and not variables_of([(name, value)])
        if is_secret or redacted(value) != value:
            raise UsageError(
                f"--header {name}: its value looks like a secret, and what is typed is written "
                f'into reports: put it into a variable, and write "{name}: env:VARIABLE" '
                '("Bearer env:VARIABLE" where a word comes before it)'
            )
    return headers


def _check_service(service: Service, scenario: str) -> None:
    """Raise UsageError for a server that is not on this machine."""
    if not SCENARIOS[scenario].is_served:
        raise UsageError(
            f"--serve is sent requests that arrive by themselves (--scenario server), and not "
            f"--scenario {scenario}: leave it out"
        )
    try:
        address = urlsplit(service.url.replace("{port}", str(_ANY_PORT)))
        host, port = address.hostname or "", address.port
    except ValueError as error:
        raise UsageError(f"--url {service.url!r} cannot be read: {error}") from error
    if address.scheme != "http" or not host:
        raise UsageError(
            f"--url {service.url!r} is no address that is asked over plain HTTP: write "
            "http://127.0.0.1:{port}/predict"
        )
    if find_spec("aiohttp") is None:
        raise UsageError(
            "--serve needs an HTTP client: pip install 'tune-framework[serve]' (aiohttp)"
        )
    if not is_loopback(host):
        raise UsageError(
            f"--url {service.url}: {host} is not the loopback interface; requests are sent to this "
            "machine alone: write 127.0.0.1"
        )
    if port != _ANY_PORT:
        raise UsageError(
            f"--url {service.url}: write {{port}} in the place of the port, and in --serve where "
            "the program is told (or have it listen on $PORT): several run side by side"
        )


def is_loopback(host: str) -> bool:
    """Tell whether an address is this machine's own, by its name."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


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
    if re.fullmatch(rf"{number}(us|ms|s)", text.strip()):
        raise UsageError(
            f"--slo {text!r} lacks its percentile: for a bound on 99 % of the requests write "
            f"p99={text.strip()}"
        )
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
    accepted: tuple[Cost, ...] = tuple(c for c in get_args(Cost) if c in request.accept_cost)
    metric = SCENARIOS[request.scenario].metric
    found = Objective.of(metric, bounds, request.goal, accepted)
    if not request.slo:
        return found
    slo = msgspec.structs.replace(parse_slo(request.slo), trace=trace_of(request))
    return msgspec.structs.replace(found, slo=slo)


def trace_of(request: Request) -> Trace | None:
    """Return the arrivals that a request names; raises UsageError for a file that holds none."""
    return None if request.trace is None else read_trace(request.trace)


def _check_choice(option: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise UnknownName(f"value of {option}", value, allowed, f"allowed: {', '.join(allowed)}")
