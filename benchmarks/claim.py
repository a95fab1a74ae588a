"""Tuned, and guided, over the best that vendors recommend: the table of arXiv:1908.04705.

    python -m benchmarks.claim FOLDER

FOLDER: rounds of `benchmarks.guideline_rounds`; nothing is measured here. Per framework and class:
the best known configuration, and what guidelines of other families recommend, over the best
recommendation of the same class (the default is one), and over each vendor's by itself, as
the paper has it, again of the same class; what reduced precision adds to the best of the same
outputs; and both frameworks beside each other, untuned and tuned.

Which recommendation is the best is chosen in every round by all other rounds, so that luck in a
round does not choose what the round is compared with. Means are geometric, over models; intervals
are Student's, 95 %, over models too: rounds of one model do not tell how others fare.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.company import interval
from benchmarks.guideline_rounds import CLASSES, GUIDELINE, KNOWN, PACKRAT
from benchmarks.real_regret import read_rounds
from tuner.record.configuration import Configuration
from tuner.record.journal import WinnerClass
from tuner.space.catalogue import allowed_in

Round = Mapping[Configuration, float]
"""The logarithm of each arm's rate."""
OWN = (KNOWN, GUIDELINE)


class Pair(NamedTuple):
    """What was measured of a model in a framework."""

    model: str
    framework: str
    arms: dict[str, Configuration]
    rounds: list[Round]

    def vendors(self, klass: WinnerClass) -> dict[str, Configuration]:
        """Return the recommendations that a class allows."""
        ours = {"default", PACKRAT, *(f"{name} {k}" for name in OWN for k in CLASSES)}
        return {
            name: c for name, c in self.arms.items() if name not in ours and allowed_in(klass, c)
        }


def read_pairs(folder: Path) -> list[Pair]:
    """Read what lies in a folder of rounds. Raises OSError and ValueError for what is damaged."""
    found = []
    for path in sorted(folder.glob("*/arms.json")):
        model, _, framework = path.parent.name.rpartition("-")
        named = json.loads(path.read_text())
        arms = {name: Configuration.of(settings) for name, settings in named.items()}
        measured = list(dict.fromkeys(arms.values()))
        rounds: list[Round] = list(read_rounds(path.with_name("rounds.jsonl"), measured))
        found.append(Pair(model, framework, arms, rounds))
    return found


def gain(rounds: Sequence[Round], own: Configuration, others: Sequence[Configuration]) -> float:
    """Return one's own mean gain (log) over the best of others; NaN where none can be told."""
    found = []
    for i, row in enumerate(rounds):
        elsewhere = [r for j, r in enumerate(rounds) if j != i]
        known = {
            c: statistics.fmean(rates)
            for c in others
            if (rates := [r[c] for r in elsewhere if c in r])
        }
        if not known:
            continue
        best = max(known, key=known.__getitem__)
        if own in row and best in row:  # where either failed, nothing weaker stands in for it
            found.append(row[own] - row[best])
    return statistics.fmean(found) if found else math.nan


def in_words(logs: Iterable[float]) -> str:
    """Write a geometric mean with its interval over models."""
    told = [each for each in logs if not math.isnan(each)]
    if len(told) < 2:
        return f"{math.exp(told[0]):.3f}x, 1 model" if told else "no model"
    point, low, high = interval(told)
    return f"{point:.3f}x ({low:.3f} - {high:.3f}), {len(told)} models"


def tell_vendors(pairs: Sequence[Pair]) -> None:
    """Print ours over vendors' recommendations, per framework."""
    for framework in dict.fromkeys(pair.framework for pair in pairs):
        here = [pair for pair in pairs if pair.framework == framework]
        for klass in CLASSES:
            for name in OWN:
                own = f"{name} {klass}"
                logs = [
                    gain(p.rounds, p.arms[own], [Configuration(), *p.vendors(klass).values()])
                    for p in here
                ]
                print(f"{framework:11s} {own:22s} over the best vendor's  {in_words(logs)}")
        for vendor in dict.fromkeys(name for p in here for name in p.vendors(CLASSES[-1])):
            for name in OWN:
                logs = [over_vendor(p, name, vendor) for p in here if vendor in p.arms]
                print(f"{framework:11s} {name:22s} over {vendor:22s} {in_words(logs)}")


def over_vendor(pair: Pair, name: str, vendor: str) -> float:
    """Return ours over a recommendation (log): of the same class, so that precision is no gain."""
    klass = next(klass for klass in CLASSES if vendor in pair.vendors(klass))
    return gain(pair.rounds, pair.arms[f"{name} {klass}"], [pair.arms[vendor]])


def tell_precision(pairs: Sequence[Pair]) -> None:
    """Print what reduced precision adds to the best of the same outputs."""
    for framework in dict.fromkeys(pair.framework for pair in pairs):
        logs = [
            gain(p.rounds, p.arms[f"{KNOWN} {WinnerClass.REDUCED}"],
                 [p.arms[f"{KNOWN} {WinnerClass.SAME}"]])
            for p in pairs if p.framework == framework
        ]  # fmt: skip
        print(f"{framework:11s} best known reduced over best known same  {in_words(logs)}")


def tell_frameworks(pairs: Sequence[Pair]) -> None:
    """Print one framework over the other, of models that both have."""
    by_model: dict[str, dict[str, Pair]] = {}
    for pair in pairs:
        by_model.setdefault(pair.model, {})[pair.framework] = pair
    both = [each for each in by_model.values() if {"torch", "tensorflow"} <= each.keys()]
    for arm in ("default", *(f"{KNOWN} {klass}" for klass in CLASSES)):
        logs = [level(each["torch"], arm) - level(each["tensorflow"], arm) for each in both]
        print(f"torch over tensorflow, {arm:22s} {in_words(logs)}")


def level(pair: Pair, arm: str) -> float:
    """Return the mean log rate of an arm; NaN where it never ran."""
    rates = [row[pair.arms[arm]] for row in pair.rounds if pair.arms[arm] in row]
    return statistics.fmean(rates) if rates else math.nan


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    pairs = read_pairs(folder)
    if not pairs:
        parser.error(f"{folder} holds no rounds of benchmarks.guideline_rounds")
    tell_vendors(pairs)
    tell_precision(pairs)
    tell_frameworks(pairs)


if __name__ == "__main__":
    main()
