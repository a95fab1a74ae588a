"""Tables written by hand, so that the truth is known."""

import itertools
import math
import random

from benchmarks.table import Cut, Recording, Table, Taken
from tuner.record.configuration import Configuration, Value

CHOICES: dict[str, tuple[Value, ...]] = {
    "launch.allocator": ("glibc", "tcmalloc", "jemalloc", "mimalloc"),
    "env.OMP_NUM_THREADS": (2, 1),
    "env.OMP_WAIT_POLICY": ("unset", "ACTIVE", "PASSIVE"),
    "torch.dtype": ("fp32", "bf16"),
}
BEST: dict[str, Value] = {
    "launch.allocator": "mimalloc",
    "env.OMP_WAIT_POLICY": "ACTIVE",
    "torch.dtype": "bf16",
}


def level(settings: dict[str, Value]) -> float:
    """Return the true log rate."""
    return (
        math.log(100)
        + {"tcmalloc": 0.1, "jemalloc": 0.05, "mimalloc": 0.2}.get(
            str(settings.get("launch.allocator")), 0.0
        )
        + (-0.3 if "env.OMP_NUM_THREADS" in settings else 0.0)
        + {"ACTIVE": 0.15, "PASSIVE": -0.1}.get(str(settings.get("env.OMP_WAIT_POLICY")), 0.0)
        + (0.25 if "torch.dtype" in settings else 0.0)
    )


def recorded(
    sd: float = 0.003, n_launches: int = 4, drift: float = 0.0, failing: str = ""
) -> Table:
    """Return a table as the recorder writes it.

    With one thread no waiting policy takes effect. drift: log rate by which the machine swings.
    failing: the allocator with which everything crashes.
    """
    draw = random.Random(0)
    same_as: dict[tuple[Value, ...], Configuration] = {}
    launches: dict[Configuration, list[Taken]] = {}
    for values in itertools.product(*CHOICES.values()):
        settings = {k: v for (k, c), v in zip(CHOICES.items(), values, strict=True) if v != c[0]}
        if settings.get("env.OMP_NUM_THREADS") == 1:
            settings.pop("env.OMP_WAIT_POLICY", None)
        configuration = same_as[values] = Configuration.of(settings)
        launches[configuration] = []
    at_s = 0.0
    pacer = []
    for _ in range(n_launches):
        for configuration in draw.sample(list(launches), len(launches)):
            swing = drift * math.sin(at_s / 100)
            pacer.append(Cut(at_s, math.exp(math.log(100) + swing)))
            settings = configuration.as_dict()
            if failing and settings.get("launch.allocator") == failing:
                found = Taken(0, at_s, 2.0, outcome="crashed", reason="SIGSEGV")
            else:
                mean = level(settings) + swing + draw.gauss(0, sd)
                cuts = tuple(
                    Cut(at_s + 3 + k, math.exp(mean + draw.gauss(0, sd / 2))) for k in range(3)
                )
                found = Taken(0, at_s, 3.0, cuts, 0.5, 0.2)
            launches[configuration].append(found)
            at_s += found.total_s
    recording = Recording(
        name="written",
        title="written by hand",
        model="fc",
        framework="torch",
        batch=4,
        objective="rate",
        host="nowhere",
        versions={},
        identity={"hardware": "x", "versions": "y", "space": "z"},
        dates=["2026-01-01"],
        baselines={"a_guide": {"launch.allocator": "tcmalloc"}},
        pacer=[pacer],
    )
    return Table("written", CHOICES, same_as, launches, recording)
