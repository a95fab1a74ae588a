"""Moments, as files hold them."""

from __future__ import annotations

from datetime import UTC, datetime


def utc_now() -> str:
    """Return the moment (UTC, ISO 8601)."""
    return datetime.now(UTC).isoformat(timespec="seconds")
