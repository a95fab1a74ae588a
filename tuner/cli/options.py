"""The options of a run, as the command line takes them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tuner.cli import paths
from tuner.cli.config import load_config
from tuner.frameworks import OFFERED
from tuner.record.load import INFERENCE, OFFLINE, SCENARIOS, SERVER, TRAINING
from tuner.record.objective import GOALS

MODELS = "Your own model"
OTHERS = "Programs and servers, instead of a model"
GOAL = "What is best"
SEARCH = "What is tried"
OUTPUT = "Files and output"
FLEETS = "Several models and hosts"
"""Headings of `--help`, for the options that most users do not need."""

Model = Annotated[
    str | None,
    typer.Option(
        metavar="MODEL",
        help="A built-in model, or your own: PATH.py:FUNCTION, or what a framework saved "
        "(models/README.md).",
    ),
]
Models = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,...",
        help="Instead of --model, several, one after another: A,B,C; all; family=cnn; task=...; "
        "one index over their reports.",
        rich_help_panel=FLEETS,
    ),
]
Fleet = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="With --models: tune on every kind of host of a Ray cluster, ray://HOST:PORT or "
        "auto; --budget is per study. See docs/fleets.md.",
        rich_help_panel=FLEETS,
    ),
]
ConfirmOn = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=1000,
        metavar="N",
        help="With --fleet: how many other hosts confirm a winner. Default: 1.",
        rich_help_panel=FLEETS,
    ),
]
StorageUrl = Annotated[
    str | None,
    typer.Option(
        "--storage",
        metavar="URL",
        help="With --fleet: a database that studies are copied to: postgresql://USER@HOST/NAME.",
        rich_help_panel=FLEETS,
    ),
]
Program = Annotated[
    str | None,
    typer.Option(
        metavar="COMMAND",
        help="Instead of --model: a program that prints 'samples=N seconds=S'; its launch "
        "settings are tuned.",
        rich_help_panel=OTHERS,
    ),
]
ServeCommand = Annotated[
    str | None,
    typer.Option(
        "--serve",
        metavar="COMMAND",
        help="Instead of --model: a command that starts your server on {port}; its launch "
        "settings are tuned, in the scenario server.",
        rich_help_panel=OTHERS,
    ),
]
Url = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="With --serve: the address for requests: http://127.0.0.1:{port}/predict.",
        rich_help_panel=OTHERS,
    ),
]
Requests = Annotated[
    Path | None,
    typer.Option(
        parser=paths.path,
        metavar="PATH",
        help="With --serve: the requests to post: a .jsonl with one per line, any other file "
        "as it is, or a folder of files.",
        rich_help_panel=OTHERS,
    ),
]
HeaderTexts = Annotated[
    list[str] | None,
    typer.Option(
        "--header",
        metavar="TEXT",
        help='With --serve: "NAME: VALUE", sent with every request; may be repeated. A secret is '
        'named by its variable: "X-API-Key: env:API_KEY".',
        rich_help_panel=OTHERS,
    ),
]
Inputs = Annotated[
    Path | None,
    typer.Option(
        parser=paths.path,
        metavar="FILE",
        help="Recorded inputs, samples first: a NumPy .npz or .npy.",
        rich_help_panel=MODELS,
    ),
]
Tolerance = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        metavar="DRIFT",
        help="Output drift allowed to reduced precision (0.05).",
        rich_help_panel=MODELS,
    ),
]
AllowPickle = Annotated[
    bool,
    typer.Option(
        "--allow-pickle",
        help="Trust the model file: loading it may execute code.",
        rich_help_panel=MODELS,
    ),
]
Hw = Annotated[
    str,
    typer.Option(
        metavar="NAME", help="Hardware profile: xeon, epyc, arm, cuda, auto, or a TOML file."
    ),
]
Frameworks = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help=f"{' or '.join(OFFERED)}; may be repeated. Default: every installed one.",
    ),
]
Mode = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help=f"{INFERENCE} (the default) or {TRAINING} (docs/training.md).",
    ),
]
ScenarioName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help=f"How work arrives: {', '.join(SCENARIOS)}; see docs/scenarios.md. Default: "
        f"{OFFLINE}, with --serve {SERVER}.",
    ),
]
Callers = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help=f"With concurrent: simultaneous callers ({SCENARIOS['concurrent'].callers}).",
        rich_help_panel=GOAL,
    ),
]
SloText = Annotated[
    str | None,
    typer.Option(
        "--slo",
        metavar="pN=TIME",
        help="With server: the latency bound, for a percentile of the requests: p99=15ms. "
        "Default: p99 within 5 times the default's median for one request at a time.",
        rich_help_panel=GOAL,
    ),
]
TraceFile = Annotated[
    Path | None,
    typer.Option(
        "--trace",
        parser=paths.path,
        metavar="FILE",
        help="With server: requests arrive as in this file (arrival times in seconds, one per "
        "line); tuned on its first half, confirmed on its second.",
        rich_help_panel=GOAL,
    ),
]
BudgetText = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Wall-clock time: 90s, 10m (the default), 1h."),
]
ExtendText = Annotated[
    str | None,
    typer.Option(
        "--extend",
        metavar="TIME",
        help="Instead of --budget: continue the study for this long (10m), in addition to the time "
        "used, or to its budget if it is not finished. If stopped, the same --extend resumes and "
        "adds nothing; another length adds.",
        rich_help_panel=SEARCH,
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        parser=paths.path, metavar="FOLDER", help="Folder of the study; the same one resumes it."
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        parser=paths.path,
        is_eager=True,
        callback=load_config,
        rich_help_panel=OUTPUT,
        metavar="FILE",
        help="A TOML file of these options, without dashes; the command line overrides it.",
    ),
]
Batch = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=2**31 - 1,
        metavar="N",
        help="Tune for this batch size only.",
        rich_help_panel=MODELS,
    ),
]
BatchDim = Annotated[
    int | None,
    typer.Option(
        "--batch-dim",
        min=0,
        max=3,
        metavar="N",
        help="The batch dimension of the model's inputs: 1 for (time, batch, features). "
        "Default: the first.",
        rich_help_panel=MODELS,
    ),
]
NumericsName = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="same: never reduce precision. both: search reduced precision too. reduced: "
        "recommend it. int8: as reduced, with int8.",
    ),
]
GoalName = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="; ".join(f"{name}: {g.summary}" for name, g in GOALS.items()) + ".",
        rich_help_panel=GOAL,
    ),
]
MaxMemory = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE", help="The most memory that a winner may need, all instances together: 4G."
    ),
]
AcceptCost = Annotated[
    str | None,
    typer.Option(
        "--accept-cost",
        metavar="NAME",
        help="memory, latency, or both (memory,latency): a setting may raise these although it is "
        "not proven to be needed.",
        rich_help_panel=GOAL,
    ),
]
PricePerHour = Annotated[
    float | None,
    typer.Option(
        "--price-per-hour",
        metavar="PRICE",
        help="Price of the host: the report then states the cost of a million items.",
        rich_help_panel=GOAL,
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KNOB=V1,V2",
        help="KNOB=V1,V2: search only these values.",
        rich_help_panel=SEARCH,
    ),
]
Fix = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KNOB=VALUE",
        help="KNOB=VALUE: use it in every configuration except the default.",
        rich_help_panel=SEARCH,
    ),
]
Exclude = Annotated[
    list[str] | None,
    typer.Option(metavar="KNOB", help="KNOB: leave it at its default.", rich_help_panel=SEARCH),
]
SpaceFile = Annotated[
    Path | None,
    typer.Option(
        parser=paths.path,
        metavar="FILE",
        help="Your own search space, instead of --hw.",
        rich_help_panel=SEARCH,
    ),
]
LearnFrom = Annotated[
    list[Path] | None,
    typer.Option(
        parser=paths.path,
        metavar="FOLDER",
        help="Folder of earlier studies that guide the search; may be repeated.",
        rich_help_panel=SEARCH,
    ),
]
Rules = Annotated[
    Path | None,
    typer.Option(
        "--guidelines",
        parser=paths.path,
        metavar="PATH",
        help="A guidelines.json, or its folder: rules that guide the search, as with --learn-from.",
        rich_help_panel=SEARCH,
    ),
]
Designed = Annotated[
    bool,
    typer.Option(
        "--designed",
        help="Measure a fixed design of the main settings first: 15 combinations, 20 launches.",
        rich_help_panel=SEARCH,
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        min=0,
        max=2**32 - 1,
        metavar="N",
        help="Seed of weights, inputs and search.",
        rich_help_panel=OUTPUT,
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the plan only.")]
JsonLines = Annotated[
    bool,
    typer.Option(
        "--json", help="Print every event, and the result, as JSON lines.", rich_help_panel=OUTPUT
    ),
]
