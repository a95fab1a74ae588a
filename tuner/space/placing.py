"""The places of a recommendation's instances on this host."""

from __future__ import annotations

import msgspec

from tuner.errors import UsageError
from tuner.host.identity import Host
from tuner.host.topology import format_cpu_list, parse_cpu_list
from tuner.record.configuration import Configuration
from tuner.record.recommendation import Placement, Recommendation
from tuner.space.knobs_of.launch import MEMORY_POLICY
from tuner.space.launching import LaunchPlan, plan_launch
from tuner.space.placement import PLACING


def plans_here(
    recommendation: Recommendation, settings: Configuration, host: Host
) -> tuple[LaunchPlan, ...]:
    """Return how to start each instance, by rank, according to its placement.

    settings: those of the recommendation that can be applied here. On another host, placements are
    computed again from the settings, because they name the CPUs of the first one.

    Raises UsageError for a library, node or CPU that does not exist here.
    """
    plans = plan_launch(settings, host)
    given = recommendation.placements
    if given == [Placement()] or is_placed_anew(recommendation, host):
        return plans
    return tuple(_placed(plan, place, host) for plan, place in zip(plans, given, strict=True))


def is_placed_anew(recommendation: Recommendation, host: Host) -> bool:
    """Tell whether instances are placed by settings, which mean other CPUs on this host."""
    is_by_settings = any(s.knob in (*PLACING, MEMORY_POLICY) for s in recommendation.settings)
    return is_by_settings and recommendation.host.fingerprint != host.fingerprint()


def _placed(plan: LaunchPlan, place: Placement, host: Host) -> LaunchPlan:
    allowed = tuple(cpu.id for cpu in host.cpus)
    cpus = None if place.cpus is None else parse_cpu_list(place.cpus)
    if cpus is not None and (outside := set(cpus) - set(allowed)):
        raise UsageError(
            f"a placement names the CPUs {format_cpu_list(tuple(outside))}, and "
            f"{format_cpu_list(allowed)} may be used here"
        )
    return msgspec.structs.replace(plan, cpus=cpus, memory_policy=place.memory_policy)
