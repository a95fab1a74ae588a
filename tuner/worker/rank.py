"""A process that trains a model together with the one that is measured, and follows it.

    python -m tuner.worker.rank NUMBER N FOLDER CPU,CPU,...

The first line of the standard input is the order with which that one began; each of the others is
a step, or what it does between steps. It ends with that input.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgspec

from tuner.record.protocol import Begin
from tuner.worker.frameworks.torch.ranks import Rank
from tuner.worker.frameworks.torch.training import TorchTraining
from tuner.worker.instance_barrier import Orders
from tuner.worker.training import TrainingSession


class Follower(TrainingSession):
    """A launch that does as the first process tells it."""

    def _start_others(self, order: Begin) -> None:
        """Start none."""

    def follow(self, rank: Callable[[Any], Rank]) -> None:
        """Do what the lines of the standard input say."""
        work = cast("TorchTraining", self.framework.work)
        work.ranks = ranks = rank(self.framework.build)
        step: Callable[[], Any] | None = None
        with work.running():
            for line in sys.stdin.buffer:
                match line.decode().split():
                    case ["bind"]:
                        step = work.program(ranks.bound())
                    case ["quiet"]:
                        work.quiet()
                    case ["step"] if step is not None:
                        step()
                    case ["learn", n_steps] if step is not None:
                        work.learn(step, int(n_steps))
                    case words:
                        raise ValueError(f"not an order: {words}")


def main() -> None:
    """Build the model as the order says, and follow."""
    os.sched_setaffinity(0, map(int, sys.argv[4].split(",")))
    number, n, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    order = msgspec.json.decode(sys.stdin.buffer.readline(), type=Begin)
    session = Follower(lambda _: None, Orders(sys.stdin.buffer))
    session.begin(order)
    session.follow(lambda build: Rank(build.torch, number, n, folder))


if __name__ == "__main__":
    main()
