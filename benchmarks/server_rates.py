"""How true are a server's rates, on simulated servers whose rate is known?

    python -m benchmarks.server_rates [--studies 200] [--first 0] [--rounds 6] [--only A ...]

For each kind of server: studies with the tool's own choice of rates, arrivals and estimate. Each
round launches two arms, the server and one that is 1.3 times as fast, at the same arrivals.
Launches differ by 3 % (SD). The truth is the rate at which 1 % of half a million requests or more
is late. Printed: the bias and SD of the rate, how often its lower bound lies above the truth, and
the half-width of the interval; the same of the ratio of the two arms, and how often its interval
misses the truth; and how often the estimate was one by simulation.
"""

from __future__ import annotations

import argparse
import functools
import math
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from tuner.measurement.arrival_plan import ArrivalPlan
from tuner.measurement.confirmation import plain_interval
from tuner.measurement.estimates import log_scores_of_rounds
from tuner.measurement.queueing import waited, with_sustained
from tuner.measurement.server_trials import fit_of_launches
from tuner.record.arrivals import at_random, due_of
from tuner.record.configuration import Configuration
from tuner.record.launch import LaunchRecord, LaunchRequest, Purpose, Slice, packed
from tuner.record.load import Batching, Offer, Slo
from tuner.record.objective import Objective
from tuner.record.outcome import Ending, Outcome
from tuner.record.service_times import capacity
from tuner.record.serving import Served
from tuner.record.trace import proved_by, read_trace

LAUNCH_SD = 0.03
FASTER = 1.3
N_TRUTH, N_HALVED = 2_000_000, 11
TIMED_S = 2.0
"""Seconds in which a launch's batches are timed, as in a study."""
N_TIMES = 500
"""Different service times of a server."""


class Kind(msgspec.Struct, frozen=True):
    """A kind of server."""

    service_s: dict[int, float]
    """Seconds of a batch, by its size."""
    bound_s: float
    n_servers: int = 1
    cv: float = 0.0
    """Coefficient of variation of the service times (log-normal)."""
    stall_share: float = 0.0
    stall_s: float = 0.0
    """Share of the calls that take longer by so much; not while batches are timed."""
    hidden: float = 1.0
    """Factor by which calls take longer when requests arrive."""
    longer: float = 1.0
    """Factor by which half of the requests take longer than the others."""
    is_bursty: bool = False
    """Whether the requests arrive as in a trace with rushes."""

    @property
    def batching(self) -> Batching:
        return Batching(tuple(self.service_s), n_servers=self.n_servers)

    def timed_s(self) -> dict[int, list[float]]:
        """Return the service times while batches are timed, by the size."""
        z = np.random.default_rng(5).standard_normal(N_TIMES)
        factors = np.exp(self.cv * z - self.cv**2 / 2)
        factors[::2] *= self.longer
        return {size: (s * factors).tolist() for size, s in self.service_s.items()}

    def real_s(self) -> dict[int, list[float]]:
        """Return the service times when requests arrive."""
        found = {size: [self.hidden * s for s in each] for size, each in self.timed_s().items()}
        if self.stall_share:
            for times in found.values():
                for k in range(0, N_TIMES, round(1 / self.stall_share)):
                    times[k] += self.stall_s
        return found


KINDS = {
    "one at a time, 60 ms, within 300 ms": Kind({1: 0.06}, 0.3),
    "the same, service times vary by 10 %": Kind({1: 0.06}, 0.3, cv=0.1),
    "the same, service times vary by 50 %": Kind({1: 0.06}, 0.3, cv=0.5),
    "batches of up to 4, 22 to 80 ms, within 250 ms": Kind({1: 0.022, 2: 0.041, 4: 0.08}, 0.25),
    "batches of up to 4, 8 to 22 ms, within 250 ms": Kind({1: 0.008, 2: 0.013, 4: 0.022}, 0.25),
    "two instances, 40 ms, within 200 ms": Kind({1: 0.04}, 0.2, n_servers=2),
    "one at a time, 60 ms; 0.2 % stall for 250 ms": Kind(
        {1: 0.06}, 0.3, stall_share=0.002, stall_s=0.25
    ),
    "one at a time, 60 ms, 10 % more under load": Kind({1: 0.06}, 0.3, hidden=1.1),
    "two instances, 13 ms, 70 % more under load, within 250 ms": Kind(
        {1: 0.013}, 0.25, n_servers=2, hidden=1.7
    ),
    "half of the requests take 3 times as long, 20 ms": Kind({1: 0.02}, 0.2, longer=3.0),
    "one at a time, 20 ms, within 400 ms": Kind({1: 0.02}, 0.4),
    "one at a time, 20 ms, within 45 ms": Kind({1: 0.02}, 0.045),
    "a trace with rushes, 20 ms, within 100 ms": Kind({1: 0.02}, 0.1, is_bursty=True),
}


