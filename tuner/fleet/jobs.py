"""What a driver knows of a host at work, how long it waits, and what it leaves to others."""

from __future__ import annotations

from typing import Protocol

import msgspec

from tuner.fleet.cluster import HostHandle
from tuner.fleet.orders import Order
from tuner.fleet.roster import Host
from tuner.fleet.works import Work
from tuner.record.index import Elsewhere, Row

STOPPED = 130
"""The exit code of an order that was asked to stop: its host is none the worse."""
PRUNE_RATIO = (2, 3)
"""Those that another host of the kind would answer with as well."""


class Patience(msgspec.Struct, frozen=True):
    """How many seconds a driver waits for what may yet come."""

    look_s: float = 120.0
    """For a host to say what it is."""
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
    """For hosts to come back, where those that are there can do nothing of what is left."""
    idle_s: float = 900.0
    """After so long in which nothing was done by anybody, what is left is left."""
    last_s: float = 8.0
    """For hosts to tell what is new, when the driver is stopped."""
    overtime_s: float = 900.0
    """What a study may take above its budget, before its process is given up."""
    forget_s: float = 60.0
    """For a host to remove its copy of a study."""


USUAL = Patience()


class Job(msgspec.Struct):
    """A host with something to do."""

    work: Work
    host: Host
    hand: HostHandle
    until_s: float
    """When it is given up."""
    acknowledged: int = 0
    silent_since_s: float | None = None
    ask_again_s: float | None = None
    has_begun: bool = False
    is_over: bool = False
    """Whether the host is only to forget it."""


class Look(msgspec.Struct):
    """A host that was asked what it is."""

    host: Host
    until_s: float


class FleetCallbacks(Protocol):
    """What the driver leaves to whoever runs it."""

    def order(self, work: Work) -> Order:
        """Return what a host is to be told."""

    def row(self, study: str, host: str) -> Row:
        """Return the row of a finished study with what it has found."""

    def elsewhere(self, host: str, verification: bytes) -> Elsewhere:
        """Read what another host said of a winner; raises msgspec.MsgspecError for what is none."""

    def keep(self) -> None:
        """Bring what people read up to date; called after everything that ends, and in between."""
