"""The CPUs of each instance of a configuration: never more cores than this process may use.

Cores are taken in the order of the machine (socket, node, last-level cache, core), so that
neighbours in it are close. `launch.cpus` decides which CPUs of a core an instance may use: all of
its allowed hardware threads, or the first one.

compact   each instance takes the next cores: close together, and filled from one end
spread    each instance takes its cores from as many last-level caches as there are, one after
          another: more cache and more memory channels for an instance, longer ways between them
per_node  instances are dealt over the NUMA nodes, each one wholly inside one node
per_llc   instances are dealt over the last-level caches, each one wholly inside one group
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from tuner.host.identity import Host
from tuner.host.topology import Cpu
from tuner.record.configuration import Value
from tuner.space.knobs_of.launch import CORES_PER_INSTANCE, CPUS, INSTANCES, NUMA_NODE, PLACEMENT

SHARE = "share"
"""cores_per_instance: an equal share of the cores."""
COMPACT, SPREAD, PER_NODE, PER_LLC = "compact", "spread", "per_node", "per_llc"
PLACING = (CPUS, NUMA_NODE, INSTANCES, CORES_PER_INSTANCE, PLACEMENT)
"""The knobs that decide which CPUs an instance gets, in the order in which they are settled."""
ALONE: dict[str, Value] = {INSTANCES: 1, CORES_PER_INSTANCE: SHARE, PLACEMENT: COMPACT}
"""One process that may use all the CPUs that it is given: the default."""

Core = tuple[Cpu, ...]
"""The CPUs of one physical core that an instance may use."""


class Instance(msgspec.Struct, frozen=True):
    """One process of a team."""

    cpus: tuple[int, ...]
    n_cores: int
    nodes: tuple[int, ...]
    """NUMA nodes of its CPUs."""


class Placement(msgspec.Struct, frozen=True):
    """The places of a configuration's instances; empty if they cannot be placed."""

    instances: tuple[Instance, ...]
    usable_cores: int
    """Cores that all instances together may use: of the mask, the node, and the quota."""
    is_pinned: bool
    """Whether an instance has fewer CPUs than this process was given."""
    fault: str = ""
    """Why there is no such placement here; empty if there is."""

    def is_like(self, other: Placement) -> bool:
        """Tell whether both put instances on the same CPUs, whatever their ranks."""
        return self.is_pinned == other.is_pinned and set(self.instances) == set(other.instances)


def place(settings: Mapping[str, Value], host: Host) -> Placement:
    """Return the places of the instances under these settings; others have their defaults."""
    node = settings.get(NUMA_NODE, "none")
    cores = _cores(host, node, one_per_core=settings.get(CPUS) == "one_per_core")
    quota = host.limits.quota_cores
    usable = min(len(cores), max(1, int(quota))) if quota else len(cores)
    n = int(settings.get(INSTANCES, 1))
    each = settings.get(CORES_PER_INSTANCE, SHARE)
    how = str(settings.get(PLACEMENT, COMPACT))
    if how not in (COMPACT, SPREAD, PER_NODE, PER_LLC):
        ways = ", ".join((COMPACT, SPREAD, PER_NODE, PER_LLC))
        return Placement((), usable, False, f"there is no placement {how}; allowed are {ways}")
    if not cores:
        return Placement((), 0, False, f"none of the allowed CPUs belongs to NUMA node {node}")
    if n < 1:
        return Placement((), usable, False, f"{n} instances do no work")
    if n == 1 and each == SHARE and how in (COMPACT, SPREAD):
        return _placement(host, [cores], usable)  # a quota takes time away, and no core
    wanted = usable // n if each == SHARE else int(each)
    if wanted < 1 or n * wanted > usable:
        n_wanted = n * max(1, wanted)
        return Placement(
            (), usable, False, f"{n_wanted} cores are wanted, and {usable} may be used"
        )
    if how in (PER_NODE, PER_LLC):
        return _in_groups(host, cores, usable, n, each, how)
    if how == SPREAD:
        cores = _dealt(_groups(cores, lambda cpu: (cpu.node, cpu.llc)))
    return _placement(host, [cores[k * wanted : (k + 1) * wanted] for k in range(n)], usable)


def _cores(host: Host, node: Value, *, one_per_core: bool) -> list[Core]:
    """Return the allowed cores of a node, or of all, in the order of the machine."""
    found: dict[tuple[int, int, int, int], list[Cpu]] = {}
    for cpu in host.cpus:
        if node in ("none", cpu.node):
            found.setdefault((cpu.socket, cpu.node, cpu.llc, cpu.core), []).append(cpu)
    cores = [tuple(sorted(found[key], key=lambda cpu: cpu.id)) for key in sorted(found)]
    return [core[:1] for core in cores] if one_per_core else cores


def _groups(cores: Iterable[Core], key: Callable[[Cpu], object]) -> list[list[Core]]:
    groups: dict[object, list[Core]] = {}
    for core in cores:
        groups.setdefault(key(core[0]), []).append(core)
    return list(groups.values())


