"""tune-framework recommend: what to set for a model with no search, and what to expect of it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from tuner.api import recommend
from tuner.app.advice import Advised
from tuner.app.recommend import Recommended
from tuner.cli.printable import printable
from tuner.cli.progress import progress
from tuner.output.values import ratio
from tuner.space.catalogue import class_title


def main(model: str, *, as_json: bool, **given: Any) -> None:
    """Write and print the guidelines' recommendation; given: the arguments of tuner.recommend."""
    with progress(quiet=as_json or not sys.stdout.isatty()) as listen:
        found = recommend(model, **given, listen=listen)
    if as_json:
        data = msgspec.json.encode([_plain(each) for each in found])
        sys.stdout.write(msgspec.json.format(data, indent=2).decode() + "\n")
        return
    for each in found:
        for line in _lines(each, model):
            print(printable(line))


def _plain(found: Recommended) -> dict[str, Any]:
    """Return it as JSON has it: configurations as objects, as in result.json."""
    plain: dict[str, Any] = msgspec.to_builtins(found, enc_hook=str)
    for winner_class, advised in found.advised.items():
        plain["advised"][str(winner_class)]["configuration"] = advised.configuration.as_dict()
    return plain


def _lines(found: Recommended, model: str) -> Sequence[str]:
    """Write the recommendation, its basis, and those of the other classes.

    model: as it was named.
    """
    advised = found.advised[found.shipped]
    lines = [f"{found.framework}: {_told(advised)}"]
    if advised.configuration.settings and advised.speedup is not None:
        lines.append(f"  {_meant(advised, found.batch)}")
    lines += [f"  rests on: {each}" for each in advised.rests_on]
    lines += [f"  beware: {each}" for each in advised.beware]
    for winner_class, other in found.advised.items():
        if other.configuration != advised.configuration:
            lines.append(f"  {class_title(winner_class)}: {_told(other)}")
    lines += [f"  note: {note}" for note in found.notes]
    path = shlex.quote(str(found.folder / "recommended.toml"))
    lines.append(f"  settings: {path}")
    if advised.verdict == "not_known":
        lines.append(f"  find out, with a study: tune-framework --model {shlex.quote(model)}")
    if advised.configuration.settings:
        named = f" --model {shlex.quote(model)}" if _is_there(model) else ""
        lines.append(f"  prove it here, in ten minutes: tune-framework verify {path}{named}")
        lines.append(f"  start a program so: tune-framework run {path} -- python serve.py")
    return lines


def _is_there(model: str) -> bool:
    """Tell whether a model was named by its file or folder."""
    head = model.partition("@")[0]
    path, is_function, _ = head.partition(".py:")
    return Path(f"{path}.py" if is_function else head).exists()


def _meant(advised: Advised, batch: int) -> str:
    """Explain the number: its metric, its bounds, and how often such bounds held."""
    speedup = advised.speedup
    assert speedup is not None
    text = (
        f"times the default's throughput, at batch {batch}; in brackets what holds with "
        f"{speedup.confidence:.0%}"
    )
    if advised.held is not None:
        text += " (of {1} fresh gains such brackets held {0})".format(*advised.held)
    elif advised.verdict == "predicted":
        text += " of models and hosts like those that were measured, which is not so here"
    return f"{text}: it may as well be slower" if speedup.low < 1 else text


def _told(advised: Advised) -> str:
    word = advised.verdict.replace("_", " ")
    if not advised.configuration.settings:
        is_known = advised.verdict != "not_known"
        return f"{word}: keep the default" if is_known else f"{word}: nothing is set"
    return f"{word} {ratio(advised.speedup)}: {advised.configuration.label()}"
