"""Made-up launches: a function states their speed, a seed their noise (a source of recorded.py)."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from tuner.launchers.clock import VirtualClock
from tuner.launchers.recorded import Played, PlayedSlice
from tuner.record.configuration import Configuration
from tuner.record.launch import Purpose
from tuner.record.outcome import Ending


class MadeUp:
    """A source of made-up launches: a function states their speed, a seed their noise."""

    def __init__(
        self,
        log_rate: Callable[[Configuration], float],
        *,
        seed: int = 0,
        launch_sd: float = 0.0,
        slice_sd: float = 0.0,
        drift: Callable[[float], float] = lambda now_s: 0.0,
        fault: Callable[[Configuration], Ending | None] = lambda configuration: None,
        wrong: Callable[[Configuration], Ending | None] = lambda configuration: None,
        n_calls: int = 0,
        start_s: float = 1.0,
        slice_s: float = 0.3,
        check_s: float = 0.1,
        clock: VirtualClock | None = None,
    ) -> None:
        """Make a source up.

        log_rate: the logarithm of a configuration's items per second. launch_sd, slice_sd: standard
        deviations of that logarithm from launch to launch, and from slice to slice of a launch.
        drift: what the host adds to it at a time. fault: how a launch of a configuration fails,
        before its first slice; wrong: how it fails when its outputs are checked. n_calls: the
        number of calls of a slice that are timed one by one, each as noisy as a slice. start_s,
        slice_s, check_s: the cost of the steps of a launch. clock: that of other sources, to share
        it.
        """
        self.clock = clock or VirtualClock()
        self.log_rate = log_rate
        self.launch_sd = launch_sd
        self.slice_sd = slice_sd
        self.drift = drift
        self.fault = fault
        self.wrong = wrong
        self.n_calls = n_calls
        self.start_s, self.slice_s, self.check_s = start_s, slice_s, check_s
        self.random = random.Random(seed)

    def launch(self, configuration: Configuration, purpose: Purpose, round_number: int) -> Played:
        return _MadeUpLaunch(self, configuration)

    def idle(self) -> tuple[str, ...]:
        return ()


class _MadeUpLaunch:
    def __init__(self, source: MadeUp, configuration: Configuration) -> None:
        self._source = source
        self._level = source.log_rate(configuration) + source.random.gauss(0, source.launch_sd)
        self.fixed_s, self.check_s = source.start_s, source.check_s
        at_start = source.fault(configuration)
        self.failure = at_start or source.wrong(configuration)
        self.has_slices, self.memory_bytes = at_start is None, 0

    def slice(self) -> PlayedSlice:
        source = self._source
        level = self._level + source.drift(source.clock.now_s())
        rate = math.exp(level + source.random.gauss(0, source.slice_sd))
        calls = [math.exp(source.random.gauss(0, source.slice_sd)) for _ in range(source.n_calls)]
        mean = sum(calls) / max(1, len(calls))
        return PlayedSlice(rate, (), source.slice_s, tuple(each / mean for each in calls))
