"""--dry-run: the resolved space, the baselines and a time estimate; nothing is measured."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tuner.cli.progress import duration
from tuner.host.identity import Host
from tuner.output.report import settings
from tuner.tune import Plan


def _estimate(plan: Plan, budget_s: float) -> dict[str, float]:
    """Estimate seconds per launch and how many the budget holds, from the describing child."""
    facts = plan.facts
    launch_s = 1.0 + facts.import_s + facts.build_s + 12 * facts.call_s + 3.0
    return {"launch_s": launch_s, "launches": budget_s / launch_s}


def _as_data(plan: Plan, host: Host, budget_s: float) -> dict[str, Any]:
    return {
        "workload": msgspec.to_builtins(plan.workload),
        "n_parameters": plan.facts.n_parameters,
        "host": host.summary(),
        "profile": plan.profile.name,
        "profile_matches": plan.profile_matches,
        "identity": plan.identity,
        "folder": str(plan.folder),
        "combinations": plan.space.upper_size(),
        "knobs": [
            {
                "knob": k.id,
                "applies": str(k.knob.applies),
                "choices": list(k.choices),
                "default": k.default,
                "dropped": [list(pair) for pair in k.dropped],
                "when": k.when,
                "why": k.why,
            }
            for k in plan.space.knobs
        ],
        "baselines": [msgspec.to_builtins(b) for b in plan.baselines],
        "estimate": _estimate(plan, budget_s),
    }


def show(plans: list[Plan], host: Host, budget_s: float, *, as_json: bool) -> None:
    """Print the plans."""
    share_s = budget_s / len(plans)
    if as_json:
        data = [_as_data(plan, host, share_s) for plan in plans]
        payload = data[0] if len(data) == 1 else data
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(payload), indent=2).decode())
        sys.stdout.write("\n")
        return
    console = Console(highlight=False)
    console.print(Text(host.summary()))
    for plan in plans:
        _show_one(console, plan, share_s)


def _show_one(console: Console, plan: Plan, budget_s: float) -> None:
    profile = plan.profile.name
    if not plan.profile_matches:
        profile += " (this host is not what it names)"
    console.print()
    console.print(
        Text(
            f"{plan.workload.label()}: {plan.facts.n_parameters:,} parameters, profile {profile}",
            style="bold",
        )
    )
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("knob", "applies", "choices (default first)", "live when / missing"):
        table.add_column(name, overflow="fold")
    for knob in plan.space.knobs:
        notes = [f"not {value}: {why}" for value, why in knob.dropped]
        if knob.when:
            notes.append(f"{knob.when}" + (f" (else {knob.why})" if knob.why else ""))
        table.add_row(
            knob.id,
            str(knob.knob.applies),
            Text(", ".join(map(str, knob.choices))),
            Text("; ".join(notes)),
        )
    console.print(table)
    console.print(f"up to {plan.space.upper_size()} combinations\n")
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("baseline", "here", "settings", "dead settings"):
        table.add_column(name, overflow="fold")
    for b in plan.baselines:
        here = (
            (f"same as {b.same_as}" if b.same_as else "measured") if b.is_applicable else b.reason
        )
        table.add_row(
            b.name,
            Text(here),
            Text(settings(b.configuration.as_dict())),
            Text("; ".join(b.dead_settings)),
        )
    console.print(table)
    estimate = _estimate(plan, budget_s)
    console.print(
        f"about {estimate['launch_s']:.0f} s a launch without compilation: {duration(budget_s)} "
        f"hold about {estimate['launches']:.0f}; the study would lie in {plan.folder}"
    )
