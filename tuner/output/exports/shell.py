"""`shell`: a script that runs any program under the launch settings, all instances."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from tuner.host.environment import LINE_PATTERN, OTHERS_PATTERN
from tuner.output.exports.needs import (
    comments,
    notes,
    placing_command,
)
from tuner.output.exports.preloads import exports
from tuner.record.recommendation import INSTANCES_VARIABLE, Placement, Recommendation
from tuner.space.launching import PRELOAD


def render(recommendation: Recommendation, command: Sequence[str], source: str) -> str:
    """Return the script; the program is its arguments, or the command that is given here."""
    r = recommendation
    names = "|".join(sorted(r.environment.keys() - {PRELOAD}))
    ours = f"grep -vxE '{names}' | " if names else ""
    said = notes(r, source)
    lines = [
        "#!/bin/sh",
        "# usage: run.sh PROGRAM [ARGUMENT...]",
        *comments(said),
        *([f'set -- {shlex.join(command)} "$@"'] if command else []),
        '[ $# -gt 0 ] || { echo "usage: run.sh PROGRAM [ARGUMENT...]" >&2; exit 2; }',
        f"# {'meant' if r.is_expected else 'measured'} without any other tuning variable: what "
        "your shell sets besides stays in force",
        f"others=$(env | grep -E '^({LINE_PATTERN})' | grep -vE '^({OTHERS_PATTERN})' | "
        f"cut -d= -f1 | {ours}tr '\\n' ' ')",
        '[ -z "$others" ] || echo "run.sh: set in addition, and not measured: $others" >&2',
        f"export {INSTANCES_VARIABLE}={len(r.placements)}",
        *exports(r, "run.sh", first_is_program=True),
        *(_team(r.placements) if len(r.placements) > 1 else [f"exec {_started(r.placements[0])}"]),
    ]
    return "\n".join(lines) + "\n"


def _started(placement: Placement) -> str:
    """Return the shell words that start the program on its CPUs and nodes."""
    return "".join(f"{shlex.quote(word)} " for word in placing_command(placement)) + '"$@"'


def _team(placements: Sequence[Placement]) -> list[str]:
    """Return lines that run every instance, and end with the first one's code that failed."""
    own = [
        {
            "TUNE_FRAMEWORK_RANK": str(rank),
            "TUNE_FRAMEWORK_CPUS": placement.cpus or "",
        }
        for rank, placement in enumerate(placements)
    ]
    return [
        "stopped=0 pids=",
        "stop() { stopped=1; kill $pids 2>/dev/null; }",
        "trap stop HUP INT TERM",
        "exec 3<&0  # the first instance has the standard input",
        *(
            f"{' '.join(f'{k}={shlex.quote(v)}' for k, v in variables.items())} \\\n"
            f'  {_started(placement)} <&3 & pids="$pids $!"; exec 3</dev/null'
            for variables, placement in zip(own, placements, strict=True)
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
