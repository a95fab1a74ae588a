"""tune-framework --model ...: read the request, run it, show progress and what came of it."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import typer
from rich.console import Console

from tuner.app.plan import plan
from tuner.app.request import (
    Request,
    parse_costs,
    parse_duration,
    parse_size,
    parse_slo,
    scenario_of,
    service_of,
)
from tuner.app.tune import tune
from tuner.app.tune_many import folder_of, rows_of, tune_several
from tuner.cli import dry_run as dry_run_view
from tuner.cli.config import write_config
from tuner.cli.errors import complain
from tuner.cli.json_lines import write_line
from tuner.cli.paths import is_utf8
from tuner.cli.progress import plain, progress
from tuner.cli.streams import is_output_lost
from tuner.cli.summary import show_all, show_index
from tuner.errors import UsageError
from tuner.host.identity import probe
from tuner.host.secrets import redacted, stated
from tuner.launchers.testbed import THIS_HOST, Testbed
from tuner.record.events import Event, StudyBegins
from tuner.record.numerics import Numerics
from tuner.space.restrictions import parse_restrictions

DEFAULT_BUDGET = "10m"


def main(
    *,
    model: str | None,
    models: str | None,
    fleet: str | None,
    confirm_on: int | None,
    storage: str | None,
    program: str | None,
    serve: str | None,
    url: str | None,
    requests: Path | None,
    headers: list[str],
    hardware: str,
    frameworks: list[str],
    scenario: str | None,
    mode: str | None,
    callers: int | None,
    slo: str | None,
    trace: Path | None,
    budget: str | None,
    extend: str | None,
    out: Path | None,
    batch: int | None,
    batch_dim: int | None,
    inputs: Path | None,
    tolerance: float | None,
    allow_pickle: bool,
    max_memory: str | None,
    accept_cost: str | None,
    price_per_hour: float | None,
    numerics: str,
    goal: str,
    learn_from: list[Path],
    guidelines: Path | None,
    designed: bool,
    set_: list[str],
    fix: list[str],
    exclude: list[str],
    seed: int,
    dry_run: bool,
    as_json: bool,
    options: Mapping[str, Any],
    command: list[str],
    testbed: Testbed | None = None,
) -> None:
    """Read the request; then print the plan, or carry it out.

    options: those that are not defaults, to be kept with the study. testbed: this host if None.
    """
    testbed = testbed or THIS_HOST
    if unreadable := next((each for each in command if not is_utf8(each)), None):
        raise UsageError(f"{unreadable!r} is not UTF-8: no file of a study could hold it")
    service = service_of(serve, url, requests, headers)
    of_models = {
        "batch": batch, "batch-dim": batch_dim, "inputs": inputs, "tolerance": tolerance
    }  # fmt: skip
    _check_what(model, models, program, serve, **of_models)
    _check_fleet(fleet, models, confirm_on, storage)
    _check_extend(extend, budget, models)
    request = Request(
        model=model or "",
        program=program,
        service=service,
        hardware=hardware,
        frameworks=tuple(dict.fromkeys(frameworks)),
        budget_s=parse_duration(extend or budget or DEFAULT_BUDGET),
        extends=extend is not None,
        out=out,
        batch=batch,
        batch_dim=batch_dim,
        inputs=inputs,
        tolerance=tolerance,
        allows_pickle=allow_pickle,
        seed=seed,
        restrictions=parse_restrictions(set_, fix, exclude, cast(Numerics, numerics)),
        scenario=scenario_of(scenario, mode, is_served=service is not None),
        callers=callers,
        slo="" if slo is None else _checked(slo, parse_slo),
        trace=trace,
        goal=goal,
        price_per_hour=price_per_hour,
        max_memory="" if max_memory is None else _checked(max_memory, parse_size),
        accept_cost=() if accept_cost is None else parse_costs(accept_cost),
        learn_from=tuple(learn_from),
        guidelines=guidelines,
        designed=designed,
        command=redacted(shlex.join(["tune-framework", *command])),
        environment=stated(os.environ),
    )
    if fleet is not None and models is not None:
        from tuner.cli import fleet as of_fleet

        if dry_run:
            of_fleet.show_wishes(models, request, as_json=as_json)
        else:
            n_elsewhere = 1 if confirm_on is None else confirm_on
            of_fleet.main(models, request, fleet, n_elsewhere, storage, as_json=as_json)
    elif models is not None and dry_run:
        listen = plain(Console(file=sys.stderr, highlight=False))
        all_s = None if budget is None else request.budget_s
        dry_run_view.show_several(rows_of(models, request, listen, testbed), all_s, as_json=as_json)
    elif models is not None:
        all_s = None if budget is None else request.budget_s
        _tune_several(models, request, all_s, options, testbed, as_json=as_json)
    elif dry_run:
        host = probe()
        listen = plain(Console(file=sys.stderr, highlight=False))
        plans = plan(request, host, listen, testbed=testbed)
        dry_run_view.show(plans, host, request.budget_s, as_json=as_json)
    else:
        _tune(request, options, testbed, as_json=as_json)


def _checked(text: str, parse: Callable[[str], object]) -> str:
    """Return the request as typed; raises UsageError if it cannot be read."""
    parse(text)
    return text.strip()


def _tune(request: Request, options: Mapping[str, Any], testbed: Testbed, *, as_json: bool) -> None:
    """Tune, tell how it goes and what came of it; exits with the worst code of its frameworks."""
    with progress(quiet=as_json) as show_progress:

        def listen(event: Event) -> None:
            if isinstance(event, StudyBegins):
                write_config(Path(event.folder), options)
            show_progress(event)
            if as_json:
                write_line(event)

        finished = tune(request, listen, testbed)
    for each in finished:
        if each.result is None:
            complain(f"{each.framework}: {each.error}")
    if not as_json:
        show_all([(each.result, each.folder) for each in finished if each.result is not None])
    if is_output_lost():
        for folder in (shlex.quote(str(f.folder)) for f in finished if f.result is not None):
            complain(f"nothing else is lost; print what was found: tune-framework report {folder}")
    worst = max(each.exit_code for each in finished)
    if worst:
        raise typer.Exit(worst)


def _tune_several(
    wanted: str,
    request: Request,
    budget_s: float | None,
    options: Mapping[str, Any],
    testbed: Testbed,
    *,
    as_json: bool,
) -> None:
    """Tune models one after another and say where their index is; exits with their worst code."""
    with progress(quiet=as_json) as show_progress:

        def listen(event: Event) -> None:
            if isinstance(event, StudyBegins):
                write_config(folder_of(request), options)
            show_progress(event)
            if as_json:
                write_line(event)

        rows = tune_several(wanted, request, listen, budget_s=budget_s, testbed=testbed)
    if not as_json:
        show_index(folder_of(request), rows)
    for row in rows:
        if row.state == "failed":
            complain(f"{row.model} in {row.framework}: {row.reason}")
    if is_output_lost():
        complain(f"nothing else is lost: see {shlex.quote(str(folder_of(request) / 'index.md'))}")
    worst = max(row.exit_code for row in rows)
    if worst or any(row.state != "done" for row in rows):
        raise typer.Exit(worst or 1)


def _check_extend(extend: str | None, budget: str | None, models: str | None) -> None:
    """Raise UsageError for options that --extend excludes."""
    if extend is None:
        return
    if budget is not None:
        raise UsageError(
            f"--extend {extend} and --budget {budget} both say how long to go on: give --extend, "
            "which is on top of what was used, or a larger --budget, which is over all"
        )
    if models is not None:
        raise UsageError(
            "--extend continues the study of one model: name it with --model, and its folder "
            "with --out"
        )


def _check_fleet(
    fleet: str | None,
    models: str | None,
    confirm_on: int | None,
    storage: str | None,
) -> None:
    """Raise UsageError for options that only fleets have, and for those that they do not have."""
    for name, value in (("--confirm-on", confirm_on), ("--storage", storage)):
        if fleet is None and value is not None:
            raise UsageError(f"{name} is for --fleet, the studies of many hosts: leave it out")
    if fleet is None:
        return
    if models is None:
        raise UsageError("--fleet tunes several models on many hosts: name them with --models")
    if fleet != "auto" and not fleet.startswith("ray://"):
        raise UsageError(
            f"--fleet {fleet!r} is no cluster: write ray://HOST:PORT (the port of its client "
            "server, 10001), or auto on one of its hosts"
        )


def _check_what(
    model: str | None,
    models: str | None,
    program: str | None,
    serve: str | None,
    **of_models: object,
) -> None:
    """Raise UsageError unless there is one thing to tune, and a program without models' options."""
    given = {"--model": model, "--models": models, "--command": program, "--serve": serve}
    names = [name for name, value in given.items() if value is not None]
    if len(names) > 1:
        raise UsageError(f"{' and '.join(names)} exclude each other; give one of them")
    if models is not None and of_models["inputs"] is not None:
        raise UsageError("--inputs are those of one model; give it with --model")
    if not names:
        raise UsageError(
            "name a model: tune-framework --model resnet50 --hw auto; "
            "list them with: tune-framework models"
        )
    for name, value in of_models.items():
        for option, started in (("--command", program), ("--serve", serve)):
            if started is not None and value is not None:
                raise UsageError(f"--{name} is for a model; the program of {option} has its own")
