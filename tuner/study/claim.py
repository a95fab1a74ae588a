"""What is said of one class, and why."""

from __future__ import annotations

import msgspec

from tuner.measurement.confirmation import LOOKS, WORTH_HAVING
from tuner.record.configuration import Configuration
from tuner.record.interval import Interval
from tuner.record.noisiness import TOO_HIGH
from tuner.record.result import Verdict

ALONE = "which the search's own finalist did not reach"
AHEAD = "and it is surely faster than the class's own finalist"
"""Of what is said of a class where a baseline takes the finalist's place."""
AHEAD_OF_EARLIER = "and it is surely faster than what was confirmed before the study went on"


class Claim(msgspec.Struct, frozen=True):
    """What is said of one class."""

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
    """Say what holds where a bound on the latency was missed in a round; None where it was not.

    What was missed is no number: there is a ratio only where both kept within it every time. own,
    default: in how many rounds the arm, and the default, kept within it, and took part.
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
        return Claim(configuration, "ambiguous", f"{by_default}: no ratio says what is gained", n)
    reason = f"it kept within the bound in all of {n} rounds, and {by_default}"
    return Claim(configuration, "faster", reason, n)


def of_silence(configuration: Configuration, own: tuple[int, int]) -> Claim | None:
    """Say what holds where the default answers no request at all; None of an arm in no round.

    own: in how many rounds the arm kept within the bound, and took part.
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
    """Say in words what a verdict rests on."""
    height = f"of {floor:.1%}" if floor <= TOO_HIGH else "that these few rounds allow"
    match verdict:
        case "faster":
            return f"the interval lies above 1 and the point above the noise floor {height}"
        case "keep_default" if floor > WORTH_HAVING:
            return f"the interval leaves no room for more than {WORTH_HAVING:.0%}"
        case "keep_default":
            return f"the interval leaves no room for more than the noise floor of {floor:.1%}"
    undecided = f"the interval does not decide it against a noise floor {height}"
    return undecided + (f", nor against {WORTH_HAVING:.0%}" if floor > WORTH_HAVING else "")
