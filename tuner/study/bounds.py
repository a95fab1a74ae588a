"""Configurations that exceed a bound of the user.

The memory of a launch varies a little, so that one launch beyond a bound decides nothing. The
confidence interval of the configuration's mean has to lie beyond it.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
from scipy.special import stdtrit

from tuner.record.configuration import Configuration
from tuner.record.launch import LaunchRecord
from tuner.record.objective import Bound

_PRIOR_SD = 0.02
"""SD of the logarithm of a launch's memory, before launches tell: peaks of resident memory of
repeated launches differ by 1 to 2 %."""
_PRIOR_FREEDOM = 4
"""Degrees of freedom of that prior."""
_LEVEL = 0.05
"""Two-sided level at which a bound counts as exceeded."""


def beyond(launches: Iterable[LaunchRecord], bounds: Sequence[Bound]) -> dict[Configuration, str]:
    """Return, for each configuration that surely exceeds a bound, the bound in words."""
    records = list(launches)
    found: dict[Configuration, str] = {}
    for bound in bounds:
        figures: dict[Configuration, list[float]] = defaultdict(list)
        for record in records:
            if figure := bound.of(record):
                figures[record.request.configuration].append(math.log(figure))
        for configuration, logs in figures.items():
            sd, freedom = _scatter(logs)
            quantile = -float(stdtrit(freedom, _LEVEL / 2))
            least = statistics.fmean(logs) - quantile * sd / math.sqrt(len(logs))
            if least > math.log(bound.most):
                words = (
                    f"{bound.in_words(math.exp(statistics.fmean(logs)))} is more than {bound.asked}"
                )
                found.setdefault(configuration, words)
    return found


def _scatter(logs: Sequence[float]) -> tuple[float, float]:
    """Return the SD of a launch's figure (log) with its freedom, by a configuration's own launches.

    Not by others': a compiler's cold start may take twice the memory of a warm one, which excuses
    no other configuration.
    """
    squares = _PRIOR_SD**2 * _PRIOR_FREEDOM
    if len(logs) > 1:
        squares += float(np.var(logs, ddof=1)) * (len(logs) - 1)
    freedom = _PRIOR_FREEDOM + len(logs) - 1
    return math.sqrt(squares / freedom), float(freedom)
