"""Tuned, and guided, over the best that vendors recommend: the table of arXiv:1908.04705.

    python -m benchmarks.claim FOLDER

FOLDER: rounds of `benchmarks.guideline_rounds`; nothing is measured here. Per framework and class:
the best known configuration, and what guidelines of other families recommend, over the best
recommendation of the same class (the default is one), and over each vendor's by itself, as
the paper has it, again of the same class; what reduced precision adds to the best of the same
outputs; and both frameworks beside each other, untuned and tuned.

Which recommendation is the best is chosen in every round by all other rounds, so that luck in a
round does not choose what the round is compared with; of few rounds it may then not be the best, so
that beside it stands the one that was best over all, which was lucky. Means are geometric, over
models; intervals are Student's, 95 %, over models too: rounds of one model do not tell how others
fare.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.company import interval
from benchmarks.guideline_rounds import (
    GUIDELINE,
    KNOWN,
    LEAST_ROUNDS,
    Pair,
    Round,
    class_of,
    read_pairs,
)
from tuner.record.configuration import Configuration
from tuner.record.winner_class import WinnerClass

OWN = (KNOWN, GUIDELINE)


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


def over_best_mean(
    rounds: Sequence[Round], own: Configuration, others: Sequence[Configuration]
) -> float:
    """Return one's own mean gain (log) over the one that was best over all rounds together.

    What was chosen for its luck is compared with here: it errs against one's own.
    """
    gains = [
        statistics.fmean(both)
        for c in others
        if (both := [row[own] - row[c] for row in rounds if own in row and c in row])
    ]
    return min(gains, default=math.nan)


def tell_vendors(pairs: Sequence[Pair]) -> None:
    """Print ours over vendors' recommendations, per framework."""
    for framework in dict.fromkeys(pair.framework for pair in pairs):
        here = [pair for pair in pairs if pair.framework == framework]
        for winner_class in WinnerClass:
            there = [pair for pair in here if winner_class in pair.classes]
            among = [[Configuration(), *p.vendors(winner_class).values()] for p in there]
            for own in [f"{name} {winner_class}" for name in OWN if there]:
                for how, told in ((gain, "chosen by other rounds"), (over_best_mean, "by all")):
                    logs = [
                        how(p.rounds, p.arms[own], others)
                        for p, others in zip(there, among, strict=True)
                    ]
                    print(f"{framework:11s} {own:22s} over the best vendor's, {told:22s} "
                          f"{in_words(logs)}")  # fmt: skip
        for vendor in dict.fromkeys(name for p in here for name in p.others()):
            for name in OWN:
                logs = [
                    gain(p.rounds, p.arms[f"{name} {class_of(vendor, p)}"], [p.arms[vendor]])
                    for p in here
                    if vendor in p.arms
                ]
                print(f"{framework:11s} {name:10s} over {vendor:24s} {in_words(logs)}")


def tell_precision(pairs: Sequence[Pair]) -> None:
    """Print what reduced precision adds to the best of the same outputs, where it is another."""
    for framework in dict.fromkeys(pair.framework for pair in pairs):
        for name in OWN:
            low, same = (
                f"{name} {k}" for k in (WinnerClass.REDUCED_PRECISION, WinnerClass.SAME_PRECISION)
            )
            logs = [
                gain(pair.rounds, pair.arms[low], [pair.arms[same]])
                for pair in pairs
                if pair.framework == framework and pair.arms[low] != pair.arms[same]
            ]
            print(f"{framework:11s} {low} over {same}, where it is another  {in_words(logs)}")


def tell_frameworks(pairs: Sequence[Pair]) -> None:
    """Print one framework over the other, of models that both have."""
    by_model: dict[str, dict[str, Pair]] = {}
    for pair in pairs:
        by_model.setdefault(pair.model, {})[pair.framework] = pair
    both = [each for each in by_model.values() if {"torch", "tensorflow"} <= each.keys()]
    for arm in ("default", *(f"{KNOWN} {winner_class}" for winner_class in WinnerClass)):
        logs = [
            level(each["torch"], arm) - level(each["tensorflow"], arm)
            for each in both
            if all(arm in pair.arms for pair in each.values())
        ]
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
    if few := [pair.name for pair in pairs if len(pair.rounds) < LEAST_ROUNDS]:
        print(f"too few rounds yet, left out: {', '.join(few)}")
    pairs = [pair for pair in pairs if len(pair.rounds) >= LEAST_ROUNDS]
    for pair in pairs:
        if failed := [name for name in pair.arms if pair.has_failed(name)]:
            print(f"{pair.name}: failed in some round, not counted there: {', '.join(failed)}")
    tell_vendors(pairs)
    tell_precision(pairs)
    tell_frameworks(pairs)


if __name__ == "__main__":
    main()
