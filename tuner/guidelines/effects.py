"""The effect of each setting in one study's designed part: generalised least squares.

The logarithms of the cells' ratios are sums of the effects of their settings and of interacting
pairs. Ratios of one round share their default, so that their errors are correlated: with the
variance s^2 of a launch their covariance is s^2 (I + J) within a round. s^2 comes from the
residuals over all studies of a host: a single study has hardly any.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from tuner.record.designed import DesignedCell, DesignedSection

_ESTIMABLE = 1e-6
_LEAST_SD = 1e-3
_PAIR_SD = 0.1
"""SD (logarithm) of a pair's interaction that failed cells hide."""


class Effect(msgspec.Struct, frozen=True):
    """The logarithm of a speed factor: of a setting, or of a pair beyond both of them."""

    name: str
    """A factor, or "a with b"."""
    value: float
    unit_variance: float
    """Its variance over that of a launch."""
    hidden_variance: float = 0.0
    """The part of the error that is due to interactions that could not be separated."""

    def error(self, launch_variance: float) -> float:
        """Return its standard error."""
        return math.sqrt(self.unit_variance * launch_variance + self.hidden_variance)


class Fit(msgspec.Struct, frozen=True):
    """The separable effects of a study, and the residuals."""

    effects: tuple[Effect, ...]
    residual: float
    """Weighted sum of squares; over `freedom` an estimate of a launch's variance."""
    freedom: int
    is_whole: bool = True
    """Whether interactions were separated: otherwise residuals are not the noise of launches alone.
    """


def fit(design: DesignedSection) -> Fit:
    """Estimate the effects of a designed part, without those that failed cells hide.

    If too few cells are left for everything, interactions are not estimated, and count as part of
    the others' errors.
    """
    measured = [c for c in design.cells if c.log_ratio is not None and c.same_as is None]
    factors = list(dict.fromkeys(name for cell in measured for name in cell.factors))
    pairs = [(a, b) for a, b in design.pairs if a in factors and b in factors]
    names = [*factors, *(f"{a} with {b}" for a, b in pairs)]
    if not measured or not names:
        return Fit((), 0.0, 0)
    table = np.array([_row(cell, factors, pairs) for cell in measured])
    values = np.array([cell.log_ratio for cell in measured], dtype=float)
    whiten = np.linalg.inv(np.linalg.cholesky(_covariance(measured)))
    table, values = whiten @ table, whiten @ values
    hidden = np.zeros((len(measured), 0))
    is_whole = True
    if np.linalg.matrix_rank(table) < len(names):
        is_whole = False
        names, table, hidden = names[: len(factors)], *np.hsplit(table, [len(factors)])
    inverse = np.linalg.pinv(table.T @ table)
    found = inverse @ table.T @ values
    strays = inverse @ table.T @ hidden
    left = values - table @ found
    # an effect is told apart where its unit vector lies in the space of the rows
    resolution = inverse @ table.T @ table
    effects = tuple(
        Effect(
            name,
            float(found[i]),
            float(inverse[i, i]),
            _PAIR_SD**2 * float(strays[i] @ strays[i]),
        )
        for i, name in enumerate(names)
        if math.isclose(resolution[i, i], 1.0, abs_tol=_ESTIMABLE)
    )
    rank = int(np.linalg.matrix_rank(table))
    return Fit(effects, float(left @ left), len(measured) - rank, is_whole)


def launch_variance(fits: Sequence[Fit]) -> tuple[float, int]:
    """Return the variance of a launch over studies of one host, and its degrees of freedom.

    From studies with separated interactions, if there are any. Infinite if there are no residuals
    to estimate it from; never less than on the quietest host.
    """
    used = [each for each in fits if each.is_whole] or fits
    freedom = sum(each.freedom for each in used)
    if not freedom:
        return math.inf, 0
    return max(_LEAST_SD**2, sum(each.residual for each in used) / freedom), freedom


def _row(
    cell: DesignedCell, factors: Sequence[str], pairs: Sequence[tuple[str, str]]
) -> list[float]:
    here = set(cell.factors)
    return [
        *(float(name in here) for name in factors),
        *(float(a in here and b in here) for a, b in pairs),
    ]


def _covariance(measured: Sequence[DesignedCell]) -> np.ndarray:
    """Return the covariance of the ratios, in variances of a launch: a default is shared."""
    rounds = np.array([cell.round for cell in measured])
    shared: np.ndarray = np.eye(len(measured)) + (rounds[:, None] == rounds[None, :])
    return shared
