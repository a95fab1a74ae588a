"""The files to ship: a recommended.toml per winner, an environment file, a script."""

from __future__ import annotations

import shlex
from pathlib import Path

from tuner.host.environment import LINE_PATTERN
from tuner.host.identity import Host
from tuner.record.configuration import Configuration
from tuner.record.files import write_recommendation, write_whole
from tuner.record.journal import WinnerClass
from tuner.record.recommendation import (
    RECOMMENDATION_VERSION,
    Claim,
    Recommendation,
    RecommendedHost,
    RecommendedWorkload,
    Setting,
    Tolerances,
)
from tuner.record.result import Result
from tuner.space.knobs import BATCH, describe
from tuner.space.launching import plan_launch

# Bounds of the output check, by whether a setting changes numerics (worker/check.py).
_MAX_DRIFT = {False: 1e-4, True: 5e-2}


def recommendation_of(result: Result, klass: str, host: Host) -> Recommendation:
    """Turn a winner into what is to be set; no setting at all unless it is confirmed faster."""
    winner = result.winners[klass]
    configuration = Configuration.of(winner.configuration)
    if winner.verdict != "faster":
        configuration = Configuration()
    reduced = any(describe(knob).changes_numerics for knob, _ in configuration.settings)
    batch = configuration.get(BATCH)
    if winner.verdict != "faster":
        batch = result.default.batch
    return Recommendation(
        schema_version=RECOMMENDATION_VERSION,
        winner_class=klass,
        workload=RecommendedWorkload(
            result.model, result.framework, result.scenario, int(batch or result.reference_batch)
        ),
        host=RecommendedHost(result.host.fingerprint, host.processor.model, host.physical_cores),
        claim=Claim(winner.verdict, winner.n_rounds, result.noise_floor, winner.speedup),
        tolerances=Tolerances("reduced" if reduced else "same", _MAX_DRIFT[reduced]),
        versions=result.versions,
        environment=plan_launch(configuration, host).environment,
        settings=[_setting(knob, value) for knob, value in configuration.settings],
    )


def _setting(knob_id: str, value: str | int | float | bool) -> Setting:
    knob = describe(knob_id)
    otherwise = "set in the program" if knob.needs_code_change else "set by run.sh"
    how = knob.how.format(value=value) if knob.how else otherwise
    return Setting(knob_id, value, str(knob.applies), knob.needs_code_change, how)


def environment_file(recommendation: Recommendation) -> str:
    """Return `recommended.env`: NAME=VALUE lines, as docker --env-file and systemd read them."""
    lines = [f"{name}={value}" for name, value in sorted(recommendation.environment.items())]
    return "".join(f"{line}\n" for line in [*_notes(recommendation), *lines])


def _notes(recommendation: Recommendation) -> list[str]:
    """Return comment lines about what an environment alone cannot do."""
    workload = recommendation.workload
    notes = [
        f"# {workload.model}, {workload.framework}, {workload.scenario}: "
        f"{recommendation.claim.verdict}; batch {workload.batch}"
    ]
    for setting in recommendation.settings:
        if setting.needs_code_change:
            notes.append(f"# needs a change in the program: {setting.how}")
        if setting.knob == "launch.numa_node":
            notes.append(f"# needs numactl: bind to NUMA node {setting.value}")
    return notes


def run_script(recommendation: Recommendation) -> str:
    """Return `run.sh`: run any program under the launch settings."""
    exports = [
        f"export {name}={shlex.quote(value)}"
        for name, value in sorted(recommendation.environment.items())
    ]
    nodes = [
        shlex.quote(str(s.value)) for s in recommendation.settings if s.knob == "launch.numa_node"
    ]
    prefix = "".join(f"numactl --cpunodebind={node} --membind={node} -- " for node in nodes)
    names = "|".join(sorted(recommendation.environment))
    ours = f"grep -vxE '{names}' | " if names else ""
    lines = [
        "#!/bin/sh",
        "# usage: run.sh PROGRAM [ARGUMENT...]",
        *_notes(recommendation),
        '[ $# -gt 0 ] || { echo "usage: run.sh PROGRAM [ARGUMENT...]" >&2; exit 2; }',
        "# measured without any other tuning variable: what your shell sets besides stays in force",
        f"others=$(env | grep -E '^({LINE_PATTERN})' | cut -d= -f1 | {ours}tr '\\n' ' ')",
        '[ -z "$others" ] || echo "run.sh: set besides, and not measured: $others" >&2',
        *exports,
        f'exec {prefix}"$@"',
    ]
    return "\n".join(lines) + "\n"


def write_recommendations(folder: Path, result: Result, host: Host) -> None:
    """Write recommended*.toml for every class, and env and script for the recommended one."""
    for klass in WinnerClass:
        recommendation = recommendation_of(result, str(klass), host)
        write_recommendation(folder / f"recommended.{klass}.toml", recommendation)
        if str(klass) == result.recommended_class:
            write_recommendation(folder / "recommended.toml", recommendation)
            write_whole(folder / "recommended.env", environment_file(recommendation))
            write_whole(folder / "run.sh", run_script(recommendation), executable=True)
