"""tune-framework time-to-target: train a recommendation and the default to a quality target."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import msgspec
import typer

from tuner.app.request import parse_duration, parse_margin
from tuner.app.time_to_target import TimeToTargetRequest, run_time_to_target
from tuner.cli.printable import printable
from tuner.errors import UsageError
from tuner.launchers.testbed import THIS_HOST, Testbed
from tuner.output.training import time_to_target_in_words

EXIT_CODES = {"as_good": 0, "worse": 4, "undecided": 5}
"""As those of `verify`."""


class Settings(NamedTuple):
    """What is trained without a recommendation."""

    fix: tuple[str, ...]
    framework: str | None
    batch: int | None
    out: Path | None


def main(
    path: Path | None,
    model: str | None,
    budget: str,
    margin: str,
    *,
    settings: Settings,
    allow_pickle: bool,
    as_json: bool,
    testbed: Testbed | None = None,
) -> None:
    """Train, and print what it shows; exits with 0, 4 or 5."""
    if model is not None and not model.strip():
        raise UsageError("--model is empty; leave it out, or name the model that was tuned")
    request = TimeToTargetRequest(
        path,
        parse_duration(budget),
        model,
        *settings,
        allows_pickle=allow_pickle,
        margin=parse_margin(margin),
    )

    def show(line: str) -> None:
        print(printable(line), file=sys.stderr, flush=True)

    found = run_time_to_target(request, show, testbed or THIS_HOST)
    if as_json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n")
    else:
        print(printable(time_to_target_in_words(found)))
    if code := EXIT_CODES[found.verdict]:
        raise typer.Exit(code)
