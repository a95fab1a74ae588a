"""tune-framework --model ...: read the request, run it, show progress and what came of it."""

from __future__ import annotations

import math
import re
import shlex
import sys
from pathlib import Path
from typing import cast

import msgspec
import typer

from tuner.cli import dry_run as dry_run_view
from tuner.cli.errors import complain
from tuner.cli.progress import progress
from tuner.cli.summary import show
from tuner.errors import UnknownName, UsageError
from tuner.host.identity import probe
from tuner.plan import Request, plan
from tuner.record.result import Goal
from tuner.record.workload import FRAMEWORKS
from tuner.space.restrictions import Numerics, parse_restrictions
from tuner.tune import Finished, tune

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}


def parse_duration(text: str) -> float:
    """Read 90s, 10m, 1.5h or 1h30m into seconds; raises UsageError."""
    parts = re.fullmatch(r"(?:\d+(?:\.\d+)?[smh]?)+", text.strip())
    pieces = re.findall(r"(\d+(?:\.\d+)?)([smh]?)", text) if parts else []
    seconds = sum(float(number) * _UNITS[unit] for number, unit in pieces)
    if not 0 < seconds < 1e7:
        raise UsageError(f"--budget {text!r} is not a duration; write 90s, 10m or 1h")
    return seconds


def _check_choice(option: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise UnknownName(f"value of {option}", value, allowed, f"allowed: {', '.join(allowed)}")


def main(
    *,
    model: str | None,
    program: str | None,
    hardware: str,
    frameworks: list[str],
    scenario: str,
    budget: str,
    out: Path | None,
    batch: int | None,
    inputs: Path | None,
    tolerance: float | None,
    allow_pickle: bool,
    numerics: str,
    goal: str,
    learn_from: list[Path],
    set_: list[str],
    fix: list[str],
    exclude: list[str],
    seed: int,
    dry_run: bool,
    as_json: bool,
    command: list[str],
) -> None:
    """Run the request; exits with the worst code of its frameworks."""
    _check_what(model, program, batch=batch, inputs=inputs, tolerance=tolerance)
    _check_choice("--scenario", scenario, ("offline",))
    _check_choice("--numerics", numerics, ("both", "same", "reduced"))
    _check_choice("--goal", goal, ("fastest", "robust"))
    for name in frameworks:
        _check_choice("--framework", name, FRAMEWORKS)
    if tolerance is not None and not math.isfinite(tolerance):
        raise UsageError(f"--tolerance {tolerance} is none; give a finite number such as 0.02")
    request = Request(
        model=model or "",
        program=program,
        hardware=hardware,
        frameworks=tuple(dict.fromkeys(frameworks)),
        budget_s=parse_duration(budget),
        out=out,
        batch=batch,
        inputs=inputs,
        tolerance=tolerance,
        allows_pickle=allow_pickle,
        seed=seed,
        restrictions=parse_restrictions(set_, fix, exclude, cast(Numerics, numerics)),
        goal=cast(Goal, goal),
        learn_from=tuple(learn_from),
        command=shlex.join(["tune-framework", *command]),
    )
    if dry_run:
        host = probe()
        dry_run_view.show(plan(request, host), host, request.budget_s, as_json=as_json)
        return
    with progress(quiet=as_json) as listen:
        finished = tune(request, listen)
    _report(finished, as_json=as_json)
    worst = max(each.exit_code for each in finished)
    if worst:
        raise typer.Exit(worst)


def _check_what(model: str | None, program: str | None, **of_models: object) -> None:
    """Raise UsageError unless there is either a model, or a program without a model's options."""
    if model is not None and program is not None:
        raise UsageError("--command stands instead of --model; give one of them")
    if model is None and program is None:
        raise UsageError(
            "name a model: tune-framework --model resnet50 --hw auto; "
            "list them with: tune-framework models"
        )
    for name, value in of_models.items():
        if program is not None and value is not None:
            raise UsageError(f"--{name} is for a model; the program of --command has its own")


def _report(finished: list[Finished], *, as_json: bool) -> None:
    for each in finished:
        if each.result is None:
            complain(f"{each.framework}: {each.error}")
        elif not as_json:
            show(each.result, each.folder)
    if as_json:
        results = [each.result for each in finished if each.result is not None]
        payload = results[0] if len(finished) == 1 and results else results
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(payload), indent=2).decode())
        sys.stdout.write("\n")
