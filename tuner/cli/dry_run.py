"""--dry-run: the resolved space, the baselines and a time estimate; nothing is measured."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tuner.app.plan import Plan, outlook
from tuner.app.tune_many import EACH_S, check_budget
from tuner.cli.tables import LEGEND, wide_console
from tuner.host.identity import Host
from tuner.output.phrases import settings
from tuner.record.figures import duration
from tuner.record.index import Row
from tuner.record.workload import OF_PROGRAMS
from tuner.space.as_run import named, removal
from tuner.space.baselines import Baseline, to_measure
from tuner.space.listing import upper_size
from tuner.space.space import Space
from tuner.study.forecast import WANTED_LAUNCHES


def _estimate(plan: Plan, budget_s: float) -> dict[str, float]:
    """Estimate seconds per launch and how many the budget holds."""
    launch_s = plan.launch_s()
    return {"launch_s": launch_s, "launches": budget_s / launch_s}


def _as_data(plan: Plan, host: Host, budget_s: float) -> dict[str, Any]:
    return {
        "workload": msgspec.to_builtins(plan.workload),
        "n_parameters": plan.facts.n_parameters,
        "graph_width": plan.facts.graph_width,
        "graph_fault": plan.facts.graph_fault,
        "host": host.summary(),
        "profile": plan.profile.name,
        "profile_matches": plan.profile_matches,
        "identity": plan.identity,
        "folder": str(plan.folder),
        "outlook": outlook(plan),
        "combinations": upper_size(plan.space),
        "knobs": [
            {
                "knob": k.id,
                "applies": str(k.knob.applies),
                "choices": list(k.choices),
                "default": k.default,
                "dropped": [list(pair) for pair in k.dropped],
                "when": k.when,
                "why": k.why,
                "late": k.is_late,
                "never_live": plan.space.never_live(k.id),
            }
            for k in plan.space.knobs
        ],
        "baselines": [msgspec.to_builtins(b) for b in plan.baselines],
        "earlier": [each.name for each in plan.earlier],
        "environment": plan.environment,
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
    outlooks = [outlook(plan) for plan in plans]  # what cannot be is refused before all else
    console = wide_console()
    console.print(Text(host.summary()))
    for plan, prospect in zip(plans, outlooks, strict=True):
        _answer(console, plan, share_s, prospect)
    for plan in plans:
        _list(console, plan)


def show_several(rows: Sequence[Row], budget_s: float | None, *, as_json: bool) -> None:
    """Print which studies of several models there would be, without building one.

    budget_s: over all of them; None if it was not given. Raises UsageError if it is too short for
    them.
    """
    n_left = sum(row.state == "pending" for row in rows)
    spent_s = sum(row.seconds for row in rows)
    all_s = budget_s or n_left * EACH_S + spent_s
    if as_json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(rows), indent=2).decode() + "\n")
    else:
        _show_rows(rows, n_left, all_s - spent_s)
    check_budget(all_s, spent_s, n_left)


def _show_rows(rows: Sequence[Row], n_left: int, left_s: float) -> None:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("model", "framework", "study"):
        table.add_column(name)
    for row in rows:
        text = f"finished in {row.folder}" if row.state == "done" else "to be carried out"
        text = "cannot be here" if row.state == "failed" else text
        table.add_row(*map(Text, (row.model, row.framework, text)))
    console = wide_console()
    console.print(table)
    text = "nothing is left to be carried out"
    if n_left:
        left_s = max(0.0, left_s)
        text = (
            f"{n_left} to be carried out in {duration(left_s)} (--budget, over all of them), "
            f"{duration(left_s / n_left)} each on average"
        )
    console.print(Text(text))
    console.print(Text("one study in full: --model NAME --dry-run", style="dim"))


def _searched(space: Space) -> Table:
    """Return the knobs that the search may set, late ones last."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("knob", "applies", "choices (default first)", "live when"):
        table.add_column(name, overflow="fold")
    for knob in sorted(space.searched, key=lambda k: k.is_late):
        notes = [f"not {value}: {why}" for value, why in knob.dropped]
        notes += [f"{value} only where {when}" for value, when, _ in knob.beside]
        if conditions := space.asks_knobs(knob.id):
            notes.insert(0, conditions)
        table.add_row(
            knob.id,
            str(knob.knob.applies) + (", late" if knob.is_late else ""),
            Text(", ".join(map(str, knob.choices))),
            Text("; ".join(notes)),
        )
    return table


