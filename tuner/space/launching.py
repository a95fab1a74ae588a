"""The launch knobs of a configuration as values for starting its processes."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tuner.errors import UsageError
from tuner.host.identity import Host
from tuner.host.libraries import how_to_install
from tuner.host.topology import format_cpu_list
from tuner.record.configuration import Configuration
from tuner.record.recommendation import INSTANCES_VARIABLE
from tuner.record.workload import CPU, CUDA
from tuner.space.knobs_of.launch import (
    ALLOCATOR,
    CORES_PER_INSTANCE,
    INSTANCES,
    MEMORY_POLICY,
    NUMA_NODE,
    OPENMP,
    PRELOADED,
)
from tuner.space.placement import SHARE, Instance, place

PRELOAD = "LD_PRELOAD"
"""The variable by which a library is loaded before all others (ld.so(8))."""
_BUILT_IN = ("glibc", "libgomp")
"""The allocator without a preload."""


class LaunchPlan(msgspec.Struct, frozen=True):
    """How to start one instance of the program: nothing here is applied yet."""

    environment: dict[str, str]
    """Set in addition to the untuned environment; LD_PRELOAD included."""
    cpus: tuple[int, ...] | None
    """Affinity mask; None leaves it as it was given."""
    memory_policy: str
    """"none", "bind:NODE,NODE" or "interleave:NODE,NODE"."""
    rank: int = 0
    n_instances: int = 1
    gpu: str = ""
    """The UUID of the card that computes; empty if the CPU does, and no card is visible."""

    def variables(self) -> dict[str, str]:
        """Return every variable to set: in a team, also which of its instances this is.

        TUNE_FRAMEWORK_RANK from 0, TUNE_FRAMEWORK_INSTANCES, and TUNE_FRAMEWORK_CPUS as a list in
        the kernel's format: a program can choose its port, its share of the data or a file by them.
        The number of instances is always set: `tuner.apply` knows by it that a plan is in force.
        """
        variables = self.environment | {INSTANCES_VARIABLE: str(self.n_instances)}
        if self.n_instances == 1:
            return variables
        return variables | {
            "TUNE_FRAMEWORK_RANK": str(self.rank),
            "TUNE_FRAMEWORK_CPUS": format_cpu_list(self.cpus or ()),
        }


def plan_launch(
    configuration: Configuration, host: Host, device: str = CPU
) -> tuple[LaunchPlan, ...]:
    """Translate the launch knobs of a configuration for this host: one plan per instance.

    On a card, all instances compute on the one that is measured.

    Raises UsageError if it names a library or node that does not exist, or more cores than there
    are.
    """
    settings = configuration.as_dict()
    environment: dict[str, str] = {}
    preload: list[str] = []
    for knob, value in configuration.settings:
        if knob.startswith("env."):
            environment[knob.removeprefix("env.")] = str(value)
        elif knob in (ALLOCATOR, OPENMP) and value not in _BUILT_IN:
            if value not in host.libraries:
                raise UsageError(f"{knob}={value}: {_why_not(knob, str(value), host)}")
            preload.append(host.libraries[str(value)])
    if preload:
        environment[PRELOAD] = ":".join(preload)
    for knob in (INSTANCES, CORES_PER_INSTANCE):
        value = settings.get(knob, 1)
        if value != SHARE and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise UsageError(f"{knob} must be a whole number of at least 1, not {value!r}")
    placed = place(settings, host)
    if placed.fault:
        raise UsageError(f"the instances cannot be placed: {placed.fault}")
    n = len(placed.instances)
    return tuple(
        LaunchPlan(
            environment=environment,
            cpus=instance.cpus if n > 1 or len(instance.cpus) < len(host.cpus) else None,
            memory_policy=_memory_policy(configuration, instance, host),
            rank=rank,
            n_instances=n,
            gpu=gpu_of(device, host),
        )
        for rank, instance in enumerate(placed.instances)
    )


def gpu_of(device: str, host: Host) -> str:
    """Return the UUID of the card that is measured; empty on the CPU."""
    return host.gpus[0].uuid if device == CUDA else ""


def _why_not(knob: str, library: str, host: Host) -> str:
    if library in host.unusable:
        return host.unusable[library]
    hint = f" ({how_to_install(library)})" if library in PRELOADED[knob] else ""
    return f"no such library is installed here{hint}"


def _memory_policy(configuration: Configuration, instance: Instance, host: Host) -> str:
    policy = configuration.get(MEMORY_POLICY)
    node = configuration.get(NUMA_NODE)
    if node not in (None, "none"):
        return f"bind:{node}"
    if policy == "bind":
        return _on_nodes("bind", instance.nodes)
    if policy == "interleave":
        return _on_nodes("interleave", host.memory_nodes)
    return "none"


def _on_nodes(policy: str, nodes: Iterable[int]) -> str:
    return f"{policy}:" + ",".join(map(str, sorted(nodes)))
