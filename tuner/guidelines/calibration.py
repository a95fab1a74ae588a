"""The error of rules beyond what they know themselves, and how often their intervals held.

Rules are learned from designed parts on a few hosts. The gain of a whole combination in a new
launch, for a model of another family and on another host, varies by more than those parts show:
hosts differ, similar families diverge, and settings do not quite add up.
benchmarks/guideline_coverage.py estimates this from rounds of such combinations, and writes the
file that ships.
"""

from __future__ import annotations

import functools

import msgspec

from tuner.galleries import CALIBRATION


class Calibration(msgspec.Struct, frozen=True):
    """The result of new rounds for predictions."""

    unexplained_sd: float
    """SD (logarithm) of a combination's gain, beyond the errors and spreads of its rules."""
    held: int
    """Gains that the 90 % interval held, with the SD of other hosts and other families."""
    n_gains: int
    """That were foretold: of combinations that rules recommended, without the model's family."""
    rounds: list[str]
    """The folders of the rounds, below benchmarks/rounds."""
    made_by: str
    """The command."""


@functools.cache
def shipped() -> Calibration:
    """Return the calibration that ships."""
    return msgspec.json.decode(CALIBRATION.read_bytes(), type=Calibration)
