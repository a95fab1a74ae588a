"""`systemd`: a service unit."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from tuner.output.exports.needs import (
    comments,
    notes,
    placing_command,
)
from tuner.output.exports.preloads import are_found_at_start, in_a_shell
from tuner.record.recommendation import Recommendation

_CONTROLS = frozenset(map(chr, range(1, 32)))
_PROGRAM = ("/usr/bin/python3", "/srv/serve.py")


def render(recommendation: Recommendation, command: Sequence[str], source: str) -> str:
    """Return the unit; several instances are started by run.sh."""
    r = recommendation
    said = notes(r, source)
    words = list(command or _PROGRAM)
    if not command:
        said.append("ExecStart: put your program (export ... -- PROGRAM ARGUMENT...)")
    said.append("WorkingDirectory: systemd starts programs in /; add the folder of yours")
    service = ["Type=exec"]
    if len(r.placements) > 1 or are_found_at_start(r):
        why = f"{len(r.placements)} instances, which one unit cannot place"
        if len(r.placements) == 1:
            why = "a unit cannot look for what pip installed"
        said.append(
            f"{why}: put what export {shlex.quote(source)} --to shell writes where ExecStart says:"
        )
        said += [f"  {name}={value}" for name, value in sorted(in_a_shell(r).items())]
        placed = [" ".join(placing_command(p)) for p in r.placements]
        said += [f"  instance {i}: {each}" for i, each in enumerate(placed) if each]
        words = ["/usr/local/bin/run.sh", *words]
    else:
        service += [f"Environment={_quoted(f'{k}={v}')}" for k, v in sorted(r.environment.items())]
        service += _placed(r)
    service.append(f"ExecStart={' '.join(_quoted(word, runs=True) for word in words)}")
    service.append("Restart=on-failure")
    tuned = "with nothing set" if r.nothing_set else "as tuned by tune-framework"
    unit = f"Description={_plain(r.workload.model)} {tuned}"
    return "\n".join(
        [*comments(said), "", "[Unit]", unit, "", "[Service]", *service, "",
         "[Install]", "WantedBy=multi-user.target", ""]
    )  # fmt: skip


def _placed(recommendation: Recommendation) -> list[str]:
    placement = recommendation.placements[0]
    lines = [f"CPUAffinity={placement.cpus.replace(',', ' ')}"] if placement.cpus else []
    policy, _, nodes = placement.memory_policy.partition(":")
    if policy != "none":
        lines += [f"NUMAPolicy={policy}", f"NUMAMask={nodes}"]
    return lines


def _quoted(text: str, *, runs: bool = False) -> str:
    """Return a word in quotes; systemd expands % everywhere, and $ in what it runs."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    escaped = "".join(f"\\x{ord(c):02x}" if c in _CONTROLS else c for c in escaped)
    return '"' + (escaped.replace("$", "$$") if runs else escaped) + '"'


def _plain(text: str) -> str:
    """Return a text for a description: one line, nothing expanded."""
    shown = "".join(c if c.isprintable() else "?" for c in text)
    return shown.replace("\\", "/").replace("%", "%%")