def slo_of(kind: Kind, folder: Path) -> Slo:
    """Return the bound of a kind of server, with a trace of its own if it has one."""
    if not kind.is_bursty:
        return Slo(0.99, kind.bound_s, "")
    path = folder / "trace.csv"
    if not path.exists():
        random = np.random.default_rng(3)
        moments, now = list[float](), 0.0
        while len(moments) < 20_000:
            pace, n = random.choice([0.5, 2.0]), int(random.integers(100, 400))
            for gap in random.exponential(1 / pace, n):
                now += float(gap)
                moments.append(now)
        path.write_text("\n".join(f"{moment:.6f}" for moment in moments))
    return Slo(0.99, kind.bound_s, "", read_trace(path))


def late_share(kind: Kind, slo: Slo, rate: float, n_of_trace: int) -> float:
    """Return the share of many requests that is late. n_of_trace: requests of a trial."""
    service_s = kind.real_s()
    if slo.trace is None:
        is_quick = kind.batching.largest == kind.n_servers == 1
        due = [at_random(11, N_TRUTH if is_quick else N_TRUTH // 4) / rate]
    else:  # the requests of a trial, again and again
        due = [np.array(proved_by(slo.trace, n_of_trace)) / rate] * 20
    return statistics.fmean(
        each > slo.seconds
        for run, moments in enumerate(due)
        for each in waited(kind.batching, service_s, moments, 11 + run)
    )


def true_rate(kind: Kind, slo: Slo, n_of_trace: int = 0) -> float:
    """Return the rate at which the allowed share is late."""
    low, high = 0.02 * (most := capacity(kind.batching, kind.real_s())), most
    for _ in range(N_HALVED):
        rate = math.sqrt(low * high)
        low, high = (
            (low, rate) if late_share(kind, slo, rate, n_of_trace) > slo.allowed else (rate, high)
        )
    return math.sqrt(low * high)


def until_idle(due: npt.NDArray[np.float64], waited_s: Sequence[float], least: int) -> int:
    """Return the number of requests until the server is idle, at least `least`."""
    ends = np.maximum.accumulate(due + waited_s)
    idle = np.flatnonzero(ends[least - 1 : -1] <= due[least:])
    return least + int(idle[0]) if len(idle) else len(due)


class Arm:
    """A server that is as fast as a factor says, launched again and again."""

    def __init__(self, kind: Kind, slo: Slo, factor: float, name: int) -> None:
        self.kind, self.slo, self.factor = kind, slo, factor
        self.configuration = Configuration.of({"fake.arm": name}) if name else Configuration()

    def launched(self, number: int, launch_id: int, random: np.random.Generator) -> LaunchRecord:
        """Return a new launch whose batches were timed."""
        self.speed = math.exp(LAUNCH_SD * random.standard_normal()) / self.factor
        record = LaunchRecord(
            LaunchRequest(
                launch_id, self.configuration, 1, Purpose.CONFIRM, round=number, slo=self.slo
            )
        )
        times = self.kind.timed_s()
        calls = [
            self.speed * times[size][int(random.integers(N_TIMES))]
            for _ in range(max(1, round(TIMED_S / sum(self.kind.service_s.values()))))
            for size in self.kind.batching.sizes
        ]
        served = Served(self.kind.batching, len(calls))
        taken = Slice(
            launch_id, 1, len(calls), sum(calls), 0.5, packed_calls=packed(calls), served=served
        )
        record.slices.append(with_sustained(taken, self.slo, round_number=number))
        return record

    def answered(self, offer: Offer, random: np.random.Generator) -> Slice:
        """Return a slice in which the requests of an offer were answered."""
        due = due_of(offer)
        service_s = {size: [self.speed * s for s in times] for size, times in self.real_s.items()}
        waited_s = waited(self.kind.batching, service_s, due, int(random.integers(1 << 31)))
        n = len(due) if offer.moments else until_idle(due, waited_s, offer.n_requests)
        seed = None if offer.moments else offer.seed
        served = Served(self.kind.batching, n, offered=offer.rate, seed=seed)
        calls = packed(waited_s[:n])
        return Slice(2, 1, n, float(due[n - 1]), 1.0, packed_calls=calls, served=served)

    @functools.cached_property
    def real_s(self) -> dict[int, list[float]]:
        """The service times when requests arrive."""
        return self.kind.real_s()


class Estimate(msgspec.Struct, frozen=True):
    """A study's estimates; logarithms."""

    rate: float
    low: float
    high: float
    ratio: float
    ratio_low: float
    ratio_high: float
    seconds: float
    """In which requests arrived at the first arm."""
    n_missed: int
    is_simulated: bool
    n_requests: int
    """Of the first trial."""


def study(kind: Kind, slo: Slo, n_rounds: int, seed: int) -> Estimate:
    """Return what a study says of a kind of server."""
    random = np.random.default_rng(seed)
    objective = msgspec.structs.replace(Objective.of("rate_within"), slo=slo)
    arms = [Arm(kind, slo, 1.0, 0), Arm(kind, slo, FASTER, 1)]
    launches: list[LaunchRecord] = []
    plan = ArrivalPlan(lambda: launches, objective, 1000 * seed)
    rounds: list[list[LaunchRecord]] = []
    seconds = 0.0
    for number in range(1, n_rounds + 1):
        rounds.append([])
        for arm in arms:
            record = arm.launched(number, len(launches) + 1, random)
            launches.append(record)
            rounds[-1].append(record)
            while (offer := plan.next_offer(record)) is not None:
                record.slices.append(arm.answered(offer, random))
                seconds += record.slices[-1].seconds if arm is arms[0] else 0.0
            record.ending = Ending(Outcome.MEASURED)
    scores = log_scores_of_rounds(rounds, objective)
    own = [s for each in scores if (s := each[arms[0].configuration]) is not None]
    pairs = [
        other - one
        for each in scores
        if (one := each[arms[0].configuration]) is not None
        and (other := each[arms[1].configuration]) is not None
    ]
    rate, ratio = plain_interval(own), plain_interval(pairs)
    return Estimate(
        math.log(rate.point),
        math.log(rate.low),
        math.log(rate.high),
        math.log(ratio.point),
        math.log(ratio.low),
        math.log(ratio.high),
        seconds,
        n_rounds - len(pairs),
        fit_of_launches([records[0] for records in rounds], slo).log_scale is not None,
        rounds[0][0].slices[1].calls,
    )


def rows(kind: Kind, slo: Slo, seeds: Sequence[int], n_rounds: int) -> Iterator[str]:
    """Yield what is printed about a kind of server. seeds: one of each study."""
    faster = msgspec.structs.replace(
        kind, service_s={size: s / FASTER for size, s in kind.service_s.items()}
    )
    if kind.stall_s:
        faster = msgspec.structs.replace(faster, stall_s=kind.stall_s / FASTER)
    found = [study(kind, slo, n_rounds, seed) for seed in seeds]
    n_of_trace = found[0].n_requests
    truth, other = (math.log(true_rate(each, slo, n_of_trace)) for each in (kind, faster))
    error = np.array([each.rate for each in found]) - truth
    half = statistics.median((each.high - each.low) / 2 for each in found)
    above = statistics.fmean(each.low > truth for each in found)
    most = capacity(kind.batching, kind.real_s())
    yield (
        f"  rate {math.exp(truth):.3g}/s ({math.exp(truth) / most:.0%} of capacity), "
        f"{statistics.fmean(each.seconds for each in found):.0f} s an arm: bias "
        f"{error.mean():+.1%}, SD {error.std():.1%}; lower bound above the truth in {above:.1%}; "
        f"half-width {half:.1%}; by simulation in "
        f"{statistics.fmean(each.is_simulated for each in found):.0%}; rounds missed "
        f"{sum(each.n_missed for each in found)}"
    )
    error = np.array([each.ratio for each in found]) - (other - truth)
    half = statistics.median((each.ratio_high - each.ratio_low) / 2 for each in found)
    outside = statistics.fmean(
        not each.ratio_low <= other - truth <= each.ratio_high for each in found
    )
    yield (
        f"  ratio {math.exp(other - truth):.3f}: bias {error.mean():+.1%}, SD {error.std():.1%}; "
        f"outside the interval in {outside:.1%}; half-width {half:.1%}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--studies", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="the seed of the first study")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--only", type=int, nargs="*", help="numbers of kinds, from 0")
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.studies)
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, kind) in enumerate(KINDS.items()):
            if given.only and number not in given.only:
                continue
            print(name, flush=True)
            for row in rows(kind, slo_of(kind, Path(folder)), seeds, given.rounds):
                print(row, flush=True)


if __name__ == "__main__":
    main()
