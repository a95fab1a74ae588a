"""What a verification may say: confirmed is what is in force, refuted what is proved wrong."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec

from tuner.host.interference import disturbed_share
from tuner.measurement.confirmation import LOOKS
from tuner.record.configuration import Configuration
from tuner.record.figures import figure
from tuner.record.interval import Interval
from tuner.record.launch import LaunchRecord, ReadBack
from tuner.record.noisiness import MOSTLY_DISTURBED
from tuner.record.objective import METRICS
from tuner.record.outcome import Ending, Outcome
from tuner.record.recommendation import EXPECTED, Recommendation, ShippedClaim
from tuner.space.differences import Difference
from tuner.space.knobs_of.launch import BATCH
from tuner.study.bounds import beyond

_OFF = 1.5
"""A default that is this many times faster or slower than where the claim was made is another."""
_OFF_WITHIN_A_BOUND = 1.1
"""Likewise of a server that gains less, and here the whole interval lies beyond: a latency in
milliseconds leaves another room at another speed of the host."""


class Conclusion(StrEnum):
    """What came of it; each has an exit code."""

    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    INCONCLUSIVE = "inconclusive"


EXIT_CODES = {Conclusion.CONFIRMED: 0, Conclusion.REFUTED: 4, Conclusion.INCONCLUSIVE: 5}


class Verification(msgspec.Struct, frozen=True):
    """What was found on this host."""

    verdict: Conclusion
    reason: str
    claimed: Interval | None
    speedup: Interval | None
    n_rounds: int
    seconds: float
    differences: list[Difference]
    read_back: list[ReadBack]
    not_in_force: list[str]
    ratios: list[float] = []
    """Of each round: the recommendation against the default; above 1 is better."""
    default_value: float | None = None
    """The default's value here, in the unit of the claim; None where no round ended."""
    claimed_default_value: float | None = None
    """The same where the claim was made; None in older files."""
    unit: str = ""
    disturbed: float = 0.0
    """Share of the slices that something else on the host disturbed."""


class Shown(msgspec.Struct, frozen=True):
    """What the rounds showed, before anything is made of it."""

    interval: Interval | None
    ratios: list[float]
    default_value: float | None
    launches: list[LaunchRecord]
    """Of every round, the default's included."""
    read_backs: list[list[ReadBack]]
    """Of each launch of the recommendation that got so far."""
    default_bounds: tuple[float, float] | None = None
    """The 95 % interval of the default's value over rounds; None of fewer than two."""
    undisturbed: Interval | None = None
    """The interval over quiet rounds alone; None where they are too few."""
    failure: Ending | None = None
    """How the recommendation failed to be measured."""
    stopped: str = ""
    """Why there were no more rounds, where that was not by choice."""
    kept: list[tuple[bool, bool]] = []
    """Of a server, round by round: whether the default, and the recommendation, were in time."""


def unmeasured(
    recommendation: Recommendation, verdict: Conclusion, reason: str, found: list[Difference]
) -> Verification:
    """Return a verdict that needs no measuring."""
    claimed = _claimed(recommendation.claim)
    return Verification(verdict, reason, claimed, None, 0, 0.0, found, [], [])


def _claimed(claim: ShippedClaim) -> Interval | None:
    """Return the speedup that is claimed; a study that did not decide claims none."""
    return claim.speedup if claim.verdict in ("faster", *EXPECTED) else None


def conclude(
    recommendation: Recommendation, shown: Shown, found: list[Difference], seconds: float
) -> Verification:
    """Say what came of the rounds.

    What is not in force, fails, or gives wrong outputs is refuted however few rounds there were; on
    a busy host, only what does not depend on its load is.
    """
    claim = recommendation.claim
    missed = of_a_server(claim, shown.kept)
    verdict, reason = missed or decide(
        shown.interval, shown.undisturbed, claim.speedup, shown.launches
    )
    if shown.stopped and verdict is Conclusion.INCONCLUSIVE:
        reason = f"{shown.stopped}: {reason}"
    if why := _disturbance(shown.launches):
        is_open = verdict is Conclusion.INCONCLUSIVE
        reason = f"{why}: {reason}" if is_open else f"{reason}, although {why}"
    # what older files hold is items per second, the only objective that there was
    claimed_value = claim.default_value or claim.default_rate
    unit = METRICS[claim.metric].unit
    gains_less = verdict is Conclusion.REFUTED and shown.interval and shown.interval.low > 1
    is_of_speed = recommendation.slo is not None and missed is None and gains_less
    is_other = is_of_speed and _is_beyond(shown.default_bounds, claimed_value)
    if why := _other_default(shown.default_value, claimed_value, unit, 1.0 if is_other else _OFF):
        if not any(each.matters for each in found):
            told = "and nothing that matters differs on the host"
            verdict, reason = Conclusion.INCONCLUSIVE, f"{why}, {told}: {reason}"
        else:
            reason = f"{reason}; {why}"
    if shown.failure is not None:
        verdict, reason = _of_failure(shown.failure, shown.launches)
    if over := _over_bounds(recommendation, shown.launches):
        verdict, reason = Conclusion.REFUTED, over
    missing, read_back = _in_every_round(recommendation, shown.read_backs)
    if missing and not (shown.failure and verdict is Conclusion.REFUTED):
        verdict, reason = Conclusion.REFUTED, f"not in force here: {', '.join(missing)}"
    if verdict is Conclusion.CONFIRMED and (unseen := _not_observable(recommendation, read_back)):
        reason = f"{reason}; not observable here: {', '.join(unseen)}"
    return Verification(
        verdict, reason, _claimed(claim), shown.interval, len(shown.ratios), round(seconds, 1),
        found, read_back, missing, shown.ratios, shown.default_value, claimed_value,
        unit, disturbed_share(shown.launches),
    )  # fmt: skip


