"""The sub-commands of tune-framework: their options, and the modules that carry them out.

Nothing heavy is imported here: --help answers at once.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated

import typer

from tuner.cli import paths
from tuner.cli.errors import handled
from tuner.cli.options import (
    AllowPickle,
    Batch,
    BatchDim,
    Frameworks,
    HeaderTexts,
    Hw,
    Inputs,
    NumericsName,
    Requests,
    ServeCommand,
    Url,
)
from tuner.cli.parsing import StrictCommand

app = typer.Typer()
_command = functools.partial(app.command, cls=StrictCommand)

Recommended = Annotated[
    Path, typer.Argument(parser=paths.path, help="A recommended*.toml, or its folder.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@_command(
    "run",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
def run_program(
    recommended: Annotated[
        str | None,
        typer.Argument(
            help="A recommended*.toml, its folder, or an index of several studies: then the one "
            "for this kind of host."
        ),
    ] = None,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="-- CMD...", help="The program.")
    ] = None,
    model: Annotated[str, typer.Option(help="The model, if it is an index.")] = "",
    framework: Annotated[str, typer.Option(help="The framework, if it is an index.")] = "",
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Do not report what is in force.")
    ] = False,
) -> None:
    """Run a program under a recommendation's settings."""
    with handled(unforeseen=125):
        from tuner.cli import run

        run.main(recommended, command or [], model=model, framework=framework, quiet=quiet)


@_command()
def hardware(json: AsJson = False) -> None:
    """Show the machine and what it allows."""
    with handled():
        from tuner.cli import hardware

        hardware.main(as_json=json)


@_command(name="models")
def list_models(
    name: Annotated[str | None, typer.Argument(help="A model, to show it in full.")] = None,
    task: Annotated[str | None, typer.Option(help="Only models whose task contains this.")] = None,
    family: Annotated[str | None, typer.Option(help="Only models of this family.")] = None,
    framework: Annotated[
        str | None, typer.Option(help="Only models that this framework has.")
    ] = None,
    sort: Annotated[str, typer.Option(help="name, parameters or macs (largest first).")] = "name",
    json: AsJson = False,
) -> None:
    """List the built-in models, or show one of them."""
    with handled():
        from tuner.cli import models

        wanted = models.Wanted(task, family, framework)
        models.main(name, wanted, sort, as_json=json)


@_command()
def spaces(
    name: Annotated[str | None, typer.Argument(help="A profile, or a TOML file.")] = None,
    json: AsJson = False,
) -> None:
    """List the hardware profiles, or show the settings of one."""
    with handled():
        from tuner.cli import spaces

        spaces.main(name, as_json=json)


@_command()
def report(
    folder: Annotated[Path, typer.Argument(parser=paths.path, help="The folder of a study.")],
    json: AsJson = False,
) -> None:
    """Render a study's reports again from its result.json."""
    with handled():
        from tuner.cli import report

        report.main(folder, as_json=json)


