"""A driver's state of a working host, its waiting times, and its callbacks."""

from __future__ import annotations

from typing import Protocol

import msgspec

from tuner.fleet.cluster import HostHandle
from tuner.fleet.job_queue import Work
from tuner.fleet.orders import Order
from tuner.fleet.roster import Host
from tuner.record.index import Elsewhere, Row

STOPPED = 130
"""The exit code of an order that was asked to stop: its host is not at fault."""
FAILS_ON_EVERY_HOST = (2, 3)
"""Exit codes that another host of the kind would return too."""


class Patience(msgspec.Struct, frozen=True):
    """The seconds that a driver waits for each kind of answer."""

    look_s: float = 120.0
    """For a host to describe itself."""
    begin_s: float = 90.0
    """For a host to take an order: another driver may have its slot."""
    silent_s: float = 120.0
    """A host that cannot be reached for so long is given up."""
    again_s: float = 5.0
    """Before a host that cannot be reached is asked again."""
    away_s: float = 300.0
    """A host that was too noisy, had no slot free or has lost a study is passed over so long."""
    fit_s: float = 90.0
    """For a first host that is fit, in a cluster that is only starting."""
    gone_s: float = 180.0
    """For hosts to return, if those that are there can do nothing of the rest."""
    idle_s: float = 900.0
    """After this time without any result, the rest is left undone."""
    last_s: float = 8.0
    """For hosts to report progress, when the driver is stopped."""
    overtime_s: float = 900.0
    """Time above its budget that a study may take before its process is given up."""
    forget_s: float = 60.0
    """For a host to remove its copy of a study."""


USUAL = Patience()


class Job(msgspec.Struct):
    """A host with something to do."""

    work: Work
    host: Host
    handle: HostHandle
    until_s: float
    """When it is given up."""
    acknowledged: int = 0
    silent_since_s: float | None = None
    ask_again_s: float | None = None
    has_begun: bool = False
    is_over: bool = False
    """Whether the host is only to forget it."""


class Look(msgspec.Struct):
    """A host that was asked to describe itself."""

    host: Host
    until_s: float


class FleetCallbacks(Protocol):
    """What the driver asks of its caller."""

    def order(self, work: Work) -> Order:
        """Return the order for a host."""

    def row(self, study: str, host: str) -> Row:
        """Return the row of a finished study with its result."""

    def elsewhere(self, host: str, verification: bytes) -> Elsewhere:
        """Read another host's result for a winner; raises msgspec.MsgspecError if it is invalid."""

    def keep(self) -> None:
        """Bring what people read up to date; called after everything that ends, and in between."""
