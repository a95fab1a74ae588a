"""What a configuration's launch knobs mean for starting a process, as a value."""

from __future__ import annotations

import msgspec

from tuner.errors import UsageError
from tuner.host.identity import Host
from tuner.record.configuration import Configuration
from tuner.space.catalogue import ALLOCATOR, CPUS, MEMORY_POLICY, NUMA_NODE, OPENMP

_BUILT_IN = ("glibc", "libgomp")
"""What is in force without a preload."""


class LaunchPlan(msgspec.Struct, frozen=True):
    """How to start the program: nothing here is applied yet."""

    environment: dict[str, str]
    """Set in addition to the untuned environment; LD_PRELOAD included."""
    cpus: tuple[int, ...] | None
    """Affinity mask; None leaves it as it was given."""
    memory_policy: str
    """"none", "bind:NODE" or "interleave:NODE,NODE"."""


def plan_launch(configuration: Configuration, host: Host) -> LaunchPlan:
    """Translate the launch knobs of a configuration for this host.

    Raises UsageError if it names a library or node that is not here.
    """
    environment: dict[str, str] = {}
    preload: list[str] = []
    cpus = list(host.cpus)
    policy = "none"
    for knob, value in configuration.settings:
        if knob.startswith("env."):
            environment[knob.removeprefix("env.")] = str(value)
        elif knob in (ALLOCATOR, OPENMP) and value not in _BUILT_IN:
            if value not in host.libraries:
                raise UsageError(f"{knob}={value}: no such library is installed here")
            preload.append(host.libraries[str(value)])
        elif knob == CPUS and value == "one_per_core":
            cpus = [cpu for cpu in cpus if cpu.id == first_of_core(cpu.core, host)]
        elif knob == NUMA_NODE and value != "none":
            cpus = [cpu for cpu in cpus if cpu.node == int(value)]
            if not cpus:
                raise UsageError(f"{knob}={value}: none of the allowed CPUs belongs to it")
            policy = f"bind:{value}"
        elif knob == MEMORY_POLICY and value == "interleave":
            policy = "interleave:" + ",".join(map(str, sorted({cpu.node for cpu in cpus})))
    if preload:
        environment["LD_PRELOAD"] = ":".join(preload)
    mask = tuple(cpu.id for cpu in cpus)
    return LaunchPlan(environment, mask if len(mask) < len(host.cpus) else None, policy)


def first_of_core(core: int, host: Host) -> int:
    """Return the lowest allowed CPU of a physical core."""
    return min(cpu.id for cpu in host.cpus if cpu.core == core)
