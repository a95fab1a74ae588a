"""Recommendations as a study would write them."""

import contextlib
from pathlib import Path

from tuner.analysis.recommendation import placement_of
from tuner.errors import UsageError
from tuner.host.identity import Host, probe
from tuner.record.configuration import Configuration, Value
from tuner.record.files import write_recommendation
from tuner.record.interval import Interval
from tuner.record.load import OFFLINE
from tuner.record.recommendation import (
    RECOMMENDATION_VERSION,
    Placement,
    Recommendation,
    RecommendedHost,
    RecommendedWorkload,
    Setting,
    ShippedClaim,
    Tolerances,
)
from tuner.record.workload import CPU
from tuner.space.catalogue import describe, narrowest_class
from tuner.space.knobs_of.launch import PRELOADED
from tuner.space.launching import plan_launch


def recommendation(
    settings: dict[str, Value],
    host: Host,
    framework: str = "torch",
    device: str = CPU,
    scenario: str = OFFLINE,
) -> Recommendation:
    """Return what a study on this host would recommend; placed as far as its libraries are here."""
    configuration = Configuration.of(settings)
    environment = {k[4:]: str(v) for k, v in settings.items() if k.startswith("env.")}
    placements = [Placement()]
    with contextlib.suppress(UsageError):
        plans = plan_launch(configuration, host, device)
        environment = plans[0].environment
        placements = [placement_of(plan) for plan in plans]
    missing = [
        f"/usr/lib/lib{str(value).removeprefix('lib')}.so"
        for knob, value in settings.items()
        if value in PRELOADED.get(knob, ()) and value not in host.libraries
    ]
    if missing:
        environment = {**environment, "LD_PRELOAD": ":".join(missing)}
    return Recommendation(
        schema_version=RECOMMENDATION_VERSION,
        winner_class=narrowest_class(configuration),
        workload=RecommendedWorkload(
            "resnet50",
            framework,
            scenario,
            int(settings.get("workload.batch", 4)),
            device=device,
        ),
        host=RecommendedHost(host.fingerprint(), host.processor.model, host.physical_cores),
        claim=(
            ShippedClaim("faster", 6, 0.01, Interval(1.5, 1.4, 1.6, 0.95))
            if settings
            else ShippedClaim("keep_default", 6, 0.01)
        ),
        tolerances=Tolerances("same", 1e-4),
        versions={},
        environment=environment,
        settings=[
            Setting(
                knob,
                value,
                str(describe(knob).applies),
                describe(knob).needs_code_change,
                describe(knob).how.format(value=value),
            )
            for knob, value in settings.items()
        ],
        placements=placements,
    )


def written(
    folder: Path,
    settings: dict[str, Value],
    framework: str = "torch",
    device: str = CPU,
    scenario: str = OFFLINE,
) -> Path:
    """Write a recommendation for this host and return its path."""
    path = folder / "recommended.toml"
    write_recommendation(path, recommendation(settings, probe(), framework, device, scenario))
    return path
