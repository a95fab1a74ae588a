"""Where two hosts' identities differ, part by part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import json


def plain(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return an identity as a file holds it: without what is absent, sequences as lists."""

    def stripped(part: Any) -> Any:
        if isinstance(part, dict):
            return {key: stripped(value) for key, value in part.items() if value is not None}
        return part

    found: dict[str, Any] = stripped(json.decode(json.encode(identity)))
    return found


def differing(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return both values of what differs, by "part" or "part, name"; None where one lacks it."""
    mine, other = _flat(plain(old)), _flat(plain(new))
    names = dict.fromkeys((*mine, *other))
    return {n: (mine.get(n), other.get(n)) for n in names if mine.get(n) != other.get(n)}


def _flat(identity: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part, value in identity.items():
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
