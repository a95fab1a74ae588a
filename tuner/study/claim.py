"""The claim about one winner class, and its reason."""

from __future__ import annotations

import msgspec

from tuner.measurement.confirmation import LOOKS, WORTH_HAVING
from tuner.record.configuration import Configuration
from tuner.record.interval import Interval
from tuner.record.noisiness import TOO_HIGH
from tuner.record.result import Verdict

ALONE = "which the search's own finalist did not reach"
AHEAD = "and it is surely faster than the class's own finalist"
"""The reason of a claim in which a baseline replaces the finalist."""
AHEAD_OF_EARLIER = "and it is surely faster than what was confirmed before the study went on"


class Claim(msgspec.Struct, frozen=True):
    """A claim about one winner class."""

    configuration: Configuration
    verdict: Verdict
    reason: str
    n_rounds: int = 0
    speedup: Interval | None = None
    at_reference_batch: Interval | None = None
    batch_gain: float | None = None
    value: Interval | None = None
    rate: Interval | None = None
    """Items per second."""
    is_unjustified: bool = False
    """Whether it is faster, and has a costly setting that nothing shows to be needed."""
    disturbed: float = 0.0
    """Share of the slices behind it, the default's included, that something else disturbed."""


def of_misses(
    configuration: Configuration, own: tuple[int, int], default: tuple[int, int]
) -> Claim | None:
    """Return the claim if a latency bound was missed in a round; None if it never was.

    A missed bound gives no rate: a ratio exists only if both met the bound in every round. own,
    default: the number of rounds in which the arm, and the default, met the bound, and the number
    in which they took part.
    """
    met, n = own
    default_met, n_default = default
    if met < n:
        reason = f"it kept within the bound in {met} of {n} rounds"
        return Claim(configuration, "ambiguous", reason, met)
    if default_met == n_default:
        return None
    by_default = f"the default kept within the bound in {default_met} of {n_default} rounds"
    if default_met or n < LOOKS[0]:
        return Claim(configuration, "ambiguous", f"{by_default}: there is no speedup", n)
    reason = f"it kept within the bound in all of {n} rounds, and {by_default}"
    return Claim(configuration, "faster", reason, n)


def of_silence(configuration: Configuration, own: tuple[int, int]) -> Claim | None:
    """Return the claim if the default answers no request; None for an arm that was in no round.

    own: the number of rounds in which the arm met the bound, and in which it took part.
    """
    met, n = own
    if n == 0:
        return None
    if met < n:
        return of_misses(configuration, own, (0, 0))
    reason = f"it kept within the bound in all of {n} rounds, and the default answers no request"
    if n < LOOKS[0]:
        return Claim(configuration, "ambiguous", f"{reason}; a claim needs {LOOKS[0]} rounds", n)
    return Claim(configuration, "faster", reason, n)


def explain(verdict: Verdict, floor: float) -> str:
    """Write the evidence of a verdict."""
    height = f"of {floor:.1%}" if floor <= TOO_HIGH else "that these few rounds allow"
    match verdict:
        case "faster":
            return f"the interval is above 1 and the point above the noise floor {height}"
        case "keep_default" if floor > WORTH_HAVING:
            return f"the interval leaves no room for more than {WORTH_HAVING:.0%}"
        case "keep_default":
            return f"the interval leaves no room for more than the noise floor of {floor:.1%}"
    undecided = f"the interval does not decide it against a noise floor {height}"
    return undecided + (f", nor against {WORTH_HAVING:.0%}" if floor > WORTH_HAVING else "")
