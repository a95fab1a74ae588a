"""The conclusions of a verification: confirmed, refuted or undecided."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec

from tuner.host.interference import disturbed_share
from tuner.measurement.confirmation import FIRST_LOOK
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
from tuner.study.claimed_gain import HALF, Gain
from tuner.study.evaluation import beyond

_OFF = 1.5
"""A default that is this many times faster or slower than in the study is a different one."""
_OFF_WITHIN_A_BOUND = 1.1
"""Likewise of a server that gains less, and here the whole interval lies beyond: a latency in
milliseconds leaves another room at another speed of the host."""


CAN_PASS = (Outcome.CRASHED, Outcome.OUT_OF_MEMORY, Outcome.TIMED_OUT)
"""Failures that something else may have caused: what failed so is launched again, by itself."""
_FOR_WANT = (Outcome.OUT_OF_MEMORY, Outcome.TIMED_OUT)
"""Failures that other programs can cause, however often it is tried."""


class Conclusion(StrEnum):
    """What came of it; each has an exit code."""

    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    INCONCLUSIVE = "inconclusive"


EXIT_CODES = {Conclusion.CONFIRMED: 0, Conclusion.REFUTED: 4, Conclusion.INCONCLUSIVE: 5}
"""Exit codes of `verify`."""


class Verification(msgspec.Struct, frozen=True):
    """What a verification found on this host."""

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
    """The default's value here, in the unit of the claim; None if no round ended."""
    claimed_default_value: float | None = None
    """The default's value in the study; None in older files."""
    unit: str = ""
    disturbed: float = 0.0
    """Share of the slices that something else on the host disturbed."""
    share: Interval | None = None
    """The share of the claimed gain (speedup - 1), with the claim's own error: 0.5 of a claimed
    1.30x is 1.15x. None if no gain is claimed, or if too few rounds ended."""
    at_least: float | None = None
    """The share that the user asked for."""


class InTime(msgspec.Struct, frozen=True):
    """Whether a server kept within its latency bound in a round: each arm by its launch.

    None of a launch that does not tell: it failed, or ended before it came to the lowest rates.
    """

    default: bool | None
    tuned: bool | None
    is_busy: bool = False
    """Whether most of the round was disturbed, so that it refutes nothing."""


class Shown(msgspec.Struct, frozen=True):
    """What the rounds showed, before it is judged."""

    gain: Gain | None
    ratios: list[float]
    default_value: float | None
    launches: list[LaunchRecord]
    """Of every round, the default's included."""
    read_backs: list[list[ReadBack]]
    """Of each launch of the recommendation that got so far."""
    default_bounds: tuple[float, float] | None = None
    """The 95 % interval of the default's value over rounds; None of fewer than two."""
    undisturbed: Gain | None = None
    """The same over quiet rounds alone; None if they are too few."""
    failure: Ending | None = None
    """How the recommendation failed to be measured."""
    fails_alone: bool | None = None
    """Whether the recommendation failed again when it was launched alone; None if there was no
    time."""
    stopped: str = ""
    """Why there were no more rounds, unless enough were made."""
    in_time: list[InTime] = []
    """Of a server, round by round."""
    at_least: float | None = None
    """The share of the claimed gain that must be there; None: not surely less than all of it."""


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
    """Judge the rounds.

    A setting that is not in force, a failure, or wrong outputs refute after any number of rounds.
    On a busy host, only what does not depend on its load does.
    """
    claim = recommendation.claim
    missed = of_a_server(claim, shown.in_time)
    verdict, reason = missed or decide(
        shown.gain, shown.undisturbed, claim.speedup, shown.launches, shown.at_least,
        n_rounds=len(shown.ratios),
    )  # fmt: skip
    speedup = shown.gain.speedup if shown.gain else None
    if shown.stopped and verdict is Conclusion.INCONCLUSIVE:
        reason = f"{shown.stopped}: {reason}"
    if why := _disturbance(shown.launches):
        is_open = verdict is Conclusion.INCONCLUSIVE
        reason = f"{why}: {reason}" if is_open else f"{reason}, although {why}"
    # what older files hold is items per second, the only objective that there was
    claimed_value = claim.default_value or claim.default_rate
    unit = METRICS[claim.metric].unit
    gains_less = verdict is Conclusion.REFUTED and speedup and speedup.low > 1
    is_of_speed = recommendation.slo is not None and missed is None and gains_less
    is_other = is_of_speed and _is_beyond(shown.default_bounds, claimed_value)
    if why := _other_default(shown.default_value, claimed_value, unit, 1.0 if is_other else _OFF):
        if not any(each.matters for each in found):
            unchanged = "and nothing that matters differs on the host"
            verdict, reason = Conclusion.INCONCLUSIVE, f"{why}, {unchanged}: {reason}"
        else:
            reason = f"{reason}; {why}"
    if shown.failure is not None:
        verdict, reason = _of_failure(shown.failure, shown.fails_alone, shown.launches)
    if over := _over_bounds(recommendation, shown.launches):
        verdict, reason = Conclusion.REFUTED, over
    missing, read_back = _in_every_round(recommendation, shown.read_backs)
    if missing and not (shown.failure and verdict is Conclusion.REFUTED):
        verdict, reason = Conclusion.REFUTED, f"not in force here: {', '.join(missing)}"
    if verdict is Conclusion.CONFIRMED and (unseen := _not_observable(recommendation, read_back)):
        reason = f"{reason}; not observable here: {', '.join(unseen)}"
    return Verification(
        verdict, reason, _claimed(claim), speedup, len(shown.ratios), round(seconds, 1),
        found, read_back, missing, shown.ratios, shown.default_value, claimed_value,
        unit, disturbed_share(shown.launches),
        shown.gain.share if shown.gain else None, shown.at_least,
    )  # fmt: skip


