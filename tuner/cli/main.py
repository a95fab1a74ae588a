"""tune-framework: the options of a run, and the sub-commands.

Nothing heavy is imported here: --help answers at once.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from typer.exceptions import TyperException

from tuner.cli import paths
from tuner.cli.errors import KEPT, complain, complain_of_output, handled
from tuner.cli.options import (
    AllowPickle,
    Batch,
    BudgetText,
    Designed,
    DryRun,
    Exclude,
    Fix,
    Frameworks,
    GoalName,
    Hw,
    Inputs,
    JsonLines,
    LearnFrom,
    MaxMemory,
    Model,
    Models,
    NumericsName,
    Out,
    Program,
    ScenarioName,
    Seed,
    Set,
    SpaceFile,
    Tolerance,
)
from tuner.cli.streams import open_standard
from tuner.errors import UsageError
from tuner.frameworks import OFFERED_TITLES
from tuner.record.load import OFFLINE
from tuner.version import __version__

app = typer.Typer(
    name="tune-framework",
    help=f"Find the runtime settings that make a {' or '.join(OFFERED_TITLES)} model fastest on "
    "this machine, and prove it.",
    epilog="Example: tune-framework --model resnet50 --hw xeon --budget 20m",
    add_completion=False,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _show_version(value: bool) -> None:
    if value:
        print(f"tune-framework {__version__}")
        raise typer.Exit()


@app.callback(invoke_without_command=True)
def run(
    context: typer.Context,
    model: Model = None,
    models: Models = None,
    command: Program = None,
    inputs: Inputs = None,
    tolerance: Tolerance = None,
    allow_pickle: AllowPickle = False,
    hw: Hw = "auto",
    framework: Frameworks = None,
    scenario: ScenarioName = OFFLINE,
    budget: BudgetText = None,
    out: Out = None,
    batch: Batch = None,
    numerics: NumericsName = "both",
    goal: GoalName = "fastest",
    max_memory: MaxMemory = None,
    set_: Set = None,
    fix: Fix = None,
    exclude: Exclude = None,
    space: SpaceFile = None,
    learn_from: LearnFrom = None,
    designed: Designed = False,
    seed: Seed = 0,
    dry_run: DryRun = False,
    json: JsonLines = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Tune a model on this machine."""
    if context.invoked_subcommand is not None:
        return
    with handled(if_stopped="" if dry_run else KEPT):
        from tuner.cli import tune

        tune.main(
            model=model,
            models=models,
            program=command,
            hardware=_space_or_hw(space, hw),
            frameworks=framework or [],
            scenario=scenario,
            budget=budget,
            out=out,
            batch=batch,
            inputs=inputs,
            tolerance=tolerance,
            allow_pickle=allow_pickle,
            numerics=numerics,
            goal=goal,
            max_memory=max_memory,
            learn_from=learn_from or [],
            designed=designed,
            set_=set_ or [],
            fix=fix or [],
            exclude=exclude or [],
            seed=seed,
            dry_run=dry_run,
            as_json=json,
            command=sys.argv[1:],
        )


def _space_or_hw(space: Path | None, hw: str) -> str:
    if space is None:
        return hw
    if hw != "auto":
        raise UsageError(f"--space {space} stands instead of --hw {hw}; give one of them")
    if not space.is_file():
        raise UsageError(f"there is no file {space}; --space names a TOML file")
    if space.suffix != ".toml":
        raise UsageError(f"{space} does not end in .toml; --space names a TOML file")
    return str(space)


Recommended = Annotated[
    Path, typer.Argument(parser=paths.path, help="A recommended*.toml, or its folder.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command(
    "run",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
def run_program(
    recommended: Annotated[
        str | None, typer.Argument(help="A recommended*.toml, or its folder.")
    ] = None,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="-- CMD...", help="The program.")
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Do not say what is in force.")
    ] = False,
) -> None:
    """Run a program under a recommendation's launch settings."""
    with handled(unforeseen=125):
        from tuner.cli import run

        run.main(recommended, command or [], quiet=quiet)


@app.command()
def hardware(json: AsJson = False) -> None:
    """Show what this machine is and allows."""
    with handled():
        from tuner.cli import hardware

        hardware.main(as_json=json)


