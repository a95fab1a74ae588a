"""Messages between a driver and a host, as bytes: no class has to be known to pickle.

Paths in them are the driver's: a model of one's own must be at the same path on every host, as in a
shared folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from tuner.app.request import Request
from tuner.app.verify import VerifyRequest
from tuner.fleet.mirror import Piece


class Seen(msgspec.Struct, frozen=True, tag="seen"):
    """A host's description of itself."""

    name: str
    kind: str
    """The first digits of a fingerprint of all that makes a study another."""
    fingerprint: str
    """Of all that changes results (host/identity.py)."""
    summary: str
    tool_version: str
    versions: dict[str, str]
    missing: tuple[str, ...] = ()
    """The requested files that are missing."""


class Tune(msgspec.Struct, frozen=True, tag="tune"):
    """A study is to be carried out, or gone on with."""

    request: Request


class Verify(msgspec.Struct, frozen=True, tag="verify"):
    """Measure a winner again, together with the default."""

    seconds: float
    model: str | None = None
    """Its path, if it is not a built-in model."""
    allows_pickle: bool = False


class Order(msgspec.Struct, frozen=True):
    """A host's work."""

    fleet: str
    study: str
    """The name of the study's folder, which identifies it everywhere."""
    job: Tune | Verify
    archive: list[Piece]
    """The driver's copy of the study."""
    most_foreign: float
    """The share of the CPUs that others may use; more, and the host is too noisy. 1: it is all the
    same (fleet/fitness.py)."""


class Began(msgspec.Struct, frozen=True, tag="began"):
    """The order is being carried out."""

    is_ahead: bool
    """Whether the host held more of the study than the driver, and goes on with that."""


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """It is not: the host is not fit now."""

    reason: str


UNFIT = 75
"""The exit code of an order that this host cannot carry out and another may."""


class Ended(msgspec.Struct, frozen=True):
    """The process that carried it out has ended."""

    exit_code: int
    """That of the command, or UNFIT; -N where signal N ended it."""
    reason: str
    """The end of its output, if it failed."""
    verification: bytes = b""
    """As JSON, of an order to verify."""


class Report(msgspec.Struct, frozen=True):
    """The progress of an order."""

    number: int
    """Counted from 1; sent again until it is acknowledged."""
    pieces: list[Piece]
    ended: Ended | None = None
    """After the last pieces."""


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} does not travel")


def _path(kind: type, value: Any) -> Any:
    if issubclass(kind, Path):
        return kind(value)
    raise TypeError(f"{kind.__name__} does not travel")


def encode(message: Seen | Order | Began | Refused | Report | Tune | Verify) -> bytes:
    """Write a message."""
    return msgspec.msgpack.encode(message, enc_hook=_plain)


def decode(data: bytes, kind: Any) -> Any:
    """Read a message of a kind; raises msgspec.MsgspecError for what another version wrote."""
    return msgspec.msgpack.decode(data, type=kind, dec_hook=_path)


def verify_request_of(order: Verify, folder: Path) -> VerifyRequest:
    """Return the recommendation to be verified of the study in a folder."""
    return VerifyRequest(
        folder / "recommended.toml", order.seconds, order.model, allows_pickle=order.allows_pickle
    )
