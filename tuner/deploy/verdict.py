"""What a verification may say: confirmed is what is in force, refuted what is proved wrong."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec
import numpy as np
from scipy.special import stdtrit

from tuner.deploy.differences import Difference
from tuner.host.interference import disturbed_share
from tuner.measurement.confirmation import ALPHA
from tuner.record.launch import LaunchRecord, ReadBack
from tuner.record.recommendation import Recommendation
from tuner.record.result import Interval
from tuner.space.catalogue import BATCH
from tuner.study.claims import MOSTLY_DISTURBED

_OFF = 1.5
"""A default that is this many times faster or slower than where the claim was made is another."""


class Verdict(StrEnum):
    """What came of it; each has an exit code."""

    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    INCONCLUSIVE = "inconclusive"


EXIT_CODES = {Verdict.CONFIRMED: 0, Verdict.REFUTED: 4, Verdict.INCONCLUSIVE: 5}


class Verification(msgspec.Struct, frozen=True):
    """What was found on this host."""

    verdict: Verdict
    reason: str
    claimed: Interval | None
    speedup: Interval | None
    n_rounds: int
    seconds: float
    differences: list[Difference]
    read_back: list[ReadBack]
    not_in_force: list[str]
    ratios: list[float] = []
    """Of each round: the recommendation's rate over the default's."""
    default_rate: float | None = None
    """Items per second of the default here; None where no round ended."""
    claimed_default_rate: float | None = None
    """The same where the claim was made; None in older files."""
    disturbed: float = 0.0
    """Share of the slices that something else on the host disturbed."""


class Shown(msgspec.Struct, frozen=True):
    """What the rounds showed, before anything is made of it."""

    interval: Interval | None
    ratios: list[float]
    default_rate: float | None
    launches: list[LaunchRecord]
    """Of every round, the default's included."""
    read_back: list[ReadBack] | None
    """Of the recommendation; None where no launch of it got so far."""
    failure: str = ""
    """Why the recommendation could not be measured."""
    stopped: str = ""
    """Why there were no more rounds, where that was not by choice."""


def unmeasured(
    recommendation: Recommendation, verdict: Verdict, reason: str, found: list[Difference]
) -> Verification:
    """Return a verdict that needs no measuring."""
    return Verification(verdict, reason, recommendation.claim.speedup, None, 0, 0.0, found, [], [])


def conclude(
    recommendation: Recommendation, shown: Shown, found: list[Difference], seconds: float
) -> Verification:
    """Say what came of the rounds.

    What is not in force, fails, or gives wrong outputs is refuted however few rounds there were.
    """
    claim = recommendation.claim
    verdict, reason = judge(shown.interval, claim.speedup)
    if shown.stopped and verdict is Verdict.INCONCLUSIVE:
        reason = f"{shown.stopped}: {reason}"
    if why := _disturbance(shown.launches):
        is_open = verdict is Verdict.INCONCLUSIVE
        reason = f"{why}: {reason}" if is_open else f"{reason}, although {why}"
    if why := _other_default(shown.default_rate, claim.default_rate):
        if not found:
            verdict, reason = Verdict.INCONCLUSIVE, f"{why}, and it is the same host: {reason}"
        else:
            reason = f"{reason}; {why}"
    read_back = shown.read_back or []
    missing = [] if shown.read_back is None else not_in_force(recommendation, read_back)
    if missing:
        verdict, reason = Verdict.REFUTED, f"not in force here: {', '.join(missing)}"
    if shown.failure:
        verdict, reason = Verdict.REFUTED, f"the recommendation fails here ({shown.failure})"
    return Verification(
        verdict, reason, claim.speedup, shown.interval, len(shown.ratios), round(seconds, 1),
        found, read_back, missing, shown.ratios, shown.default_rate, claim.default_rate,
        disturbed_share(shown.launches),
    )  # fmt: skip


def not_in_force(recommendation: Recommendation, read_back: Iterable[ReadBack]) -> list[str]:
    """Return the settings that were not read back with their values.

    What a variable does may be beyond observing; what a program is told to do is not.
    """
    seen: dict[str, list[ReadBack]] = {}
    for item in read_back:
        seen.setdefault(item.knob, []).append(item)

    def is_in_force(knob: str) -> bool:
        items = seen.get(knob, [])
        is_observed = any(item.evidence != "environment_only" for item in items)
        return all(item.in_force for item in items) and (
            is_observed or (bool(items) and knob.startswith("env."))
        )

    knobs = [setting.knob for setting in recommendation.settings if setting.knob != BATCH]
    return [knob for knob in knobs if not is_in_force(knob)]


def judge(found: Interval | None, claimed: Interval | None) -> tuple[Verdict, str]:
    """Say what an interval makes of the claim: it must lie above 1, and not below the claim."""
    if found is None:
        return Verdict.INCONCLUSIVE, "too few rounds for an interval: give it more time"
    if claimed is not None and found.high < claimed.low:
        return Verdict.REFUTED, "it gains less here than was claimed"
    if found.high <= 1:
        return Verdict.REFUTED, "it is no faster than the default here"
    if found.low <= 1:
        return Verdict.INCONCLUSIVE, "the interval holds 1: give it more time, or a quieter host"
    if claimed is not None and found.low > claimed.high:
        return Verdict.CONFIRMED, (
            "faster than the default, by more than was claimed, so that it may pay to tune here"
        )
    return Verdict.CONFIRMED, "faster than the default, as claimed"


def early_interval(differences: Sequence[float], launch_sd: float, freedom: int) -> Interval | None:
    """Return the interval of few rounds, by what launches differed by in the study on this host.

    Pooled with what the rounds themselves scatter by: a noisier hour makes it wider. None of a
    single round, which does not show whether this hour is like that of the study.
    """
    n, mean = len(differences), float(np.mean(differences))
    if n < 2:
        return None
    squares = 2 * launch_sd**2 * freedom + float(np.var(differences, ddof=1)) * (n - 1)
    freedom += n - 1
    half = float(-stdtrit(freedom, ALPHA / 2)) * math.sqrt(squares / freedom / n)
    low, high = math.exp(mean - half), math.exp(min(mean + half, 700.0))
    return Interval(math.exp(mean), low, high, 1 - ALPHA)


def is_busy(launches: Iterable[LaunchRecord]) -> bool:
    """Tell whether so many slices were disturbed that rounds elsewhere say nothing of these."""
    return disturbed_share(launches) > MOSTLY_DISTURBED


def _disturbance(launches: Sequence[LaunchRecord]) -> str:
    """Say that the host was busy, with an example; empty where it was not."""
    if not is_busy(launches):
        return ""
    reasons = [why for each in launches for s in each.slices for why in s.interference.dirty]
    share = disturbed_share(launches)
    return f"the host is busy ({share:.0%} of the slices were disturbed: {reasons[-1]})"


def _other_default(here: float | None, there: float | None) -> str:
    """Say that the default is much faster or slower than it was; empty where it is not."""
    if here is None or not there or 1 / _OFF <= here / there <= _OFF:
        return ""
    return f"the default does {here:.3g} items/s here, and did {there:.3g} where it was confirmed"
