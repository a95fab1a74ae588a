"""How a number is written for a person."""

from __future__ import annotations


def figure(value: float) -> str:
    """Write a number with four digits that count; none of a usual size as a power of ten."""
    return f"{float(f'{value:.4g}'):,.10g}"
