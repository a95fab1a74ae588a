"""tune-framework run: a program under a recommendation."""

from __future__ import annotations

import os
import sys

import typer

from tuner.cli import paths
from tuner.cli.printable import printable
from tuner.deploy.run import CannotRun, execute, prepare
from tuner.deploy.team import run_team
from tuner.errors import UsageError
from tuner.host.identity import probe
from tuner.space.chosen import chosen, is_index
from tuner.space.recommended import read_recommended


def main(
    recommended: str | None, command: list[str], *, model: str, framework: str, quiet: bool
) -> None:
    """Become the command, or run it in several instances; raises CannotRun where impossible."""

    def tell(text: str) -> None:
        if not quiet:
            print(f"tune-framework run: {printable(text)}", file=sys.stderr, flush=True)

    if command and command[0] == "--":
        command = command[1:]
    if not recommended or not command:
        raise CannotRun("name both: tune-framework run recommended.toml -- python serve.py")
    try:
        host = probe()
        path = chosen(paths.path(recommended), host, model, framework)
        if is_index(paths.path(recommended)):
            tell(f"of this kind of host: {path}")
        deployment = prepare(read_recommended(path), host, os.environ)
    except (UsageError, typer.BadParameter) as error:
        raise CannotRun(str(error)) from error
    for note in deployment.notes:
        tell(note)
    if len(deployment.plans) > 1:
        sys.exit(run_team(deployment.plans, command, tell))
    execute(deployment.plans[0], command, tell)
