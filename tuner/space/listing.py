"""The content of a space, to be listed and counted."""

from __future__ import annotations

import math
from typing import Any

from tuner.record.configuration import Configuration, Value
from tuner.record.winner_class import WinnerClass
from tuner.space.catalogue import narrowest_class
from tuner.space.resolved_knob import ResolvedKnob
from tuner.space.space import Space


def upper_size(space: Space) -> int:
    """Return the number of combinations before canonicalisation."""
    return math.prod(len(knob.choices) for knob in space.knobs)


def choices_within(space: Space, winner_class: WinnerClass) -> dict[str, tuple[Value, ...]]:
    """Return the choices of the searched knobs that a winner class allows."""
    return {
        knob.id: knob.choices if _allows(winner_class, knob) else (knob.default,)
        for knob in space.searched
    }


def describe(space: Space) -> list[dict[str, Any]]:
    """Return the space as plain data: what identity and listings are made of."""
    return [
        {
            "knob": knob.id,
            "applies": str(knob.knob.applies),
            "default": knob.default,
            "choices": list(knob.choices),
            "when": knob.when,
        }
        for knob in space.knobs
    ]


def _allows(winner_class: WinnerClass, knob: ResolvedKnob) -> bool:
    order = list(WinnerClass)
    narrowest = narrowest_class(Configuration(((knob.id, True),)))
    return order.index(narrowest) <= order.index(winner_class)