def _not_searched(space: Space) -> list[str]:
    """Return lines that say why the other knobs stay as they are, grouped by reason."""
    reasons: dict[str, list[str]] = {}
    for knob in space.knobs:
        if len(knob.choices) > 1:
            continue
        why = knob.option or space.never_live(knob.id)
        if not why and knob.alias_of:
            why = f"another name of {knob.alias_of}"
        if not why and knob.dropped:
            why = knob.dropped[0][1]
        if not why and len(knob.all_values) == 1:
            why = "the default is all there is here"
        reasons.setdefault(why or "for baselines and --set only", []).append(knob.id)
    return [f"not searched ({why}): {', '.join(ids)}" for why, ids in reasons.items()]


def _what(plan: Plan) -> str:
    """Say how large the model is and how wide its graph, or why that is not known."""
    facts, card = plan.facts, plan.workload.card
    if card.form in OF_PROGRAMS:
        return f"{card.title}, by its launch settings alone"
    width = f"graph {facts.graph_width:.1f} wide"
    if facts.graph_fault:
        width = f"graph of unknown width ({facts.graph_fault})"
    return f"{facts.n_parameters:,} parameters, {width}"


def _dead(baseline: Baseline) -> list[str]:
    """Return settings without effect here, grouped by reason."""
    reasons: dict[str, list[str]] = {}
    for text in baseline.dead_settings:
        setting, _, why = text.partition(": ")
        reasons.setdefault(why, []).append(setting)
    return [f"no effect: {', '.join(settings)} ({why})" for why, settings in reasons.items()]


def _answer(console: Console, plan: Plan, budget_s: float, prospect: str) -> None:
    """Print what would be tuned, its folder, and what the budget holds."""
    profile = plan.profile.name
    if not plan.profile_matches:
        profile += " (this host is not what it names)"
    console.print()
    title = f"{plan.workload.label()}: {_what(plan)}, profile {profile}"
    console.print(Text(title, style="bold"))
    estimate = _estimate(plan, budget_s)
    console.print(
        Text(
            f"about {estimate['launch_s']:.0f} s a launch without compilation: "
            f"{duration(budget_s)} hold about {estimate['launches']:.0f}; {prospect}"
        )
    )
    if estimate["launches"] < WANTED_LAUNCHES:
        console.print(
            Text(
                f"a study wants some {WANTED_LAUNCHES}: give this framework "
                f"{math.ceil(WANTED_LAUNCHES * estimate['launch_s'] / 60)}m, or some time on a "
                "quieter host",
                style="yellow",
            )
        )
    n_baselines = len(to_measure(plan.baselines))
    console.print(
        f"up to {upper_size(plan.space):,} combinations, and {n_baselines} "
        f"baseline{'' if n_baselines == 1 else 's'} beside the default"
    )
    if plan.environment:
        console.print(Text(removal(plan.environment, named(plan.baselines)), style="yellow"))
    for each in plan.earlier:
        console.print(
            Text(f"learns from {each.name}: {len(each.log_ratios)} configurations", style="dim")
        )


def _list(console: Console, plan: Plan) -> None:
    """List the knobs and the baselines."""
    console.print()
    console.print(Text(f"{plan.workload.label()}: what is searched", style="bold"))
    console.print(_searched(plan.space))
    console.print(Text(LEGEND, style="dim"))
    for line in _not_searched(plan.space):
        console.print(Text(line, style="dim"))
    console.print()
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("baseline", "here", "settings", "not as written"):
        table.add_column(name, overflow="fold")
    for b in plan.baselines:
        here = (
            (f"same as {b.same_as}" if b.same_as else "to be measured")
            if b.is_applicable
            else b.reason
        )
        table.add_row(
            Text(b.name),
            Text(here),
            Text(settings(b.configuration.as_dict()) if b.is_applicable else "-"),
            Text("; ".join((*b.substituted, *_dead(b)))),
        )
    console.print(table)
