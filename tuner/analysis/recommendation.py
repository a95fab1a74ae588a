"""The recommendation of each winner class, as it ships."""

from __future__ import annotations

from pathlib import Path

from tuner.host.identity import Host
from tuner.host.libraries import is_of_environment
from tuner.host.topology import format_cpu_list
from tuner.record.configuration import Configuration, Value
from tuner.record.output_check import max_drift, same_bound
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
from tuner.record.result import Result
from tuner.record.winner_class import WinnerClass
from tuner.record.workload import ModelCard
from tuner.space.catalogue import describe, level_of
from tuner.space.knobs_of.launch import BATCH
from tuner.space.launching import PRELOAD, LaunchPlan, plan_launch


def recommendations(
    result: Result, host: Host, card: ModelCard
) -> dict[WinnerClass, Recommendation]:
    """Return the recommendation of every class for the host that it was measured on."""
    return {
        winner_class: _recommendation(result, winner_class, host, card)
        for winner_class in WinnerClass
    }


def _recommendation(
    result: Result, winner_class: WinnerClass, host: Host, card: ModelCard
) -> Recommendation:
    """Turn a winner into a recommendation; without settings unless it is confirmed faster."""
    winner = result.winners[winner_class]
    configuration = Configuration.of(winner.configuration)
    if winner.verdict != "faster":
        configuration = Configuration()
    level = level_of(configuration)
    checked = winner.output_drift
    own_drift = checked.default_drift if checked is not None else 0.0
    held_to = Tolerances("same", same_bound(own_drift))
    if level and result.accuracy_loss is not None:
        held_to = Tolerances(level.in_words, None, result.accuracy_loss)
    elif level:
        held_to = Tolerances(level.in_words, result.tolerance or max_drift(level))
    batch = configuration.get(BATCH)
    if winner.verdict != "faster":
        batch = result.default.batch
    plans = plan_launch(configuration, host, result.device)
    section = winner if winner.verdict == "faster" else result.default
    environment, packages = portable(plans[0].environment, host)
    return Recommendation(
        schema_version=RECOMMENDATION_VERSION,
        winner_class=winner_class,
        workload=RecommendedWorkload(
            result.model,
            result.framework,
            result.scenario,
            int(batch or result.reference_batch),
            result.default.batch,
            card.form,
            card.source_sha256,
            result.device,
            result.callers,
            card.batch_dim,
        ),
        host=RecommendedHost(
            result.host.fingerprint,
            host.processor.model,
            host.physical_cores,
            host.usable_cpus,
            max(1, round(len(host.cpus) / host.physical_cores)),
            result.host.identity,
        ),
        claim=ShippedClaim(
            winner.verdict,
            winner.n_rounds,
            winner.noise_floor,
            winner.speedup,
            result.noise.launch_sd,
            max(0, winner.n_rounds - 1),
            None if result.default.rate is None else result.default.rate.point,
            None if result.default.value is None else result.default.value.point,
            result.objective.metric,
            result.default_meets_slo,
        ),
        tolerances=held_to,
        versions=result.versions,
        environment=environment,
        settings=[setting_of(knob, value) for knob, value in configuration.settings],
        placements=[placement_of(plan) for plan in plans],
        memory_bytes=section.memory_peak_bytes,
        packages=packages,
        bounds=result.objective.bounds,
        slo=result.objective.slo,
        outputs=checked if configuration.settings else None,
    )


def portable(environment: dict[str, str], host: Host) -> tuple[dict[str, str], dict[str, str]]:
    """Return the variables without paths of an environment, and the packages of their files."""
    package_of = {host.libraries[name]: package for name, package in host.packages.items()}
    paths = [path for path in environment.get(PRELOAD, "").split(":") if path]
    packages = {Path(path).name: package_of[path] for path in paths if path in package_of}
    named = [Path(path).name if path in package_of or is_of_environment(path) else path
             for path in paths]  # fmt: skip
    return environment | ({PRELOAD: ":".join(named)} if named else {}), packages


def placement_of(plan: LaunchPlan) -> Placement:
    """Return where a plan places its instance."""
    cpus = None if plan.cpus is None else format_cpu_list(plan.cpus)
    return Placement(cpus, plan.memory_policy)


def setting_of(knob_id: str, value: Value) -> Setting:
    """Return a setting with how it is set."""
    knob = describe(knob_id)
    otherwise = "set in the program" if knob.needs_code_change else "set by `run` and run.sh"
    how = knob.how.format(value=value) if knob.how else otherwise
    return Setting(knob_id, value, str(knob.applies), knob.needs_code_change, how)
