"""The hosts as a driver sees them: which exist, their answers, and when they are gone.

Two implementations: Ray's (ray_cluster.py), and simulated hosts (simulated.py).
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from typing import Protocol, TypeAlias

import msgspec

Ticket: TypeAlias = Hashable
"""A pending answer."""
SLOT = "tune_slot"
"""The resource that a host declares, which one study at a time takes."""


class HostLost(Exception):
    """The host, or the process on it, is gone; it may come back as another."""


class HostSilent(Exception):
    """The host cannot be reached for the moment; it may still be at work."""


class HostFailed(Exception):
    """A call failed on the host, with the reason."""


class Node(msgspec.Struct, frozen=True):
    """A host in a cluster."""

    id: str
    name: str
    """As it was given, else its address."""
    address: str
    has_slot: bool
    """Whether it declares the resource that studies take."""


class HostHandle(Protocol):
    """A process on a host that carries out one order."""

    def begin(self, order: bytes) -> Ticket:
        """Ask it to begin; the answer is Began or Refused. It waits for the host's slot."""

    def fetch(self, acknowledged: int) -> Ticket:
        """Ask for progress; the answer is a Report."""

    def forget(self) -> Ticket:
        """Ask it to remove the host's copy of the study."""

    def dismiss(self) -> None:
        """End it, with all that it started; the slot is free then."""


class Cluster(Protocol):
    """A driver's interface to a cluster."""

    def now(self) -> float:
        """Return the seconds of a clock that only goes on."""

    def nodes(self) -> Sequence[Node]:
        """Return the hosts that are there now."""

    def look(self, node: Node, files: Sequence[str]) -> Ticket:
        """Ask a host to describe itself; the answer is a Seen."""

    def hire(self, node: Node) -> HostHandle:
        """Have a process on a host for one order."""

    def ready(self, tickets: Collection[Ticket], seconds: float) -> Sequence[Ticket]:
        """Wait for any answers, at most the given time; return those that are there."""

    def answer(self, ticket: Ticket) -> bytes:
        """Return an answer that is there; raises HostLost, HostSilent or HostFailed."""

    def close(self) -> None:
        """Leave the cluster; actors end."""