def of_a_server(claim: ShippedClaim, rounds: Sequence[InTime]) -> tuple[Conclusion, str] | None:
    """Judge rounds in which a latency bound was missed; None if none was.

    Each arm is judged by its conclusive launches. Misses refute in more than half of at least four
    rounds. These must be undisturbed, and the default must have met the bound in them, unless the
    claim is that it cannot. If the default suddenly misses it too, the host is to blame.
    """
    met, n = _met(each.tuned for each in rounds)
    default_met, n_default = _met(each.default for each in rounds)
    by_default = f"the default in {default_met} of {n_default}"
    if rounds and not (n and n_default):
        arm = "the default" if n else "the recommendation"
        return Conclusion.INCONCLUSIVE, (
            f"no launch of {arm} shows whether it keeps within the latency bound: give it more time"
        )
    if met < n:
        kept = f"it kept within the latency bound in {met} of {n} rounds, {by_default}"
        is_late_anyway = claim.default_meets_slo is False
        counted = [
            each.tuned
            for each in rounds
            if each.tuned is not None and not each.is_busy
            if is_late_anyway or each.default is not False
        ]
        if len(counted) >= FIRST_LOOK and 2 * counted.count(False) > len(counted):
            return Conclusion.REFUTED, kept
        return Conclusion.INCONCLUSIVE, f"{kept}, which does not decide it"
    if default_met == n_default:
        return None
    kept = f"in all of {n} rounds, {by_default}"
    if claim.default_meets_slo is not False:
        return Conclusion.INCONCLUSIVE, (
            f"it keeps within the latency bound {kept}: there is no speedup here"
        )
    if n < FIRST_LOOK:
        return Conclusion.INCONCLUSIVE, f"too few rounds: in time {kept}; give it more time"
    return Conclusion.CONFIRMED, f"it keeps within the latency bound {kept}, as claimed"


def _met(in_time: Iterable[bool | None]) -> tuple[int, int]:
    """Return in how many rounds an arm met the bound, and how many are conclusive."""
    known = [each for each in in_time if each is not None]
    return sum(known), len(known)


def decide(
    found: Gain | None,
    undisturbed: Gain | None,
    claimed: Interval | None,
    launches: Iterable[LaunchRecord],
    at_least: float | None = None,
    *,
    n_rounds: int,
) -> tuple[Conclusion, str]:
    """Judge the speedup of the rounds.

    Fewer than four rounds refute nothing: they borrow the scatter of launches from the claim. On a
    busy host only undisturbed rounds refute.
    """
    verdict, reason = against_claim(found, claimed, at_least)
    if verdict is Conclusion.REFUTED and n_rounds < FIRST_LOOK:
        return Conclusion.INCONCLUSIVE, f"{reason}, by too few rounds: give it more time"
    if verdict is not Conclusion.REFUTED or not is_busy(launches):
        return verdict, reason
    if against_claim(undisturbed, claimed, at_least)[0] is Conclusion.REFUTED:
        return verdict, reason
    return Conclusion.INCONCLUSIVE, f"{reason}, by rounds that prove nothing: try a quieter host"


