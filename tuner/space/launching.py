"""What a configuration's launch knobs mean for starting a process, as a value."""

from __future__ import annotations

import msgspec

from tuner.errors import UsageError
from tuner.host.identity import Host
from tuner.record.configuration import Configuration
from tuner.space.knobs import ALLOCATOR, NUMA_NODE


class LaunchPlan(msgspec.Struct, frozen=True):
    """How to start the program: nothing here is applied yet."""

    environment: dict[str, str]
    """Set in addition to the untuned environment; LD_PRELOAD included."""
    cpus: tuple[int, ...] | None
    """Affinity mask; None leaves it as it was given."""
    memory_policy: str
    """"none", or "bind:NODE"."""


def plan_launch(configuration: Configuration, host: Host) -> LaunchPlan:
    """Translate the launch knobs of a configuration for this host.

    Raises UsageError if it names a library or node that is not here.
    """
    environment: dict[str, str] = {}
    preload: list[str] = []
    cpus = None
    policy = "none"
    for knob, value in configuration.settings:
        if knob.startswith("env."):
            environment[knob.removeprefix("env.")] = str(value)
        elif knob == ALLOCATOR and value != "glibc":
            if value not in host.libraries:
                raise UsageError(f"{knob}={value}: no such library is installed here")
            preload.append(host.libraries[str(value)])
        elif knob == NUMA_NODE and value != "none":
            node = int(value)
            cpus = tuple(cpu.id for cpu in host.cpus if cpu.node == node)
            if not cpus:
                raise UsageError(f"{knob}={value}: none of the allowed CPUs belongs to it")
            policy = f"bind:{node}"
    if preload:
        environment["LD_PRELOAD"] = ":".join(preload)
    return LaunchPlan(environment, cpus, policy)
