"""Recorded noise (benchmarks/record_noise.py), and a tape that plays it from a random moment on."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tuner.launchers.clock import VirtualClock


class RecordedSlice(msgspec.Struct, frozen=True):
    """A slice as it was measured."""

    at: float
    rate: float
    dirty: tuple[str, ...]


class RecordedLaunch(msgspec.Struct, frozen=True):
    """A launch as it was measured: its slices, and what it cost."""

    fixed_s: float
    slice_s: float
    slices: tuple[RecordedSlice, ...]

    def slice(self, k: int) -> RecordedSlice:
        """Return a slice; after the last one, from the first on again."""
        return self.slices[k % len(self.slices)]

    def level(self) -> float:
        """Return the median log rate."""
        return statistics.median(math.log(s.rate) for s in self.slices)


class Recording(msgspec.Struct, frozen=True):
    """Rounds of identical launches that took turns."""

    host: str
    date: str
    model: str
    framework: str
    busy: bool
    rounds: tuple[tuple[RecordedLaunch, ...], ...]


def read_recording(path: Path) -> Recording:
    """Read what benchmarks/record_noise.py wrote."""
    return msgspec.json.decode(path.read_bytes(), type=Recording)


class Tape:
    """A recording that is played from a random moment on, round after round."""

    def __init__(self, recording: Recording, seed: int) -> None:
        self._rounds = recording.rounds
        self._random = random.Random(seed)
        self._lengths = [
            sum(launch.fixed_s + launch.slice_s * len(launch.slices) for launch in each)
            for each in self._rounds
        ]
        self.clock = VirtualClock()
        self._offset_s = self._random.uniform(0, sum(self._lengths))
        self._sides: dict[int, Iterator[RecordedLaunch]] = {}
        self.round = self.pass_ = 0

    def seek(self) -> None:
        """Go to the recorded moment of the present one."""
        at = (self._offset_s + self.clock.now_s()) % sum(self._lengths)
        for number, length in enumerate(self._lengths):
            if at < length:
                n_passes = len(self._rounds[number][0].slices)
                self.round, self.pass_ = number, int(at / length * n_passes)
                return
            at -= length

    def any_launch(self) -> RecordedLaunch:
        """Return a launch of the present recorded round, at random."""
        return self._random.choice(self._rounds[self.round])

    def side_by_side(self, round_number: int) -> RecordedLaunch:
        """Return a launch for one more arm of a round: each a different one, while there are."""
        if round_number not in self._sides:
            self.seek()
            self._sides = {round_number: self._launches_from(self.round)}
        return next(self._sides[round_number])

    def _launches_from(self, number: int) -> Iterator[RecordedLaunch]:
        """Yield the launches of a recorded round in random order, then of the next."""
        while True:
            yield from self._random.sample(self._rounds[number], len(self._rounds[number]))
            number = (number + 1) % len(self._rounds)

    def pacer_slice(self) -> RecordedSlice:
        """Return what the pacer measures now: the first launch's swing, at the round's level."""
        launches = self._rounds[self.round]
        found = launches[0].slice(self.pass_)
        level = statistics.fmean(launch.level() for launch in launches)
        rate = math.exp(math.log(found.rate) - launches[0].level() + level)
        return RecordedSlice(found.at, rate, found.dirty)
