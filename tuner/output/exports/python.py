"""`python`: a program that serves the model as it was measured."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import msgspec

from tuner.output.exports.needs import (
    comments,
    heading,
    on_the_image,
    on_the_node,
    program_changes,
    refuse_command,
)
from tuner.record.load import TRAINING
from tuner.record.recommendation import Recommendation
from tuner.space.catalogue import is_applied_inside

_SERVES = (
    "def serve(model):",
    '    """Return what takes the inputs of a batch, as a model does."""',
    "    return tuned.prepare(model)",
)
_TRAINS = (
    "def to_train(model, optimizer):",
    '    """Return the model for a loop of steps, in which the optimizer updates it."""',
    "    return tuned.prepare_training(model, optimizer)",
)


def render(recommendation: Recommendation, command: Sequence[str], source: str) -> str:
    """Return the lines of a program that reads the recommendation's file next to it."""
    r = recommendation
    refuse_command("python", command)
    inside = [s for s in r.settings if is_applied_inside(s.knob)]
    others = [s for s in r.settings if not is_applied_inside(s.knob)]
    notes = [
        *heading(r, source),
        *program_changes(msgspec.structs.replace(r, settings=others), source),
        *on_the_image(r),
        *on_the_node(r),
        f"reads {source}: put it beside this",
    ]
    before = sorted(r.environment)
    if before or any(s.applies == "launch" for s in r.settings):
        notes.append("start it under the launch settings, which no program can give itself:")
        notes.append(f"  tune-framework run {shlex.quote(source)} -- python THIS.py")
    lines = [
        *comments(notes),
        "from pathlib import Path",
        "",
        "import tuner",
        "",
        f"tuned = tuner.apply(Path(__file__).with_name({source!r}))  # before other work",
        "for missing in tuned.missing:",
        '    print(f"not set where this program was started: {missing}")',
        "",
        "",
        *(_TRAINS if r.workload.mode == TRAINING else _SERVES),
        "",
        "",
        f"BATCH = {r.workload.batch}  # items of a call, as measured",
    ]
    if inside:
        lines += ["", *comments(["what apply and prepare do here, by hand:"])]
        lines += comments([f"  {s.knob}={s.value}: {s.how}" for s in inside])
    return "\n".join(lines) + "\n"