def _dealt(groups: list[list[Core]]) -> list[Core]:
    """Return the cores of all groups in turn: the first of each, then the second of each."""
    longest = max(map(len, groups))
    return [group[k] for k in range(longest) for group in groups if k < len(group)]


def _in_groups(
    host: Host, cores: list[Core], usable: int, n: int, each: Value, how: str
) -> Placement:
    """Deal the instances over the groups evenly, each one inside one group."""
    what = "NUMA node" if how == PER_NODE else "last-level cache"
    groups = _groups(cores, lambda cpu: cpu.node if how == PER_NODE else (cpu.node, cpu.llc))
    guests = [k * len(groups) // n for k in range(n)]  # fewer than groups: far from each other
    crowds = [(len(groups[g]), guests.count(g)) for g in sorted(set(guests))]
    room = min(size // crowd for size, crowd in crowds)
    wanted = min(room, usable // n) if each == SHARE else int(each)
    if wanted < 1 or wanted > room:
        size, crowd = min(crowds, key=lambda pair: pair[0] // pair[1])
        return Placement(
            (), usable, False,
            f"{crowd} instance(s) of {max(1, wanted)} core(s) do not fit into a {what} of {size}",
        )  # fmt: skip
    taken = [0] * len(groups)
    shares = []
    for g in guests:
        shares.append(groups[g][taken[g] : taken[g] + wanted])
        taken[g] += wanted
    return _placement(host, shares, usable)


def _placement(host: Host, shares: list[list[Core]], usable: int) -> Placement:
    instances = tuple(
        Instance(
            cpus=tuple(sorted(cpu.id for core in share for cpu in core)),
            n_cores=len(share),
            nodes=tuple(sorted({core[0].node for core in share})),
        )
        for share in shares
    )
    is_pinned = any(len(instance.cpus) < len(host.cpus) for instance in instances)
    return Placement(instances, usable, is_pinned)


class Placements:
    """Where settings place instances on one host, and the fewest settings that say so."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._known: dict[tuple[Value | None, ...], tuple[Placement, dict[str, Any]]] = {}

    def of(self, settings: Mapping[str, Value]) -> Placement:
        """Return where these settings place the instances."""
        return self._with_facts(settings)[0]

    def facts(self, settings: Mapping[str, Value]) -> dict[str, Any]:
        """Return the facts about instances that formulas may use; empty if there is none."""
        return self._with_facts(settings)[1]

    def _with_facts(self, settings: Mapping[str, Value]) -> tuple[Placement, dict[str, Any]]:
        key = tuple(map(settings.get, PLACING))
        if key not in self._known:
            placed = place(settings, self._host)
            self._known[key] = placed, _facts_of(placed)
        return self._known[key]

    def reduce(
        self, kept: dict[str, Value], values: Callable[[str], Iterable[Value]]
    ) -> list[tuple[str, str]]:
        """Leave the fewest placing settings with the same effect; return those that are impossible.

        values: the space's values for a knob: no others are used.
        """
        ineffective: list[tuple[str, str]] = []
        for knob in (PLACEMENT, CORES_PER_INSTANCE, INSTANCES):
            if (fault := self.of(kept).fault) and knob in kept:
                ineffective.append((knob, fault))
                del kept[knob]
        meant = self.of(kept)
        if meant.fault:
            return ineffective  # not for the instances' sake: the node is not there
        others = {k: v for k, v in kept.items() if k not in (PLACEMENT, CORES_PER_INSTANCE)}
        for simpler in _alternatives(kept, meant, values):
            if self.of(others | simpler).is_like(meant):
                kept.clear()
                kept |= others | simpler
                break
        return ineffective


def _alternatives(
    kept: Mapping[str, Value], meant: Placement, values: Callable[[str], Iterable[Value]]
) -> Iterator[dict[str, Value]]:
    """Yield alternatives with the same cores and placement, the fewest settings first."""
    cores: Value = meant.instances[0].n_cores
    if cores not in (*values(CORES_PER_INSTANCE), kept.get(CORES_PER_INSTANCE)):
        cores = kept.get(CORES_PER_INSTANCE, SHARE)
    ways = dict.fromkeys((*values(PLACEMENT), kept.get(PLACEMENT, COMPACT)))
    yield {}
    yield {CORES_PER_INSTANCE: cores}
    yield from ({PLACEMENT: way} for way in ways)
    yield from ({CORES_PER_INSTANCE: cores, PLACEMENT: way} for way in ways)


def _facts_of(placed: Placement) -> dict[str, Any]:
    if not placed.instances:
        return {}
    return {
        "instance.cores": min(instance.n_cores for instance in placed.instances),
        "instance.cpus": min(len(instance.cpus) for instance in placed.instances),
        "instance.nodes": max(len(instance.nodes) for instance in placed.instances),
        "instances.nodes": len({n for instance in placed.instances for n in instance.nodes}),
        "instance.is_pinned": placed.is_pinned,
    }
