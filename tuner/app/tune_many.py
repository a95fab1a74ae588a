"""Several models in one go: a study of each in every framework, one budget, one index over them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tuner.app.compatibility import check_memory, choose_profile
from tuner.app.plan import Plan, plan
from tuner.app.request import Request, check_request
from tuner.app.tune import Finished, finish
from tuner.errors import NothingMeasured, TuneError, UsageError
from tuner.frameworks import FRAMEWORKS, OFFERED
from tuner.galleries import MODELS
from tuner.host.identity import Host, fingerprint, probe
from tuner.host.libraries import installed_frameworks
from tuner.launchers.describe import find_model, gallery_cards
from tuner.launchers.testbed import THIS_HOST, Testbed
from tuner.output.index import write_index
from tuner.record.events import Listener, ModelBegins, TurnBegins, Warned
from tuner.record.index import (
    FLEET_FILE,
    Index,
    Row,
    check_index_folder,
    held_alone,
    read_index,
    result_of,
    with_found,
)
from tuner.record.withdrawal import existing_parent
from tuner.record.workload import CPU, ModelCard

EACH_S = 600.0
"""Budget of a study if none is given for all of them."""
_LEAST, _MOST = 0.5, 2.0
"""Limits of a share, in equal shares: launches of a large model take long, and a small one matters
as much."""
_LEAST_S = 5.0
"""Seconds below which no study of even the smallest model measures anything."""
_SELECTED = {"family": "family", "task": "task", "kind": "kind"}


class Task(msgspec.Struct, frozen=True):
    """A study that is still to be carried out."""

    row: Row
    plan: Plan
    request: Request


def select(wanted: str, cards: Sequence[ModelCard]) -> list[str]:
    """Return the models that are meant: names, paths, all, family=cnn, task=translation, kind=mlp.

    wanted: separated by commas; a name may have parameters of its own (NAME@key=value,key=value).
    Raises UsageError for what selects nothing.
    """
    real = [card for card in cards if set(OFFERED).intersection(card.frameworks)]
    found: list[str] = []
    for part in _parts(wanted):
        key, equals, value = part.partition("=")
        if part == "all":
            found += [card.name for card in real]
        elif equals and key in _SELECTED:
            chosen = [card.name for card in real if getattr(card, _SELECTED[key]) == value]
            if not chosen:
                there = sorted({getattr(card, _SELECTED[key]) for card in real})
                meant = _meant(value, there)
                raise UsageError(
                    f"--models {part}: no model has that {key}{meant}; there are {', '.join(there)}"
                )
            found += chosen
        elif equals and "@" not in key and "/" not in key:
            raise UsageError(
                f"--models {part}: models are not selected by {key!r}{_meant(key, _SELECTED)}; "
                f"select them by {', '.join(_SELECTED)}"
            )
        else:
            found.append(part)
    if not found:
        raise UsageError(
            f"--models {wanted!r} names no model; write names with commas between, all, or "
            "family=cnn; list them with: tune-framework models"
        )
    return list(dict.fromkeys(found))


def _meant(given: str, known: Iterable[str]) -> str:
    """Suggest a similar name; empty if there is none."""
    close = difflib.get_close_matches(given, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _parts(wanted: str) -> list[str]:
    """Split at the commas that are not between the parameters of a model."""
    parts: list[str] = []
    for piece in wanted.split(","):
        key, equals, _ = piece.partition("=")
        is_parameter = equals and "@" not in key and key not in _SELECTED
        if parts and is_parameter and "@" in parts[-1]:
            parts[-1] += f",{piece}"
        elif piece.strip():
            parts.append(piece.strip())
    return parts


def rows_of(
    wanted: str, request: Request, listen: Listener, testbed: Testbed = THIS_HOST
) -> list[Row]:
    """Return a row for each study that is meant: as the index has it, or one that is pending.

    Says which results of other options would leave the index, and which model this host cannot
    hold. Builds no model. Raises UsageError for what selects nothing, or nothing that runs here.
    """
    check_request(request)
    check_index_folder(folder_of(request))
    if (folder_of(request) / FLEET_FILE).exists():
        raise UsageError(
            f"{folder_of(request)} holds the studies of a fleet: name another folder with --out, "
            "or go on with it by --fleet"
        )
    in_question = request.frameworks or installed_frameworks()
    host = probe()
    device = choose_profile(request.hardware, host, request.device, in_question).device
    known = {(row.model, row.framework): row for row in read_index(folder_of(request)).rows}
    found, replaced = [], []
    cards = gallery_cards(MODELS, testbed)
    known_cards = {card.name: card for card in cards}
    for name in select(wanted, cards):
        card = known_cards.get(name) or find_model(name, MODELS, testbed=testbed)[1]
        options = options_of(request, card)
        fault = ""
        try:
            check_memory(card, host, device)
        except UsageError as error:
            fault = str(error)
        for framework in _frameworks(name, card, request, device, listen):
            row = known.get((name, framework))
            if row and result_of(folder_of(request), row):
                if row.options == options:
                    found.append(row)
                    continue
                replaced.append(f"{name} in {framework}")
            if fault:
                listen(Warned(f"{name} will fail: {fault}"))
            pending = Row(name, framework, options=options)
            failed = msgspec.structs.replace(pending, state="failed", reason=fault)
            found.append(failed if fault else pending)
    if replaced:
        listen(
            Warned(
                f"{folder_of(request)} holds results of other options, or of a model file before "
                f"it was edited: {', '.join(replaced)}. Their folders stay, and the index will "
                "show the new ones in their place; another --out keeps both"
            )
        )
    if not found:
        raise UsageError(f"--models {wanted}: none of them is there for a framework to tune here")
    return found


def folder_of(request: Request) -> Path:
    """Return the folder of an index and its studies."""
    return request.out or Path("reports") / "models"


def tune_several(
    wanted: str,
    request: Request,
    listen: Listener,
    *,
    budget_s: float | None,
    testbed: Testbed = THIS_HOST,
) -> list[Row]:
    """Tune models one after another; return their rows of the index, which is updated meanwhile.

    request: the options for each; its `out` is the folder. budget_s: over all, in all sessions; ten
    minutes for each study if None. Finished studies are not repeated, on any host; unfinished ones
    begin anew on another host.

    Raises UsageError before anything is measured, NothingMeasured if no study has a result, and
    Interrupted (resumable) while measuring.
    """
    check_index_folder(folder_of(request))
    with held_alone(folder_of(request)):
        return _tune_several(wanted, request, listen, budget_s, testbed)


def _tune_several(
    wanted: str, request: Request, listen: Listener, budget_s: float | None, testbed: Testbed
) -> list[Row]:
    """Look at each model that is not finished, then carry their studies out."""
    began_s = testbed.clock.began_s()
    wished = rows_of(wanted, request, listen, testbed)
    host = probe()
    folder = folder_of(request)
    rows = {(row.model, row.framework): row for row in [*read_index(folder).rows, *wished]}
    tasks: list[Task] = []
    for number, row in enumerate(wished, 1):
        if row.state == "done":
            continue
        listen(ModelBegins(row.model, row.framework, number, len(wished)))
        own = msgspec.structs.replace(
            request,
            model=row.model,
            frameworks=(row.framework,),
            together=tuple(dict.fromkeys(each.framework for each in wished)),
            out=None,
            below=folder,
        )
        here = msgspec.structs.replace(row, host=host.summary())
        looked_s = testbed.clock.now_s()
        try:
            (made,) = plan(own, host, listen, testbed=testbed)
        except TuneError as error:
            here = msgspec.structs.replace(
                here, state="failed", reason=str(error), exit_code=error.exit_code
            )
            here = _with_seconds(here, testbed.clock.now_s() - looked_s)
        else:
            here = _with_seconds(here, testbed.clock.now_s() - looked_s)
            here = msgspec.structs.replace(here, folder=made.folder.name)
            tasks.append(Task(here, made, own))
        rows[row.model, row.framework] = here
    spent_s = sum(row.seconds for row in wished) + testbed.clock.now_s() - began_s
    all_s = spent_s + EACH_S * len(tasks) if budget_s is None else budget_s
    check_budget(all_s, spent_s, len(tasks))
    _carry_out(tasks, rows, request, listen, host, testbed, budget_s=all_s, spent_s=spent_s)
    found = [rows[row.model, row.framework] for row in wished]
    if not any(row.state == "done" for row in found):
        reasons = "; ".join(f"{r.model} in {r.framework}: {r.reason}" for r in found)
        raise NothingMeasured(f"nothing came of any model: {reasons}")
    return found


def check_budget(all_s: float, spent_s: float, n_studies: int) -> None:
    """Raise UsageError if the rest of a budget is too short for n studies."""
    if n_studies and all_s - spent_s < _LEAST_S * n_studies:
        used = f"{spent_s:.0f} s of it are used by finished studies and by looking at the models"
        why = f"{used}, which leaves too little" if spent_s >= 1 else "that is too little"
        raise UsageError(
            f"--budget {all_s:.0f} s: {why} for {n_studies} more; give a larger one, which is over "
            "all of them"
        )


def options_of(request: Request, card: ModelCard) -> str:
    """Return a hash over the options, the model's file and a user's own profile.

    Rows with other options are not finished: an edited file is another model.
    """
    profile = Path(request.hardware)
    own_profile = profile.read_bytes().hex() if profile.is_file() else ""
    asked: dict[str, Any] = msgspec.to_builtins(
        msgspec.structs.replace(
            request, model="", frameworks=(), out=None, below=None, command="", environment=None,
            budget_s=0.0,
        ),
        enc_hook=str,
    )  # fmt: skip
    # versions before had neither: what they finished must stay finished
    del asked["extends"]  # studies of several never have it
    if not asked["accept_cost"]:
        del asked["accept_cost"]
    return fingerprint([asked, card.source_sha256, own_profile])


def _frameworks(
    name: str, card: ModelCard, request: Request, device: str, listen: Listener
) -> list[str]:
    """Return the requested frameworks, or else the installed ones, that have a model.

    If none was requested, only those that can be measured on the device.
    """
    frameworks = request.frameworks or tuple(
        framework for framework in installed_frameworks() if device in FRAMEWORKS[framework].devices
    )
    found = [framework for framework in frameworks if framework in card.frameworks]
    if not found:
        where = "" if device == CPU else f" on {device}"
        tried = " or ".join(frameworks) or "any framework"
        listen(Warned(f"{name} is not there for {tried}{where}: it is left out"))
    return found


def shares(needs: Sequence[float]) -> list[float]:
    """Return each one's share of what is left, by the time of its launches."""
    mean = sum(needs) / len(needs)
    clipped = [min(max(need, _LEAST * mean), _MOST * mean) for need in needs]
    return [each / sum(clipped) for each in clipped]


