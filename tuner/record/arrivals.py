"""When the requests of an offer arrive: known to the tool and to every instance beforehand."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tuner.record.load import Offer


def at_random(seed: int, n_requests: int) -> npt.NDArray[np.float64]:
    """Return moments of random (Poisson) arrivals at one per second on average, ascending.

    Those of fewer requests are the first ones of more.
    """
    found: npt.NDArray[np.float64] = np.cumsum(
        np.random.default_rng(seed).exponential(size=n_requests)
    )
    return found


def due_of(offer: Offer) -> npt.NDArray[np.float64]:
    """Return when requests are due, in seconds from the beginning, ascending."""
    if offer.moments:
        return np.array(offer.moments) / offer.rate
    return at_random(offer.seed, offer.most_requests) / offer.rate
