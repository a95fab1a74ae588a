"""How the arms of the confirmation performed next to a busy neighbour."""

from __future__ import annotations

import math
import statistics

from tuner.measurement.confirmation import plain_interval
from tuner.measurement.estimates import kept, lead_under_contention
from tuner.record.configuration import Configuration
from tuner.record.result import BesideNeighbour
from tuner.study.claims import Claims
from tuner.study.evaluation import DEGRADED

_MIN_FOR_INTERVAL = 3
"""Rounds next to a neighbour; fewer have no interval."""


def beside_neighbour(claims: Claims, configuration: Configuration) -> BesideNeighbour | None:
    """Return how an arm performed next to the neighbour; None if it was not tried.

    Slices next to a neighbour scatter widely: only an interval shows that a winner degrades.
    """
    own_kept, default_kept, differences = [], [], []
    n_processes, objective = 0, claims.objective
    for arms in (*claims.rounds.launches, *claims.rounds.beside_neighbour):
        own, default = arms.get(configuration), arms.get(claims.default)
        if own is None or default is None or not own.contended or not default.contended:
            continue
        lead = lead_under_contention(own, default, objective)
        if lead is None:
            continue
        n_processes = own.n_neighbours
        own_kept.append(kept(own, objective))
        default_kept.append(kept(default, objective))
        differences.append(lead)
    if not differences:
        return None
    interval, collapses = None, False
    if len(differences) >= _MIN_FOR_INTERVAL:
        interval = plain_interval(differences)
        shares = plain_interval([a - b for a, b in zip(own_kept, default_kept, strict=True)])
        collapses = interval.high < 1 or shares.high < DEGRADED
    return BesideNeighbour(
        processes=n_processes,
        n_rounds=len(differences),
        kept=math.exp(statistics.fmean(own_kept)),
        speedup=math.exp(statistics.fmean(differences)),
        interval=interval,
        collapses=collapses,
    )