def _carry_out(
    tasks: Sequence[Task],
    rows: dict[tuple[str, str], Row],
    request: Request,
    listen: Listener,
    host: Host,
    testbed: Testbed,
    *,
    budget_s: float,
    spent_s: float,
) -> None:
    """Carry out what is left, and write the index before the first and after each."""
    folder = folder_of(request)
    folder.mkdir(parents=True, exist_ok=True)

    def write() -> None:
        write_index(folder, Index(list(rows.values()), request.command, budget_s))

    write()
    for i, task in enumerate(tasks):
        share = shares([each.plan.launch_s() for each in tasks[i:]])[0]
        own_s = max(1.0, (budget_s - spent_s) * share)
        listen(
            TurnBegins(task.row.model, task.row.framework, i + 1, len(tasks), budget_s - spent_s)
        )
        ground = existing_parent(task.plan.folder)
        outcome, taken_s = finish(
            task.plan, task.request, host, own_s, 0.0, listen, ground, testbed
        )
        spent_s += taken_s
        rows[task.row.model, task.row.framework] = _row_of(task.row, outcome, taken_s)
        write()


def _row_of(row: Row, outcome: Finished, taken_s: float) -> Row:
    made = msgspec.structs.replace(
        row,
        state="failed",
        reason=outcome.error,
        seconds=row.seconds + taken_s,
        exit_code=outcome.exit_code,
    )
    return made if outcome.result is None else with_found(made, outcome.result)


def _with_seconds(row: Row, seconds: float) -> Row:
    """Add what looking at a model took: it is of the budget too."""
    return msgspec.structs.replace(row, seconds=row.seconds + seconds)
