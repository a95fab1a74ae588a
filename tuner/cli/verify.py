"""tune-framework verify: prove a recommendation again on this host."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import msgspec
import typer

from tuner.cli.progress import progress
from tuner.cli.tune import parse_duration
from tuner.deploy.verify import EXIT_CODES, QUICK_S, Verification, nothing_to_prove, verify
from tuner.errors import UsageError
from tuner.host.environment import tuning_variables
from tuner.host.identity import Host, probe
from tuner.plan import Plan, Request, plan
from tuner.record.files import read_recommendation
from tuner.record.recommendation import Recommendation


def main(
    path: Path,
    model: str | None,
    inputs: Path | None,
    budget: str | None,
    *,
    allow_pickle: bool,
    quick: bool,
    as_json: bool,
) -> None:
    """Verify and print one line; exits with 0, 4 or 5."""
    began = time.monotonic()
    if quick and budget is not None:
        raise UsageError(f"--quick is a budget of {QUICK_S:.0f} s; leave out --budget {budget}")
    seconds = QUICK_S if quick else parse_duration(budget or "10m")
    recommendation = read_recommendation(path)
    host = probe()
    if not recommendation.settings:
        _show(nothing_to_prove(recommendation, host), as_json=as_json)
        return
    planned = _plan(path, recommendation, model, inputs, host, allow_pickle=allow_pickle)
    with progress(quiet=as_json or not sys.stdout.isatty()) as listen:
        left_s = seconds - (time.monotonic() - began)
        found = verify(recommendation, planned.workload, planned.facts, host, left_s, listen)
    found = msgspec.structs.replace(found, seconds=round(time.monotonic() - began, 1))
    _show(found, as_json=as_json)
    if code := EXIT_CODES[found.verdict]:
        raise typer.Exit(code)


def _plan(
    path: Path,
    recommendation: Recommendation,
    model: str | None,
    inputs: Path | None,
    host: Host,
    *,
    allow_pickle: bool,
) -> Plan:
    """Find the model that was tuned; raises UsageError where it is another, or cannot be known."""
    workload = recommendation.workload
    if workload.default_batch is None:
        raise UsageError(f"{path} was written by an older version, which did not note at which "
                         "batch the default was fastest: tune again")  # fmt: skip
    if workload.form == "program":
        raise UsageError(f"{path} is of a program (--command), which cannot be verified: measure "
                         f"it under: tune-framework run {path} -- PROGRAM")  # fmt: skip
    held_to = recommendation.tolerances
    by_drift = held_to.numerics == "reduced" and held_to.max_accuracy_loss is None
    request = Request(
        model=model or workload.model,
        frameworks=(workload.framework,),
        inputs=inputs,
        tolerance=held_to.max_drift if by_drift else None,
        allows_pickle=allow_pickle,
    )
    (planned,) = plan(request, host)
    if planned.workload.card.source_sha256 != workload.source_sha256:
        raise UsageError(f"{request.model} is not the model that was tuned (its file differs): "
                         "name that one with --model, or tune this one")  # fmt: skip
    return planned


def _show(found: Verification, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n")
        return
    for difference in found.differences:
        weight = "" if difference.matters else " (seldom matters)"
        print(f"differs: {difference.what}: {difference.there} there, {difference.here} here"
              f"{weight}", file=sys.stderr)  # fmt: skip
    if besides := list(tuning_variables(os.environ)):
        print(f"set in this shell, and not where it was measured: {', '.join(besides)}",
              file=sys.stderr)  # fmt: skip
    print(line(found))


def line(found: Verification) -> str:
    """Sum up on one line."""
    parts = [f"{found.verdict}: {found.reason}"]
    for name, interval in (("here", found.speedup), ("claimed", found.claimed)):
        if interval is not None:
            parts.append(f"{name} {interval.point:.2f}x ({interval.low:.2f} - {interval.high:.2f})")
    n = found.n_rounds
    parts.append(f"{n} round{'' if n == 1 else 's'}, {found.seconds:.0f} s")
    return " ".join("; ".join(parts).split())
