"""The true speed of every configuration of the fake, and the faults that settings provoke."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping

import msgspec
import numpy as np

from tuner.record.configuration import Value

CHOICES: dict[str, tuple[Value, ...]] = {
    "env.FAKE_THREADS": (2, 1, 4, 8),
    "launch.allocator": ("glibc", "tcmalloc", "jemalloc"),
    "fake.streams": (1, 2),
    "fake.layout": ("plain", "blocked", "packed"),
    "fake.compile": ("off", "fast", "frozen"),
    "fake.precision": ("fp32", "bf16"),
    "workload.batch": (4, 16),
}
"""Every knob that the surface knows; the first value is the default."""


INSTANCES = "launch.instances"


FAULTS = ("crash", "exit", "exception", "hang", "hang_in_call", "memory", "exhaust",
          "wrong_output", "nan", "misshapen", "drifting", "ignored", "garbage", "daemon",
          "slow_start", "lonely", "shy")  # fmt: skip


def n_instances(settings: Mapping[str, Value]) -> int:
    """Return how many instances these settings ask for."""
    return int(settings.get(INSTANCES, 1))


def draw(*key: object) -> np.random.Generator:
    """Return a generator of its own for each key, the same in every process."""
    digest = hashlib.sha256(repr(key).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "big"))


class Surface(msgspec.Struct, frozen=True):
    """The true log rate of every configuration: effects of single knobs and one interaction.

    flat: no setting changes the speed, so that nothing can beat the default. neutral: "KNOB;..." of
    settings that change nothing. faults: "KNOB=VALUE:FAULT;..." with a fault of FAULTS; "rank"
    stands for the instance's rank. doubling: log gain of the summed rate with every doubling of the
    instances. bf16_steps: factor of the steps that training in bf16 takes to a quality.
    """

    seed: int = 0
    noise: float = 0.02
    drift: float = 0.05
    flat: bool = False
    faults: str = ""
    start_s: float = 0.0
    neutral: str = ""
    doubling: float = 0.0
    base_rate: float = 100.0
    bf16_steps: float = 1.0

    def effects(self) -> dict[str, dict[Value, float]]:
        """Return per knob and value the log gain over the knob's worst value.

        The best value of a knob leads the next by at least 6 %; which one it is depends on the
        seed. Thread counts fall off monotonically on both sides of the best one.
        """
        gains: dict[str, dict[Value, float]] = {}
        for knob, values in CHOICES.items():
            random = draw("surface", self.seed, knob)
            if self.flat or knob in self.neutral.split(";"):
                gains[knob] = dict.fromkeys(values, 0.0)
            elif knob == "env.FAKE_THREADS":
                ordered = sorted(values)
                best = int(random.integers(len(ordered)))
                step = float(random.uniform(0.08, 0.25))
                gains[knob] = {v: -step * abs(i - best) for i, v in enumerate(ordered)}
            else:
                lead, rest = random.uniform(0.06, 0.35), random.uniform(-0.3, 0, len(values))
                winner = int(random.integers(len(values)))
                gains[knob] = {
                    v: float(lead) if i == winner else float(rest[i]) for i, v in enumerate(values)
                }
        return gains

    def log_rate(self, settings: Mapping[str, Value]) -> float:
        """Return the true natural logarithm of items per second, of all instances together."""
        gains = self.effects()
        full = {knob: settings.get(knob, values[0]) for knob, values in CHOICES.items()}
        total = math.log(self.base_rate) + sum(gains[k].get(v, 0.0) for k, v in full.items())
        if not self.flat and full["fake.compile"] == "frozen" and full["fake.layout"] == "blocked":
            total += 0.04
        return total + self.doubling * math.log2(n_instances(settings))

    def fault_of(self, settings: Mapping[str, Value]) -> str:
        """Return the fault that these settings provoke, or an empty string."""
        for rule in filter(None, self.faults.split(";")):
            condition, _, fault = rule.rpartition(":")
            knob, _, value = condition.partition("=")
            default = CHOICES.get(knob, ("",))[0]
            if str(settings.get(knob, default)) == value:
                return fault
        return ""