def _of_failure(
    failure: Ending, fails_alone: bool | None, launches: Sequence[LaunchRecord]
) -> tuple[Conclusion, str]:
    """Judge a recommendation that failed while the default ran.

    Other programs, or the default that is in memory too, may take the time or memory that it
    needed. They cannot make its outputs wrong, nor raise the same exception twice.
    """
    how = f"{failure.outcome}: {failure.reason}"
    if failure.outcome not in CAN_PASS:
        return Conclusion.REFUTED, f"the recommendation fails here ({how})"
    if fails_alone is None:
        return Conclusion.INCONCLUSIVE, (
            f"the recommendation failed ({how}), and there was no time to launch it again by "
            "itself: give it more time"
        )
    if not fails_alone:
        return Conclusion.INCONCLUSIVE, (
            f"the recommendation failed once ({how}), and not when it was launched again by itself"
        )
    if failure.outcome in _FOR_WANT and (why := _disturbance(launches)):
        return Conclusion.INCONCLUSIVE, f"{why}, and the recommendation failed ({how})"
    return Conclusion.REFUTED, f"the recommendation fails here, by itself as well ({how})"


def _over_bounds(recommendation: Recommendation, launches: Sequence[LaunchRecord]) -> str:
    """Say which of its bounds the recommendation surely exceeds here; empty if none."""
    settings = Configuration.of({s.knob: s.value for s in recommendation.settings})
    found = beyond(launches, recommendation.bounds)
    exceeded = [why for c, why in found.items() if c.without(BATCH) == settings.without(BATCH)]
    return exceeded[0] if exceeded else ""


def _in_every_round(
    recommendation: Recommendation, read_backs: Sequence[list[ReadBack]]
) -> tuple[list[str], list[ReadBack]]:
    """Return the settings that some round lacked, with what such a round read, or the last one."""
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

    The effect of a variable may not be observable; a program's own setting is.
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


def against_claim(
    found: Gain | None, claimed: Interval | None, at_least: float | None = None
) -> tuple[Conclusion, str]:
    """Say what rounds make of the claim: faster, and not surely by less than claimed.

    at_least: then surely by that share of the claimed gain, and refuted only if surely by less.
    """
    if found is None:
        return Conclusion.INCONCLUSIVE, "too few rounds for an interval: give it more time"
    here, share = found.speedup, found.share
    if share is None or claimed is None:
        at_least, of_claim = None, ""
    else:
        of_claim = f"{share.point:.0%} of the claimed gain ({share.low:.0%} - {share.high:.0%})"
    if here.high <= 1:
        return Conclusion.REFUTED, "it is no faster than the default here"
    is_less = found.is_less
    if share is not None and at_least is not None:
        is_less = share.high < at_least
    if is_less and claimed is not None:
        faster = "faster, but" if here.low > 1 else "it gains less than was claimed:"
        asked = "" if at_least is None else f", at least {at_least:.0%} is asked for"
        return Conclusion.REFUTED, (
            f"{faster} {here.point:.2f}x here of the claimed {claimed.point:.2f}x, "
            f"{of_claim}{asked}"
        )
    if here.low <= 1:
        return (
            Conclusion.INCONCLUSIVE,
            "the interval contains 1: give it more time, or a quieter host",
        )
    if share is None:
        return Conclusion.CONFIRMED, "faster than the default, as claimed"
    if at_least is not None and share.low < at_least:
        advice = "give it more time, or a quieter host"
        if found.is_limited_by_claim:
            advice = "the claim itself is no more certain than that: more time does not help"
        return Conclusion.INCONCLUSIVE, (
            f"faster than the default, but the rounds do not show whether by at least "
            f"{at_least:.0%} of the claimed gain: {of_claim}; {advice}"
        )
    if found.is_more:
        return Conclusion.CONFIRMED, (
            "faster than the default, by more than was claimed, so that it may pay to tune here"
        )
    if at_least is not None:
        return Conclusion.CONFIRMED, f"faster than the default, by {of_claim}"
    if share.low < HALF:
        return Conclusion.CONFIRMED, (
            f"faster than the default, and not surely by less than claimed: {of_claim}"
        )
    return Conclusion.CONFIRMED, f"faster than the default, as claimed: {of_claim}"


def is_busy(launches: Iterable[LaunchRecord]) -> bool:
    """Tell whether too many slices were disturbed to compare these rounds with others."""
    return disturbed_share(launches) > MOSTLY_DISTURBED


def _disturbance(launches: Sequence[LaunchRecord]) -> str:
    """Say that the host was busy, with an example; empty if it was not."""
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
    """Say that the default is `off` times better or worse than before; empty if it is not."""
    if here is None or not there or 1 / off <= here / there <= off:
        return ""
    return (
        f"the default is at {figure(here)} {unit} here, "
        f"and was at {figure(there)} where it was confirmed"
    )
