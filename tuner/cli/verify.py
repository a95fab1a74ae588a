"""tune-framework verify: run_verify a recommendation again on this host."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec
import typer

from tuner.app.request import parse_duration, parse_share, service_of
from tuner.app.verify import VerifyRequest, run_verify
from tuner.cli.printable import printable
from tuner.cli.progress import progress
from tuner.errors import UsageError
from tuner.host.environment import tuning_variables
from tuner.launchers.testbed import THIS_HOST, Testbed
from tuner.study.verification import EXIT_CODES, Verification
from tuner.study.verify import QUICK_S


def main(
    path: Path,
    model: str | None,
    inputs: Path | None,
    trace: Path | None,
    budget: str | None,
    at_least: str | None,
    *,
    service: tuple[str | None, str | None, Path | None, list[str]],
    allow_pickle: bool,
    quick: bool,
    as_json: bool,
    testbed: Testbed | None = None,
) -> None:
    """Verify and print one line; exits with 0, 4 or 5."""
    if quick and budget is not None:
        raise UsageError(f"--quick is a budget of {QUICK_S:.0f} s; leave out --budget {budget}")
    if model is not None and not model.strip():
        raise UsageError("--model is empty; leave it out, or name the model that was tuned")
    seconds = QUICK_S if quick else parse_duration("10m" if budget is None else budget)
    share = None if at_least is None else parse_share(at_least)
    request = VerifyRequest(
        path, seconds, model, inputs, allow_pickle, trace, service_of(*service), share
    )
    with progress(quiet=as_json or not sys.stdout.isatty()) as listen:
        found = run_verify(request, listen, testbed or THIS_HOST)
    _show(found, as_json=as_json)
    if code := EXIT_CODES[found.verdict]:
        raise typer.Exit(code)


def _show(found: Verification, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n")
        return
    for difference in found.differences:
        weight = "" if difference.matters else " (seldom matters)"
        print(printable(f"differs: {difference.in_words()}{weight}"), file=sys.stderr)
    if besides := list(tuning_variables(os.environ)):
        print(f"set in this shell, and not in what is measured: "
              f"{printable(', '.join(besides))}", file=sys.stderr)  # fmt: skip
    print(line(found))


def line(found: Verification) -> str:
    """Sum up on one line."""
    parts = [f"{found.verdict}: {found.reason}"]
    for name, interval in (("here", found.speedup), ("claimed", found.claimed)):
        if interval is not None:
            parts.append(f"{name} {interval.point:.2f}x ({interval.low:.2f} - {interval.high:.2f})")
    n = found.n_rounds
    parts.append(f"{n} round{'' if n == 1 else 's'}, {found.seconds:.0f} s")
    return printable(" ".join("; ".join(parts).split()))
