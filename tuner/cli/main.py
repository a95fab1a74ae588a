"""tune-framework: the options of a run; the sub-commands stand in subcommands.py.

Nothing heavy is imported here: --help answers at once.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.exceptions import TyperException
from typer.main import get_command

from tuner.cli import subcommands
from tuner.cli.config import given_options
from tuner.cli.errors import KEPT, complain, complain_of_output, handled
from tuner.cli.options import (
    AcceptCost,
    AllowPickle,
    Batch,
    BatchDim,
    BudgetText,
    Callers,
    Config,
    ConfirmOn,
    Designed,
    DryRun,
    Exclude,
    ExtendText,
    Fix,
    Fleet,
    Frameworks,
    GoalName,
    HeaderTexts,
    Hw,
    Inputs,
    JsonLines,
    LearnFrom,
    MaxMemory,
    Mode,
    Model,
    Models,
    NumericsName,
    Out,
    PricePerHour,
    Program,
    Requests,
    Rules,
    ScenarioName,
    Seed,
    ServeCommand,
    Set,
    SloText,
    SpaceFile,
    StorageUrl,
    Tolerance,
    TraceFile,
    Url,
)
from tuner.cli.parsing import RunOrCommand, StrictCommand
from tuner.cli.streams import open_standard
from tuner.errors import UsageError
from tuner.frameworks import OFFERED_TITLES
from tuner.launchers.clock import WALL_CLOCK
from tuner.version import __version__

if TYPE_CHECKING:
    from tuner.launchers.testbed import Testbed

_BEGAN_S = time.monotonic() - time.process_time()
"""When the process of this command was started, apart from its waiting."""

app = typer.Typer(
    name="tune-framework",
    help=f"Find the runtime settings that make a {' or '.join(OFFERED_TITLES)} model fastest on "
    "this machine.",
    epilog="All options: tune-framework tune --help.",
    cls=RunOrCommand,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _show_version(value: bool) -> None:
    if value:
        print(f"tune-framework {__version__}")
        raise typer.Exit()


@app.callback(invoke_without_command=True)
@app.command("tune", cls=StrictCommand)
def run(
    context: typer.Context,
    model: Model = None,
    hw: Hw = "auto",
    framework: Frameworks = None,
    budget: BudgetText = None,
    extend: ExtendText = None,
    mode: Mode = None,
    scenario: ScenarioName = None,
    slo: SloText = None,
    numerics: NumericsName = "both",
    max_memory: MaxMemory = None,
    out: Out = None,
    config: Config = None,
    dry_run: DryRun = False,
    json: JsonLines = False,
    inputs: Inputs = None,
    batch: Batch = None,
    batch_dim: BatchDim = None,
    tolerance: Tolerance = None,
    allow_pickle: AllowPickle = False,
    command: Program = None,
    serve: ServeCommand = None,
    url: Url = None,
    requests: Requests = None,
    header: HeaderTexts = None,
    goal: GoalName = "fastest",
    accept_cost: AcceptCost = None,
    callers: Callers = None,
    trace: TraceFile = None,
    price_per_hour: PricePerHour = None,
    set_: Set = None,
    fix: Fix = None,
    exclude: Exclude = None,
    space: SpaceFile = None,
    learn_from: LearnFrom = None,
    guidelines: Rules = None,
    designed: Designed = False,
    seed: Seed = 0,
    models: Models = None,
    fleet: Fleet = None,
    confirm_on: ConfirmOn = None,
    storage: StorageUrl = None,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Tune a model: the default command."""
    if context.invoked_subcommand is not None:
        return
    with handled(if_stopped="" if dry_run else KEPT):
        from tuner.cli import tune

        tune.main(
            model=model,
            models=models,
            fleet=fleet,
            confirm_on=confirm_on,
            storage=storage,
            program=command,
            serve=serve,
            url=url,
            requests=requests,
            headers=header or [],
            hardware=_space_or_hw(space, hw),
            frameworks=framework or [],
            scenario=scenario,
            mode=mode,
            callers=callers,
            slo=slo,
            trace=trace,
            budget=budget,
            extend=extend,
            out=out,
            batch=batch,
            batch_dim=batch_dim,
            inputs=inputs,
            tolerance=tolerance,
            allow_pickle=allow_pickle,
            numerics=numerics,
            goal=goal,
            max_memory=max_memory,
            accept_cost=accept_cost,
            price_per_hour=price_per_hour,
            learn_from=learn_from or [],
            guidelines=guidelines,
            designed=designed,
            set_=set_ or [],
            fix=fix or [],
            exclude=exclude or [],
            seed=seed,
            dry_run=dry_run,
            as_json=json,
            options=given_options(context),
            command=sys.argv[1:],
            testbed=context.obj,
        )


def _space_or_hw(space: Path | None, hw: str) -> str:
    if space is None:
        return hw
    if hw != "auto":
        raise UsageError(f"--space {space} excludes --hw {hw}; give one of them")
    if not space.is_file():
        raise UsageError(f"there is no file {space}; --space names a TOML file")
    if space.suffix != ".toml":
        raise UsageError(f"{space} does not end in .toml; --space names a TOML file")
    return str(space)


app.add_typer(subcommands.app)


@functools.cache
def _parser() -> Callable[..., Any]:
    """Return what parses a command line: one of all commands, which take 20 ms to put together."""
    return get_command(app)


def command(arguments: Sequence[str] | None = None, testbed: Testbed | None = None) -> int:
    """Run a command line and return its exit code; the option parser complains on one line.

    arguments: those of this process by default. testbed: where it measures, if not on this host.
    """
    try:
        return int(_parser()(arguments, "tune-framework", standalone_mode=False, obj=testbed) or 0)
    except TyperException as error:
        complain(f"{error.format_message()} ({_help_of(error)} lists what there is)")
        return error.exit_code


def _help_of(error: TyperException) -> str:
    """Return the command whose help says what is allowed."""
    context: typer.Context | None = getattr(error, "ctx", None)
    if context is None or context.parent is None:
        return "tune-framework --help"
    return f"tune-framework {context.info_name} --help"


def main(testbed: Testbed | None = None) -> None:
    """Run the command line on whatever standard streams there are."""
    WALL_CLOCK.count_from(_BEGAN_S)
    output = open_standard(complain_of_output)
    code = command(testbed=testbed)
    sys.stdout.flush()
    sys.exit(code or int(output.is_lost))


if __name__ == "__main__":
    main()
