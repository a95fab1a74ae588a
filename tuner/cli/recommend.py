"""tune-framework recommend: what to set for a model with no search, and what to expect of it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import msgspec

from tuner.cli.printable import printable
from tuner.cli.progress import progress
from tuner.output.values import ratio
from tuner.recommending import PATIENCE_S, Advised, Recommended, read_rules, recommend
from tuner.request import Request
from tuner.space.restrictions import Numerics, Restrictions

_WORDS = {"predicted": "predicted", "looked_up": "looked up"}


def main(request: Request, guidelines: Path | None, *, as_json: bool) -> None:
    """Write and print what the guidelines recommend."""
    read = read_rules(guidelines)
    with progress(quiet=as_json or not sys.stdout.isatty()) as listen:
        found = recommend(request, read, listen)
    if as_json:
        sys.stdout.write(
            msgspec.json.format(msgspec.json.encode(found, enc_hook=str), indent=2).decode() + "\n"
        )
        return
    for each in found:
        for line in _lines(each):
            print(printable(line))


def request_of(
    model: str,
    hardware: str,
    frameworks: Sequence[str],
    *,
    batch: int | None,
    inputs: Path | None,
    numerics: str,
    allow_pickle: bool,
    out: Path | None,
) -> Request:
    """Return what is asked for."""
    return Request(
        model=model,
        hardware=hardware,
        frameworks=tuple(dict.fromkeys(frameworks)),
        budget_s=PATIENCE_S,
        out=out,
        batch=batch,
        inputs=inputs,
        allows_pickle=allow_pickle,
        restrictions=Restrictions(numerics=cast(Numerics, numerics)),
    )


def _lines(found: Recommended) -> Sequence[str]:
    """Say what ships, what it rests on, and what the other classes would be."""
    shipped = found.advised[found.shipped]
    lines = [f"{found.framework}: {_told(shipped)}"]
    lines += [f"  rests on: {each}" for each in shipped.rests_on]
    for klass, advised in found.advised.items():
        if advised.configuration != shipped.configuration:
            lines.append(f"  {klass}: {_told(advised)}")
    lines += [f"  note: {note}" for note in found.notes]
    path = shlex.quote(str(found.folder / "recommended.toml"))
    lines.append(f"  settings: {path}")
    if shipped.configuration.settings:
        lines.append(f"  prove it here: tune-framework verify {path}")
    return lines


def _told(advised: Advised) -> str:
    word = _WORDS[advised.verdict]
    if not advised.configuration.settings:
        return f"{word}: keep the default"
    return f"{word} {ratio(advised.speedup)}: {advised.configuration.label()}"
