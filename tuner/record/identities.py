"""Where two hosts' identities differ, part by part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import json


def differing(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return both values of what differs, by "part" or "part, name"; None where one lacks it."""
    mine, other = _flat(old), _flat(new)
    names = dict.fromkeys((*mine, *other))
    return {n: (mine.get(n), other.get(n)) for n in names if mine.get(n) != other.get(n)}


def _flat(identity: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    as_in_a_file = json.decode(json.encode(identity))  # sequences as lists
    for part, value in as_in_a_file.items():
        if isinstance(value, dict):
            found |= {f"{part}, {name}": each for name, each in value.items()}
        else:
            found[part] = value
    return found


def said(value: object) -> str:
    """Say a value of an identity."""
    if value is None or value == []:
        return "none"
    if isinstance(value, list) and isinstance(value[0], dict):
        return "; ".join(map(card, value))  # the host's
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def card(gpu: Mapping[str, Any]) -> str:
    """Say which card it is, with what two of one name may differ in; gpu: a part of an identity."""
    parts = [
        gpu["name"],
        f"{gpu['memory_bytes'] / 2**30:.1f} GiB",
        f"compute capability {gpu['compute_capability']}",
        f"driver {gpu['driver']}",
    ]
    if gpu["power_limit_w"]:
        parts.append(f"limit {gpu['power_limit_w']:.0f} W")
    return ", ".join(parts)
