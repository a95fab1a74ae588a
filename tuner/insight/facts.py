"""What conditions of rules may ask of a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tuner.record.guidelines import Fact
from tuner.record.workload import ModelCard, ModelFacts

_BEYOND = 4.0
"""Times by which a number may lie outside all that was measured before a model is unlike it."""


def model_facts(
    kind: str,
    batch: int,
    graph_width: float | None,
    parameter_bytes: int,
    macs: int | None,
    call_s: float | None,
) -> dict[str, Fact]:
    """Return the facts of a model at a batch; what is not known is not in them.

    macs: multiply-accumulates per sample. call_s: seconds of a warm call of the default.
    """
    facts: dict[str, Fact] = {"kind": kind, "batch": float(batch)}
    if graph_width:
        facts["graph_width"] = graph_width
    if parameter_bytes:
        facts["parameter_bytes"] = float(parameter_bytes)
    if macs:
        facts["macs_per_call"] = float(macs * batch)
        if parameter_bytes:
            facts["macs_per_byte"] = macs * batch / parameter_bytes
    if call_s:
        facts["call_s"] = call_s
    return facts


def facts_of(card: ModelCard, model: ModelFacts) -> dict[str, Fact]:
    """Return the facts of a model that was built, at its reference batch."""
    return model_facts(
        card.kind,
        card.reference_batch,
        model.graph_width,
        model.parameter_bytes,
        model.macs,
        model.call_s,
    )


def host_in_words(identity: Mapping[str, Any]) -> str:
    """Name a host as guidelines do, by what identifies it (host/identity.py)."""
    return f"{identity['processor']['model']}, {identity['physical_cores']} cores"


def unlike(facts: Mapping[str, Fact], known: Iterable[Mapping[str, Fact]]) -> list[str]:
    """Return the facts of a model that nothing known comes near to."""
    others = list(known)
    found = []
    for name, own in facts.items():
        values = [other[name] for other in others if name in other]
        if isinstance(own, str):
            is_near = own in values
        else:
            numbers = [value for value in values if not isinstance(value, str)]
            is_near = bool(numbers) and min(numbers) / _BEYOND <= own <= max(numbers) * _BEYOND
        if not is_near:
            found.append(name)
    return found