def of_a_server(
    claim: ShippedClaim, kept: Sequence[tuple[bool, bool]]
) -> tuple[Conclusion, str] | None:
    """Say what rounds mean in which a latency bound was missed; None where none was.

    kept: round by round, whether the default, and the recommendation, were in time.
    """
    n = len(kept)
    default, tuned = (sum(each) for each in zip(*kept, strict=True)) if kept else (0, 0)
    if tuned < n:
        return Conclusion.REFUTED, f"it kept within the latency bound in {tuned} of {n} rounds"
    if default == n:
        return None
    told = f"in all of {n} rounds, the default in {default}"
    if claim.default_meets_slo is not False:
        return Conclusion.INCONCLUSIVE, (
            f"it keeps within the latency bound {told}: no ratio says what is gained here"
        )
    if n < LOOKS[0]:
        return Conclusion.INCONCLUSIVE, f"too few rounds: in time {told}; give it more time"
    return Conclusion.CONFIRMED, f"it keeps within the latency bound {told}, as claimed"


def decide(
    found: Interval | None,
    undisturbed: Interval | None,
    claimed: Interval | None,
    launches: Iterable[LaunchRecord],
) -> tuple[Conclusion, str]:
    """Say what the rounds make of the claim; on a busy host, the undisturbed ones alone refute."""
    verdict, reason = against_claim(found, claimed)
    if verdict is not Conclusion.REFUTED or not is_busy(launches):
        return verdict, reason
    if against_claim(undisturbed, claimed)[0] is Conclusion.REFUTED:
        return verdict, reason
    return Conclusion.INCONCLUSIVE, f"{reason}, by rounds that prove nothing: try a quieter host"


def _of_failure(failure: Ending, launches: Iterable[LaunchRecord]) -> tuple[Conclusion, str]:
    """Say what a failure means: beside other programs a launch may want for time or memory."""
    told = f"{failure.outcome}: {failure.reason}"
    if failure.outcome is not Outcome.WRONG_OUTPUT and (why := _disturbance(list(launches))):
        return Conclusion.INCONCLUSIVE, f"{why}, and the recommendation failed ({told})"
    return Conclusion.REFUTED, f"the recommendation fails here ({told})"


def _over_bounds(recommendation: Recommendation, launches: Sequence[LaunchRecord]) -> str:
    """Say which of its bounds the recommendation surely exceeds here; empty if none."""
    settings = Configuration.of({s.knob: s.value for s in recommendation.settings})
    found = beyond(launches, recommendation.bounds)
    exceeded = [why for c, why in found.items() if c.without(BATCH) == settings.without(BATCH)]
    return exceeded[0] if exceeded else ""


def _in_every_round(
    recommendation: Recommendation, read_backs: Sequence[list[ReadBack]]
) -> tuple[list[str], list[ReadBack]]:
    """Return the settings that some round lacked, and what such a round read, or the last."""
    lacking = [(not_in_force(recommendation, each), each) for each in read_backs]
    lacked = {knob for knobs, _ in lacking for knob in knobs}
    missing = [s.knob for s in recommendation.settings if s.knob in lacked]
    shown = next((each for knobs, each in lacking if knobs), None)
    return missing, shown or (read_backs[-1] if read_backs else [])


def _not_observable(recommendation: Recommendation, read_back: Iterable[ReadBack]) -> list[str]:
    """Return the settings that only the environment shows."""
    observed = {item.knob for item in read_back if item.evidence != "environment_only"}
    knobs = [setting.knob for setting in recommendation.settings if setting.knob != BATCH]
    return [knob for knob in knobs if knob not in observed]


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


def against_claim(found: Interval | None, claimed: Interval | None) -> tuple[Conclusion, str]:
    """Say what an interval makes of the claim: it must lie above 1, and not below the claim."""
    if found is None:
        return Conclusion.INCONCLUSIVE, "too few rounds for an interval: give it more time"
    if claimed is not None and found.high < claimed.low:
        return Conclusion.REFUTED, "it gains less here than was claimed"
    if found.high <= 1:
        return Conclusion.REFUTED, "it is no faster than the default here"
    if found.low <= 1:
        return Conclusion.INCONCLUSIVE, "the interval holds 1: give it more time, or a quieter host"
    if claimed is not None and found.low > claimed.high:
        return Conclusion.CONFIRMED, (
            "faster than the default, by more than was claimed, so that it may pay to tune here"
        )
    return Conclusion.CONFIRMED, "faster than the default, as claimed"


def is_busy(launches: Iterable[LaunchRecord]) -> bool:
    """Tell whether too many slices were disturbed to compare these rounds with others."""
    return disturbed_share(launches) > MOSTLY_DISTURBED


def _disturbance(launches: Sequence[LaunchRecord]) -> str:
    """Say that the host was busy, with an example; empty where it was not."""
    if not is_busy(launches):
        return ""
    reasons = [why for each in launches for s in each.slices for why in s.interference.dirty]
    share = disturbed_share(launches)
    return f"the host is busy ({share:.0%} of the slices were disturbed: {reasons[-1]})"


def _is_beyond(here: tuple[float, float] | None, there: float | None) -> bool:
    """Tell whether the default of a server surely has another value than it had."""
    if here is None or not there:
        return False
    return here[0] > _OFF_WITHIN_A_BOUND * there or here[1] * _OFF_WITHIN_A_BOUND < there


def _other_default(here: float | None, there: float | None, unit: str, off: float) -> str:
    """Say that the default is `off` times better or worse than it was; empty where it is not."""
    if here is None or not there or 1 / off <= here / there <= off:
        return ""
    return (
        f"the default is at {figure(here)} {unit} here, "
        f"and was at {figure(there)} where it was confirmed"
    )
