"""What conditions of rules may ask of a model and of the host that it runs on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tuner.record.guidelines import Fact
from tuner.record.workload import ModelCard, ModelFacts

_BEYOND, _BEYOND_CORES = 4.0, 2.0
"""Times by which a number may lie outside all that was measured before a model, or a host by its
cores, is unlike it."""
HOST, HOST_ISA, HOST_CORES = HOST_FACTS = ("host", "host_isa", "host_cores")
"""The host's name and its properties."""
_ISA = {
    "amx_bf16": "AMX",
    "avx512_bf16": "AVX-512 and bf16",
    "avx512f": "AVX-512",
    "avx2": "AVX2",
    "svebf16": "SVE and bf16",
    "bf16": "Neon and bf16",
    "asimd": "Neon",
}
"""The first of these flags that a host has identifies it (host/identity.py)."""


def model_facts(
    kind: str,
    batch: int,
    graph_width: float | None,
    parameter_bytes: int,
    macs: int | None,
    call_s: float | None,
) -> dict[str, Fact]:
    """Return the facts of a model at a batch, without those that are unknown.

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


def facts_of(card: ModelCard, model: ModelFacts, identity: Mapping[str, Any]) -> dict[str, Fact]:
    """Return the facts of a model that was built, at its reference batch, and of a host."""
    own = model_facts(
        card.kind,
        card.reference_batch,
        model.graph_width,
        model.parameter_bytes,
        model.macs,
        model.call_s,
    )
    return own | host_facts(identity)


def host_facts(identity: Mapping[str, Any]) -> dict[str, Fact]:
    """Return the facts of a host, by what identifies it (host/identity.py)."""
    return {
        HOST: host_in_words(identity),
        HOST_ISA: _isa_of(identity),
        HOST_CORES: float(identity["physical_cores"]),
    }


def host_in_words(identity: Mapping[str, Any]) -> str:
    """Name a host as guidelines do, by what identifies it (host/identity.py)."""
    model, cores = identity["processor"]["model"], identity["physical_cores"]
    return f"{model} with {_isa_of(identity)}, {cores} cores"


def _isa_of(identity: Mapping[str, Any]) -> str:
    processor = identity["processor"]
    return next((name for flag, name in _ISA.items() if flag in processor["isa"]),
                str(processor["arch"]))  # fmt: skip


def unlike(facts: Mapping[str, Fact], known: Iterable[Mapping[str, Fact]]) -> list[str]:
    """Return the facts of a model that nothing known comes near to."""
    others = list(known)
    found = []
    for name, own in facts.items():
        values = [other[name] for other in others if name in other]
        if not values and name in HOST_FACTS:
            continue  # it was not noted
        if isinstance(own, str):
            is_near = own in values
        else:
            numbers = [value for value in values if not isinstance(value, str)]
            beyond = _BEYOND_CORES if name == HOST_CORES else _BEYOND
            is_near = bool(numbers) and min(numbers) / beyond <= own <= max(numbers) * beyond
        if not is_near:
            found.append(name)
    return found
