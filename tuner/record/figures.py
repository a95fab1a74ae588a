"""How a number is written for a person."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """Write seconds as 1:02:03 or 4:05."""
    whole = max(0, round(seconds))
    hours, rest = divmod(whole, 3600)
    minutes, secs = divmod(rest, 60)
    return f"{hours}:{minutes:02d}:{secs:02d}" if hours else f"{minutes}:{secs:02d}"


def figure(value: float) -> str:
    """Write a number with four digits that count; none of a usual size as a power of ten."""
    return f"{float(f'{value:.4g}'):,.10g}"
