"""The knobs of the fake framework."""

from __future__ import annotations

from tuner.record.numerics import Level
from tuner.space.knob import AT_LEAST_1, Applies, Knob, one_of

KNOBS = (
    Knob(
        "fake.layout",
        Applies.MODEL,
        "layout of the fake model",
        domain=one_of("plain", "blocked", "packed"),
    ),
    Knob(
        "fake.compile",
        Applies.MODEL,
        "compiler of the fake model",
        domain=one_of("off", "fast", "frozen"),
        compiles=True,
    ),
    Knob("fake.streams", Applies.PROCESS, "streams of the fake model", domain=AT_LEAST_1),
    Knob(
        "fake.precision",
        Applies.MODEL,
        "precision of the fake model",
        level=Level.REDUCED,
        domain=one_of("fp32", "bf16"),
    ),
)
