"""How fast a model is on a large host, by published formulas: a truth to search on.

Nothing here was measured: every surface draws a model and a host, and the formulas say what a
placement is worth. What they are for is their shape, which is that of real hosts in what matters to
a search: no knob can be set well alone.

    cores       time = serial + parallel / cores (Amdahl 1967), plus a cost of every parallel region
                that grows with the logarithm of the threads (barriers as trees: Mellor-Crummey and
                Scott, ACM TOCS 9(1), 1991)
    SMT         a second thread on a core adds a share of a core's speed, or takes some where caches
                are what is scarce (Marr et al., Intel Technology Journal 6(1), 2002: up to 30 %
                more; Saini et al., HiPC 2011: less for programs near the bandwidth's limit)
    bandwidth   time is the larger of arithmetic's and memory's (roofline: Williams, Waterman,
                Patterson, CACM 52(4), 2009), rounded off at the corner; a core draws at most a
                share of its node's bandwidth, and all instances of a node share it
    NUMA        what lies on another node takes as much longer as its distance says (ACPI SLIT, 10
                is local); first touch puts an instance's memory on the nodes of its cores, so that
                an instance on two nodes finds half of it on the other
    caches      weights that fit into an instance's last-level cache are not read from memory; the
                instances of a node share its cache
    wandering   threads that may move between cores lose their caches now and then: a share of the
                speed where an instance is not pinned
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping

import msgspec

from tuner.host.identity import Host
from tuner.record.configuration import Value
from tuner.space.expressions import Expression
from tuner.space.placement import PLACING, Placement, place
from tuner.space.space import Space

THREADS = "env.OMP_NUM_THREADS"
_GB = 1e9


class Surface(msgspec.Struct, frozen=True):
    """One model on one host; times in seconds, of a batch."""

    serial_s: float
    parallel_s: float
    """On one core."""
    region_s: float
    """All parallel regions of a batch, per doubling of the threads."""
    smt_gain: float
    bytes_per_batch: float
    """Activations and whatever else is read anew each time."""
    weight_bytes: float
    node_bandwidth: float
    core_bandwidth: float
    cache_bytes: float
    """Last-level cache of a node."""
    distance: float
    """To the other node, of 10."""
    wandering: float
    effects: dict[str, dict[Value, float]]
    """Log gain of the settings that have nothing to do with placement, by knob and value."""

    def log_rate(self, settings: Mapping[str, Value], host: Host) -> float:
        """Return the natural logarithm of batches per second, of all instances together."""
        rest = sum(self.effects.get(k, {}).get(v, 0.0) for k, v in settings.items())
        return self.log_rate_placed(place(settings, host), settings, host) + rest

    def log_rate_placed(
        self, placed: Placement, settings: Mapping[str, Value], host: Host
    ) -> float:
        """Return what a placement alone is worth, with its threads and memory policy."""
        n_nodes = len({cpu.node for cpu in host.cpus})
        policy = str(settings.get("launch.memory_policy", "local"))
        guests: dict[int, int] = {}
        for instance in placed.instances:
            for node in instance.nodes:
                guests[node] = guests.get(node, 0) + 1
        total = 0.0
        for instance in placed.instances:
            threads = int(settings.get(THREADS, instance.n_cores))
            span = len(instance.nodes)
            used = min(threads, instance.n_cores)
            siblings = max(0, min(threads, len(instance.cpus)) - instance.n_cores)
            speed = used + self.smt_gain * siblings
            compute_s = self.serial_s + self.parallel_s / speed
            compute_s += self.region_s * math.log2(max(1, threads))
            if not placed.is_pinned:
                compute_s *= 1 + self.wandering
            nodes = n_nodes if policy == "interleave" else span
            # of its nodes' bandwidth as much as falls to it, and never more than its cores draw
            share = sum(1 / guests[node] for node in instance.nodes)
            offered = self.node_bandwidth * share
            if policy == "interleave":
                offered = self.node_bandwidth * n_nodes / len(placed.instances)
            bandwidth = min(offered, self.core_bandwidth * used)
            crowd = max(guests[node] for node in instance.nodes)
            cached = min(1.0, self.cache_bytes * span / (self.weight_bytes * crowd))
            read = self.bytes_per_batch + self.weight_bytes * (1 - cached)
            remote = 1 - 1 / nodes
            memory_s = read / bandwidth * (1 + remote * (self.distance / 10 - 1))
            total += 1 / (compute_s**4 + memory_s**4) ** 0.25
        return math.log(total)


def draw(seed: int, searched: Mapping[str, tuple[Value, ...]]) -> Surface:
    """Draw a surface: from a small model that hardly scales to one that saturates the memory.

    searched: the knobs of the space with their values. Of those that do not place instances a third
    has an effect, of up to 12 %.
    """
    random_ = random.Random(seed)
    batch_s = 10 ** random_.uniform(-1.5, 0.7)
    serial = 10 ** random_.uniform(-3.0, -1.0)
    placing = {"launch.cpus", "launch.numa_node", "launch.instances", "launch.cores_per_instance",
               "launch.placement", "launch.memory_policy", THREADS, "workload.batch"}  # fmt: skip
    effects: dict[str, dict[Value, float]] = {}
    for knob, values in searched.items():
        if knob in placing or random_.random() > 1 / 3:
            continue
        effects[knob] = {value: random_.uniform(-0.12, 0.12) for value in values[1:]}
    return Surface(
        serial_s=batch_s * serial,
        parallel_s=batch_s * (1 - serial),
        region_s=batch_s * 10 ** random_.uniform(-4.5, -2.5),
        smt_gain=random_.uniform(-0.1, 0.3),
        bytes_per_batch=batch_s * _GB * 10 ** random_.uniform(-0.5, 1.0),
        weight_bytes=min(3e9, batch_s * _GB * 10 ** random_.uniform(0.0, 1.6)),
        node_bandwidth=random_.uniform(100, 300) * _GB,
        core_bandwidth=random_.uniform(8, 15) * _GB,
        cache_bytes=random_.uniform(30e6, 110e6),
        distance=random_.uniform(15, 32),
        wandering=random_.uniform(0.0, 0.1),
        effects=effects,
    )


class Optimum:
    """Finds the best of a space on any surface, by looking at all of it.

    Knobs that depend on each other are looked through together (placement, threads and memory
    policy are one such group); what the groups are worth is added up.
    """

    def __init__(self, space: Space, host: Host) -> None:
        self._host = host
        groups = _groups(space)
        self._placed = []
        self._others = []
        for group in groups:
            found = {space.canonical(choice) for choice in _choices(space, group)}
            if group & set(PLACING):
                plans = [(c.as_dict(), place(c.as_dict(), host)) for c in found]
                self._placed += plans
            else:
                self._others.append(found)

    def of(self, surface: Surface) -> float:
        """Return the highest log rate."""
        best = max(surface.log_rate_placed(p, s, self._host) for s, p in self._placed)
        for group in self._others:
            best += max(
                sum(surface.effects.get(k, {}).get(v, 0.0) for k, v in c.settings) for c in group
            )
        return best


def _groups(space: Space) -> list[set[str]]:
    """Return the searched knobs, those together that ask for each other."""
    groups: list[set[str]] = [{*PLACING, "launch.memory_policy", THREADS}]
    for knob in space.searched:
        mine = {knob.id, *(Expression(knob.when).names if knob.when else ())} & space.by_id.keys()
        joined = set().union(mine, *(g for g in groups if g & mine and not g & set(PLACING)))
        if mine & groups[0]:
            groups[0] |= joined if knob.id in groups[0] else set()
            if knob.id in groups[0]:
                continue
        groups = [groups[0], *(g for g in groups[1:] if not g & joined), joined]
    return groups


def _choices(space: Space, group: set[str]) -> Iterator[dict[str, Value]]:
    knobs = [knob for knob in space.searched if knob.id in group]
    for values in itertools.product(*(knob.choices for knob in knobs)):
        yield {knob.id: value for knob, value in zip(knobs, values, strict=True)}
