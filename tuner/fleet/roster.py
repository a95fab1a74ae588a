"""The hosts of a fleet: which are fit for studies, of what kind, and which are passed over, why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence

import msgspec

from tuner.fleet.cluster import SLOT, Node
from tuner.fleet.orders import Seen
from tuner.record.index import Kind
from tuner.version import __version__

_OF_THE_KIND = ("kernel", "libc")
"""Versions that make a host another kind, and no less fit."""


class Host(msgspec.Struct):
    """A host that has been seen."""

    node: Node
    name: str
    kind: str = ""
    """Empty until it has described itself."""
    fault: str = ""
    """Why it takes no part."""
    n_looks: int = 0
    """The number of times it was asked to describe itself."""
    away_until_s: float = 0.0
    """Until then it is passed over."""
    was_away: str = ""
    """Why it was passed over last: too noisy, or not to be reached."""
    has_begun: bool = False
    """Whether it has ever begun anything."""
    is_gone: bool = False


class Roster:
    """All hosts that were seen since the driver began.

    versions: those of the driver, which every host must have.
    """

    def __init__(self, versions: Mapping[str, str]) -> None:
        self._versions = versions
        self.hosts: dict[str, Host] = {}
        """By the node's id."""

    def see(self, nodes: Sequence[Node]) -> tuple[list[Host], list[Host]]:
        """Take note of who is there; return those who have come, and those who have gone."""
        there = {node.id: node for node in nodes}
        gone = [h for id, h in self.hosts.items() if id not in there and not h.is_gone]
        for host in gone:
            host.is_gone = True
        come = []
        for id, node in there.items():
            known = self.hosts.get(id)
            if known is None or known.is_gone:
                self.hosts[id] = host = Host(node, self._unique(node.name, node))
                come.append(host)
                if not node.has_slot:
                    host.fault = (
                        f"it does not declare {SLOT}: join it with ray start --resources "
                        f"'{{\"{SLOT}\": 1}}'"
                    )
        return come, gone

    def introduce(self, host: Host, seen: Seen) -> Kind | None:
        """Take a host's description; return its kind if it is suitable."""
        if host.node.name == host.node.address:  # it has no other name
            host.name = self._unique(seen.name, host.node)
        host.fault = self._fault_of(seen)
        if host.fault:
            return None
        host.kind = seen.kind
        return Kind(seen.kind, seen.fingerprint, seen.summary)

    def _unique(self, name: str, node: Node) -> str:
        """Return a name that no other present host has.

        A host that returns keeps its own, even while Ray still lists its former node.
        """
        others = [h for i, h in self.hosts.items() if i != node.id and not h.is_gone]
        taken = {h.name for h in others if h.node.address != node.address}
        candidates = (name, f"{name}@{node.address}", f"{name}#{node.id[:6]}")
        return next((each for each in candidates if each not in taken), node.id)

    def _fault_of(self, seen: Seen) -> str:
        if seen.tool_version != __version__:
            return f"it has tune-framework {seen.tool_version}, and the driver {__version__}"
        others = [
            f"{name} {seen.versions.get(name, 'not installed')} instead of {version}"
            for name, version in self._versions.items()
            if name not in _OF_THE_KIND and seen.versions.get(name) != version
        ]
        if others:
            return f"it has other versions than the driver: {', '.join(others)}"
        if seen.missing:
            return f"it has no {', '.join(seen.missing)}: paths have to be the same on every host"
        return ""

    def free(self, now_s: float, busy: Container[str]) -> Iterable[Host]:
        """Return the hosts that could begin something now; busy: the nodes that are at work."""
        return [
            host
            for host in self.hosts.values()
            if host.kind
            and not host.fault
            and not host.is_gone
            and host.node.id not in busy
            and host.away_until_s <= now_s
        ]

    def there(self) -> defaultdict[str, set[str]]:
        """Return the hosts that are there, be they noisy, by their kind."""
        found: defaultdict[str, set[str]] = defaultdict(set)
        for host in self.hosts.values():
            if host.kind and not host.is_gone and not host.fault:
                found[host.kind].add(host.name)
        return found

    def faults(self) -> dict[str, str]:
        """Return the hosts that are there and took no part, each with the reason."""
        return {
            host.name: host.fault or host.was_away
            for host in self.hosts.values()
            if not host.is_gone and (host.fault or (host.was_away and not host.has_begun))
        }
