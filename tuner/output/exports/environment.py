"""`env`: NAME=VALUE lines for a shell, systemd's EnvironmentFile and docker --env-file."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from tuner.output.exports.needs import (
    comments,
    notes,
    placing_command,
    refuse_command,
)
from tuner.output.exports.preloads import are_found_at_start, in_a_shell
from tuner.record.recommendation import Recommendation
from tuner.space.launching import PRELOAD

_LITERAL = re.compile(r"[A-Za-z0-9_./:,=+@%{}-]*")
"""The characters that all three formats take literally."""


def render(recommendation: Recommendation, command: Sequence[str], source: str) -> str:
    """Return the lines; a value that no quoting makes the same for all three is a comment."""
    r = recommendation
    refuse_command("env", command)
    said = [*notes(r, source), *_placing(r)]
    lines = comments(said)
    for name, value in sorted(r.environment.items()):
        if name == PRELOAD and are_found_at_start(r):
            found = in_a_shell(r)[PRELOAD]
            lines += comments([f"set it where the program is started: export {name}={found}"])
            continue
        if "'" in value or "\\" in value:
            lines += comments([f"set it where the program is started: {name}={value}"])
            continue
        if not _LITERAL.fullmatch(value):
            lines += comments([f"docker --env-file would keep the quotes: give it -e {name}=..."])
            lines.append(f"{name}={shlex.quote(value)}")
        else:
            lines.append(f"{name}={value}")
    return "".join(f"{line}\n" for line in lines)


def _placing(recommendation: Recommendation) -> list[str]:
    placements = recommendation.placements
    if len(placements) > 1:
        each = [f"  {' '.join(placing_command(p))}" for p in placements]
        return [f"needs, which variables cannot do: {len(placements)} instances, each started by",
                *each]  # fmt: skip
    placed = placing_command(placements[0])
    return [f"needs, which variables cannot do: {' '.join(placed)}"] if placed else []
