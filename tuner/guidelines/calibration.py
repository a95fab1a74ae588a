"""By how much rules err beyond what they know of themselves, and how often their intervals held.

Rules are learnt from designed parts on a few hosts. What a fresh launch of a whole combination
gains, in a model of another family and on another host, differs by more than those parts show:
hosts differ, families that looked alike do not stay so, and settings do not quite add up.
benchmarks/guideline_coverage.py estimates this from rounds of such combinations, and writes the
file that ships.
"""

from __future__ import annotations

import functools

import msgspec

from tuner.galleries import CALIBRATION


class Calibration(msgspec.Struct, frozen=True):
    """What fresh rounds say of predictions."""

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
