"""Simulated hosts: they take orders, need time on a virtual clock, and vanish.

They show how a driver handles hundreds of hosts and thousands of studies. Nothing is measured, and
results are made up. Time passes when the driver waits.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Collection, Iterable, Sequence

import msgspec

from tuner.fleet.cluster import HostLost, Node, Ticket
from tuner.fleet.mirror import Piece
from tuner.fleet.orders import (
    Began,
    Ended,
    Order,
    Refused,
    Report,
    Seen,
    decode,
    encode,
)
from tuner.version import __version__

MakesUp = Callable[[Order, random.Random], tuple[Iterable[Piece], bytes]]
"""Makes up the files of a study, and the result of a verification."""


class Behaviour(msgspec.Struct, frozen=True):
    """How hosts behave."""

    study_s: tuple[float, float] = (300.0, 900.0)
    """Between which seconds a study lies."""
    answer_s: float = 0.05
    report_s: float = 5.0
    """A host reports progress at most this often."""
    vanishes: float = 0.0
    """The probability that a host vanishes under a study; it comes back as another."""
    is_busy: float = 0.0
    """The probability that others use a host when it is to begin."""


STEADY = Behaviour()


class SimulatedHand:
    """A process on a simulated host."""

    def __init__(self, cluster: SimulatedCluster, node: Node) -> None:
        self._cluster = cluster
        self._node = node
        self._number = 0
        self._ends_s = self._vanishes_s = float("inf")

    def begin(self, order: bytes) -> Ticket:
        cluster = self._cluster
        self._order: Order = decode(order, Order)
        if cluster.draw.random() < cluster.behaviour.is_busy:
            return cluster.promise(encode(Refused("other programs use 50% of its CPUs")))
        seconds = cluster.draw.uniform(*cluster.behaviour.study_s)
        self._ends_s = cluster.now() + seconds
        if cluster.draw.random() < cluster.behaviour.vanishes:
            self._vanishes_s = cluster.now() + cluster.draw.random() * seconds
        return cluster.promise(encode(Began(is_ahead=False)))

    def fetch(self, acknowledged: int) -> Ticket:
        cluster = self._cluster
        until_s = cluster.now() + cluster.behaviour.report_s
        if min(until_s, self._ends_s) >= self._vanishes_s:
            cluster.vanish(self._node)
            return cluster.promise(HostLost("it was switched off"), self._vanishes_s)
        self._number += 1
        if self._ends_s > until_s:
            return cluster.promise(encode(Report(self._number, [])), until_s)
        pieces, said = cluster.makes_up(self._order, cluster.draw)
        report = Report(self._number, list(pieces), Ended(0, "", said))
        return cluster.promise(encode(report), self._ends_s)

    def forget(self) -> Ticket:
        return self._cluster.promise(b"")

    def dismiss(self) -> None:
        """Nothing of it stays."""


class SimulatedCluster:
    """N hosts of some kinds, drawn with a seed."""

    def __init__(
        self,
        n_hosts: int,
        makes_up: MakesUp,
        *,
        n_kinds: int = 1,
        versions: dict[str, str],
        behaviour: Behaviour = STEADY,
        seed: int = 0,
    ) -> None:
        self.draw = random.Random(seed)
        self.behaviour = behaviour
        self.makes_up = makes_up
        self._versions = versions
        self._now_s = 0.0
        self._numbers = itertools.count()
        self._n_kinds = n_kinds
        self._nodes: dict[str, Node] = {}
        self._answers: dict[Ticket, bytes | HostLost] = {}
        self._coming: list[tuple[float, int]] = []
        for number in range(n_hosts):
            self._arrive(number)

    def _arrive(self, number: int) -> None:
        id = f"{next(self._numbers):08x}"
        self._nodes[id] = Node(id, f"host{number}", str(number), has_slot=True)

    def vanish(self, node: Node) -> None:
        """Take a host away; the same one comes back at once, as Ray sees it another."""
        if self._nodes.pop(node.id, None) is not None:
            self._arrive(int(node.address))

    def promise(self, answer: bytes | HostLost, at_s: float | None = None) -> Ticket:
        """Give an answer at a time; soon if None."""
        ticket = next(self._numbers)
        self._answers[ticket] = answer
        at_s = self._now_s + self.behaviour.answer_s if at_s is None else at_s
        heapq.heappush(self._coming, (at_s, ticket))
        return ticket

    def now(self) -> float:
        return self._now_s

    def nodes(self) -> Sequence[Node]:
        return list(self._nodes.values())

    def look(self, node: Node, files: Sequence[str]) -> Ticket:
        kind = f"{int(node.address) % self._n_kinds:08x}"
        seen = Seen(node.name, kind, kind.ljust(64, "0"), f"kind {kind}", __version__,
                    self._versions)  # fmt: skip
        return self.promise(encode(seen))

    def hire(self, node: Node) -> SimulatedHand:
        return SimulatedHand(self, node)

    def ready(self, tickets: Collection[Ticket], seconds: float) -> Sequence[Ticket]:
        until_s = self._now_s + seconds
        found: list[Ticket] = []
        while self._coming and (not found or self._coming[0][0] <= self._now_s):
            at_s, ticket = self._coming[0]
            if at_s > until_s:
                break
            heapq.heappop(self._coming)
            self._now_s = max(self._now_s, at_s)
            if ticket in tickets:
                found.append(ticket)
            else:
                del self._answers[ticket]
        if not found:
            self._now_s = until_s
        return found

    def answer(self, ticket: Ticket) -> bytes:
        answer = self._answers.pop(ticket)
        if isinstance(answer, HostLost):
            raise answer
        return answer

    def close(self) -> None:
        """Nothing is left of them."""
