"""Heavy tails for replayed launches: now and then one is much slower than its like, by chance."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import msgspec


class Tails(msgspec.Struct, frozen=True):
    """How many launches are slow by chance, whatever their configuration, and by which factor."""

    share: float
    least: float = 1.3
    most: float = 2.0

    def draw(self, seed: int) -> Iterator[float]:
        """Yield by how much (log) one launch after the other is slowed; 0 for most of them."""
        draw = random.Random(f"tails {seed}")
        while True:
            is_slow = draw.random() < self.share
            yield math.log(draw.uniform(self.least, self.most)) if is_slow else 0.0


NO_TAILS = Tails(0.0)