@app.command(name="models")
def list_models(
    name: Annotated[str | None, typer.Argument(help="One of them, to tell it in full.")] = None,
    task: Annotated[str | None, typer.Option(help="Only those whose task has this in it.")] = None,
    family: Annotated[str | None, typer.Option(help="Only those of this family.")] = None,
    framework: Annotated[
        str | None, typer.Option(help="Only those that this framework has.")
    ] = None,
    sort: Annotated[str, typer.Option(help="name, parameters or macs (largest first).")] = "name",
    json: AsJson = False,
) -> None:
    """List the built-in models; with a name, tell one in full."""
    with handled():
        from tuner.cli import models

        wanted = models.Wanted(task, family, framework)
        models.main(name, wanted, sort, as_json=json)


@app.command()
def spaces(
    name: Annotated[str | None, typer.Argument(help="A profile, or a TOML file.")] = None,
    json: AsJson = False,
) -> None:
    """List the hardware profiles; with a name, show its knobs and baselines."""
    with handled():
        from tuner.cli import spaces

        spaces.main(name, as_json=json)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(parser=paths.path, help="The folder of a study.")],
    json: AsJson = False,
) -> None:
    """Render a study's reports again from its result.json."""
    with handled():
        from tuner.cli import report

        report.main(folder, as_json=json)


@app.command()
def compare(
    studies: Annotated[
        list[Path], typer.Argument(parser=paths.path, help="Folders that hold studies.")
    ],
    out: Annotated[
        Path | None, typer.Option(parser=paths.file, help="HTML file to write as well.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Put finished studies side by side: models, frameworks, hosts, versions."""
    with handled():
        from tuner.cli import compare

        compare.main(studies, out, as_json=json)


@app.command()
def verify(
    recommended: Recommended,
    model: Annotated[
        str | None, typer.Option(help="Where the model is, if it is not a built-in one.")
    ] = None,
    inputs: Annotated[
        Path | None,
        typer.Option(parser=paths.path, help="The recorded inputs that it was tuned on, if any."),
    ] = None,
    allow_pickle: Annotated[
        bool, typer.Option("--allow-pickle", help="Trust the model file, as when it was tuned.")
    ] = False,
    budget: Annotated[
        str | None,
        typer.Option(help="After so long everything is given up: 90s, 10m (the default)."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A minute.")] = False,
    json: AsJson = False,
) -> None:
    """Prove a recommendation again on this host: exit code 0, 4 (not so) or 5 (not decided)."""
    with handled(if_stopped="nothing is kept of it: the same command begins anew"):
        from tuner.cli import verify

        verify.main(
            recommended,
            model,
            inputs,
            budget,
            allow_pickle=allow_pickle,
            quick=quick,
            as_json=json,
        )


@app.command()
def export(
    recommended: Recommended,
    to: Annotated[
        str,
        typer.Option(
            help="env, shell, docker, kubernetes, systemd, torchserve, tfserving or python."
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(parser=paths.file, help="File to write; otherwise printed.")
    ] = None,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="-- CMD...", help="The program, if any.")
    ] = None,
) -> None:
    """Write a recommendation as a Dockerfile's lines, a manifest, a unit or the like."""
    with handled():
        from tuner.cli import export

        export.main(recommended, to, out, command or [])


@app.command()
def doctor(
    out: Annotated[
        Path, typer.Option(parser=paths.path, help="Where studies would be written.")
    ] = Path("reports"),
    json: AsJson = False,
) -> None:
    """Say what is missing or shaky here, each with the command that mends it."""
    with handled():
        from tuner.cli import doctor

        doctor.main(out, as_json=json)


def command(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code; the option parser complains on one line.

    arguments: those of this process, unless given.
    """
    try:
        return int(app(arguments, standalone_mode=False) or 0)
    except TyperException as error:
        complain(f"{error.format_message()} (tune-framework --help lists what there is)")
        return error.exit_code


def main() -> None:
    """Run the command line on whatever standard streams there are."""
    output = open_standard(complain_of_output)
    code = command()
    sys.stdout.flush()
    sys.exit(code or int(output.is_lost))


if __name__ == "__main__":
    main()