@_command()
def compare(
    studies: Annotated[list[Path], typer.Argument(parser=paths.path, help="Folders with studies.")],
    out: Annotated[
        Path | None, typer.Option(parser=paths.file, help="HTML file to write too.")
    ] = None,
    csv: Annotated[
        Path | None,
        typer.Option(parser=paths.file, help="CSV file to write: a row per study and class."),
    ] = None,
    parquet: Annotated[
        Path | None, typer.Option(parser=paths.file, help="Parquet file to write, with the same.")
    ] = None,
    fail_if: Annotated[
        str | None,
        typer.Option(
            metavar="slower:5%",
            help="Exit with 4 if the later of two studies of a workload is surely slower by more "
            "than this, with 5 if that is not decided.",
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Compare finished studies."""
    with handled():
        from tuner.cli import compare

        compare.main(studies, out, csv, parquet, fail_if, as_json=json)


@_command()
def verify(
    context: typer.Context,
    recommended: Recommended,
    model: Annotated[
        str | None, typer.Option(help="The model's path, if it is not built in.")
    ] = None,
    inputs: Annotated[
        Path | None,
        typer.Option(parser=paths.path, help="The recorded inputs that it was tuned on, if any."),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            parser=paths.path, help="The path of the recorded arrivals, if they were moved."
        ),
    ] = None,
    serve: ServeCommand = None,
    url: Url = None,
    requests: Requests = None,
    header: HeaderTexts = None,
    allow_pickle: Annotated[
        bool, typer.Option("--allow-pickle", help="Trust the model file, as when it was tuned.")
    ] = False,
    budget: Annotated[
        str | None,
        typer.Option(help="Time limit: 90s, 10m (the default)."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A minute.")] = False,
    at_least: Annotated[
        str | None,
        typer.Option(
            help="Share of the claimed gain (speedup - 1) that must surely be there: 90% of a "
            "claimed 1.30x is 1.27x. Exit code 0: it is, 4: surely less, 5: not decided. Without "
            "it: 0 unless the gain is surely less than claimed."
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Measure a recommendation again on this host.

    The exit code is 0 if it is confirmed, 4 if it is refuted, 5 if it is not decided.
    """
    with handled(if_stopped="nothing is kept of it: the same command begins anew"):
        from tuner.cli import verify

        verify.main(
            recommended,
            model,
            inputs,
            trace,
            budget,
            at_least,
            service=(serve, url, requests, header or []),
            allow_pickle=allow_pickle,
            quick=quick,
            as_json=json,
            testbed=context.obj,
        )


@_command(name="time-to-target")
def time_to_target(
    context: typer.Context,
    recommended: Annotated[
        Path | None,
        typer.Argument(
            parser=paths.path, help="A recommended*.toml, or its folder; or --model and --fix."
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="The model's path; of a recommendation if it is not built in."),
    ] = None,
    fix: Annotated[
        list[str] | None,
        typer.Option(metavar="KNOB=VALUE", help="A setting, without a recommendation."),
    ] = None,
    framework: Annotated[
        str | None, typer.Option(help="With --fix, if the model is there for several.")
    ] = None,
    batch: Batch = None,
    out: Annotated[
        Path | None, typer.Option(parser=paths.path, help="With --fix: folder of the runs.")
    ] = None,
    budget: Annotated[
        str, typer.Option(help="Time limit: 90s, 10m. The same command goes on.")
    ] = "10m",
    margin: Annotated[
        str, typer.Option(help="Share of additional steps that is not accepted.")
    ] = "5%",
    allow_pickle: Annotated[
        bool, typer.Option("--allow-pickle", help="Trust the model file, as when it was tuned.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Train to a quality target, and compare configurations.

    Pairs of runs, of the default and of the configuration, have the same seed. The exit code is 0
    if it is shown to need less than the margin more steps, 4 if it needs more, 5 if that is not
    decided.
    """
    with handled(if_stopped="every run that has ended is kept: the same command goes on"):
        from tuner.cli import time_to_target

        time_to_target.main(
            recommended,
            model,
            budget,
            margin,
            settings=time_to_target.Settings(tuple(fix or ()), framework, batch, out),
            allow_pickle=allow_pickle,
            as_json=json,
            testbed=context.obj,
        )


@_command()
def explain(
    context: typer.Context,
    recommended: Annotated[
        Path | None,
        typer.Argument(parser=paths.path, help="A recommended*.toml, or its folder; or --model."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="A model; of a recommendation, its path, if it is not built in."),
    ] = None,
    fix: Annotated[
        list[str] | None,
        typer.Option(metavar="KNOB=VALUE", help="A setting, without a recommendation."),
    ] = None,
    framework: Annotated[
        str | None, typer.Option(help="With --model, if it is there for several.")
    ] = None,
    batch: Batch = None,
    inputs: Annotated[
        Path | None,
        typer.Option(parser=paths.path, help="The recorded inputs that it was tuned on, if any."),
    ] = None,
    budget: Annotated[str, typer.Option(help="Time limit: 90s, 10m.")] = "10m",
    allow_pickle: Annotated[
        bool, typer.Option("--allow-pickle", help="Trust the model file, as when it was tuned.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Say why a winner is faster, and where its time goes.

    It is profiled beside the default, without a search.
    """
    with handled(if_stopped="nothing is kept of it: the same command begins anew"):
        from tuner.cli import explain

        explain.main(
            recommended,
            model,
            inputs,
            budget,
            settings=explain.Settings(tuple(fix or ()), framework, batch),
            allow_pickle=allow_pickle,
            as_json=json,
            testbed=context.obj,
        )


@_command()
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
    """Write a recommendation for Docker, Kubernetes, systemd, ..."""
    with handled():
        from tuner.cli import export

        export.main(recommended, to, out, command or [])


@_command()
def doctor(
    out: Annotated[
        Path, typer.Option(parser=paths.path, help="Where studies would be written.")
    ] = Path("reports"),
    json: AsJson = False,
) -> None:
    """List what disturbs measurements here, and how to fix it."""
    with handled():
        from tuner.cli import doctor

        doctor.main(out, as_json=json)


@_command()
def guidelines(
    studies: Annotated[
        list[Path],
        typer.Argument(parser=paths.path, help="Folders with studies made with --designed."),
    ],
    out: Annotated[
        Path, typer.Option(parser=paths.path, help="Folder for the rules and their page.")
    ] = Path("reports/guidelines"),
    json: AsJson = False,
) -> None:
    """Distil many studies into rules, each with its effect."""
    with handled():
        from tuner.cli import guidelines

        guidelines.main(studies, out, as_json=json)


@_command()
def recommend(
    model: Annotated[str, typer.Option(help="As for tuning: a built-in model, or yours.")],
    hw: Hw = "auto",
    framework: Frameworks = None,
    batch: Batch = None,
    batch_dim: BatchDim = None,
    inputs: Inputs = None,
    numerics: NumericsName = "both",
    allow_pickle: AllowPickle = False,
    rules: Annotated[
        Path | None,
        typer.Option("--guidelines", parser=paths.path, help="A guidelines.json, or its folder."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(parser=paths.path, help="Folder for the settings.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Predict the settings of a model, without measuring."""
    with handled(if_stopped="nothing is kept of it: the same command begins anew"):
        from tuner.cli import recommend

        recommend.main(
            model,
            as_json=json,
            hw=hw,
            framework=framework or [],
            batch=batch,
            batch_dim=batch_dim,
            inputs=inputs,
            numerics=numerics,
            allow_pickle=allow_pickle,
            guidelines=rules,
            out=out,
        )


@_command()
def lint(
    file: Annotated[
        Path,
        typer.Argument(
            parser=paths.path, help="An env file, a shell script, a Dockerfile, a unit, a manifest."
        ),
    ],
    model: Annotated[
        str | None, typer.Option(help="The model that it starts: guidelines depend on it.")
    ] = None,
    hw: Hw = "auto",
    framework: Frameworks = None,
    rules: Annotated[
        Path | None,
        typer.Option("--guidelines", parser=paths.path, help="A guidelines.json, or its folder."),
    ] = None,
    image: Annotated[
        bool, typer.Option("--image", help="It runs elsewhere: nothing of this host counts.")
    ] = False,
    cpus: Annotated[
        float | None, typer.Option(min=0.01, max=9999, help="CPUs of the target.")
    ] = None,
    memory: Annotated[str | None, typer.Option(help="Memory of the target: 4G.")] = None,
    json: AsJson = False,
) -> None:
    """Check the settings of a launch file, without running it."""
    with handled():
        from tuner.cli import lint

        lint.main(
            file,
            model,
            hw,
            framework or [],
            rules,
            is_image=image,
            cpus=cpus,
            memory=memory,
            as_json=json,
        )
