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
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
