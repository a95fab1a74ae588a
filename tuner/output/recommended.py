"""The files to ship: a recommended.toml per winner, an environment file, a script."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from tuner.host.environment import LINE_PATTERN
from tuner.host.identity import Host
from tuner.host.topology import format_cpu_list
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
from tuner.space.catalogue import BATCH
from tuner.space.knobs import describe
from tuner.space.launching import LaunchPlan, plan_launch

# Bounds of the output check, by whether a setting changes numerics (worker/check.py).
_MAX_DRIFT = {False: 1e-4, True: 5e-2}


def recommendation_of(result: Result, klass: str, host: Host) -> Recommendation:
    """Turn a winner into what is to be set; no setting at all unless it is confirmed faster."""
    winner = result.winners[klass]
    configuration = Configuration.of(winner.configuration)
    if winner.verdict != "faster":
        configuration = Configuration()
    reduced = any(describe(knob).changes_numerics for knob, _ in configuration.settings)
    held_to = Tolerances("same", _MAX_DRIFT[False])
    if reduced and result.accuracy_loss is not None:
        held_to = Tolerances("reduced", None, result.accuracy_loss)
    elif reduced:
        held_to = Tolerances("reduced", result.tolerance or _MAX_DRIFT[True])
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
        claim=Claim(winner.verdict, winner.n_rounds, winner.noise_floor, winner.speedup),
        tolerances=held_to,
        versions=result.versions,
        environment=plan_launch(configuration, host)[0].environment,
        settings=[_setting(knob, value) for knob, value in configuration.settings],
    )


def _setting(knob_id: str, value: str | int | float | bool) -> Setting:
    knob = describe(knob_id)
    otherwise = "set in the program" if knob.needs_code_change else "set by `run` and run.sh"
    how = knob.how.format(value=value) if knob.how else otherwise
    return Setting(knob_id, value, str(knob.applies), knob.needs_code_change, how)


def environment_file(recommendation: Recommendation, plans: Sequence[LaunchPlan]) -> str:
    """Return `recommended.env`: NAME=VALUE lines, as docker --env-file and systemd read them."""
    lines = [f"{name}={value}" for name, value in sorted(recommendation.environment.items())]
    return "".join(f"{line}\n" for line in [*_notes(recommendation, plans), *lines])


def _notes(recommendation: Recommendation, plans: Sequence[LaunchPlan]) -> list[str]:
    """Return comment lines about what an environment alone cannot do."""
    workload = recommendation.workload
    notes = [
        f"# {workload.model}, {workload.framework}, {workload.scenario}: "
        f"{recommendation.claim.verdict}; batch {workload.batch}"
    ]
    for setting in recommendation.settings:
        if setting.needs_code_change:
            notes.append(f"# needs a change in the program: {setting.how}")
    if len(plans) > 1:
        notes.append(f"# needs, which variables cannot do: {len(plans)} instances, each started by")
        notes += [f"#   {' '.join(_placing_command(plan))}" for plan in plans]
    elif placed := _placing_command(plans[0]):
        notes.append(f"# needs, which variables cannot do: {' '.join(placed)}")
    return notes


def _placing_command(plan: LaunchPlan) -> list[str]:
    """Return the command that gives a program the plan's CPUs and memory policy; empty for none."""
    cpus = format_cpu_list(plan.cpus) if plan.cpus is not None else ""
    policy, _, nodes = plan.memory_policy.partition(":")
    if policy == "none":
        return ["taskset", "--cpu-list", cpus] if cpus else []
    placed = [f"--physcpubind={cpus}"] if cpus else []
    memory = "--membind" if policy == "bind" else "--interleave"
    return ["numactl", *placed, f"{memory}={nodes}", "--"]


def run_script(recommendation: Recommendation, plans: Sequence[LaunchPlan]) -> str:
    """Return `run.sh`: run any program under the launch settings."""
    exports = [
        f"export {name}={shlex.quote(value)}"
        for name, value in sorted(recommendation.environment.items())
    ]
    names = "|".join(sorted(recommendation.environment))
    ours = f"grep -vxE '{names}' | " if names else ""
    lines = [
        "#!/bin/sh",
        "# usage: run.sh PROGRAM [ARGUMENT...]",
        *_notes(recommendation, plans),
        '[ $# -gt 0 ] || { echo "usage: run.sh PROGRAM [ARGUMENT...]" >&2; exit 2; }',
        "# measured without any other tuning variable: what your shell sets besides stays in force",
        f"others=$(env | grep -E '^({LINE_PATTERN})' | cut -d= -f1 | {ours}tr '\\n' ' ')",
        '[ -z "$others" ] || echo "run.sh: set besides, and not measured: $others" >&2',
        *exports,
        *(_start_team(plans) if len(plans) > 1 else [f"exec {_started(plans[0])}"]),
    ]
    return "\n".join(lines) + "\n"


def _started(plan: LaunchPlan) -> str:
    """Return the shell's words that start the program where the plan places it."""
    return "".join(f"{shlex.quote(word)} " for word in _placing_command(plan)) + '"$@"'


def _start_team(plans: Sequence[LaunchPlan]) -> list[str]:
    """Return lines that run every instance, and end with the first one's code that failed."""
    own = [
        {k: v for k, v in plan.variables().items() if k not in plan.environment} for plan in plans
    ]
    return [
        "stopped=0 pids=",
        "stop() { stopped=1; kill $pids 2>/dev/null; }",
        "trap stop HUP INT TERM",
        "exec 3<&0  # the first instance has the standard input",
        *(
            f"{' '.join(f'{k}={shlex.quote(v)}' for k, v in variables.items())} \\\n"
            f'  {_started(plan)} <&3 & pids="$pids $!"; exec 3</dev/null'
            for variables, plan in zip(own, plans, strict=True)
        ),
        "# the first instance that fails ends the others; what was told to end is waited for",
        'code=0 left="$pids"',
        'while [ -n "$left" ]; do',
        "  still=",
        "  for pid in $left; do",
        "    state=$(sed 's/.*) \\(.\\).*/\\1/' /proc/$pid/stat 2>/dev/null)",
        '    if [ "${state:-Z}" != Z ]; then still="$still $pid"; continue; fi',
        '    wait "$pid"; own=$?',
        "    [ $code -ne 0 ] || code=$own",
        "  done",
        '  left="$still"',
        "  [ $code -eq 0 ] || [ $stopped -eq 1 ] || stop",
        '  [ -z "$left" ] || { sleep 0.2 & wait $!; }',
        "done",
        "exit $code",
    ]


def write_recommendations(folder: Path, result: Result, host: Host) -> None:
    """Write recommended*.toml for every class, and env and script for the recommended one."""
    for klass in WinnerClass:
        recommendation = recommendation_of(result, str(klass), host)
        write_recommendation(folder / f"recommended.{klass}.toml", recommendation)
        if str(klass) == result.recommended_class:
            write_recommendation(folder / "recommended.toml", recommendation)
            settings = {setting.knob: setting.value for setting in recommendation.settings}
            plans = plan_launch(Configuration.of(settings), host)
            write_whole(folder / "recommended.env", environment_file(recommendation, plans))
            write_whole(folder / "run.sh", run_script(recommendation, plans), executable=True)
