"""Does a study that begins with rules of other families find what is good any sooner?

    tune-framework guidelines FOLDER-WITHOUT-ITS-FAMILY --out RULES
    tune-framework --model M --framework F --hw auto --budget 8m --out WITH --guidelines RULES
    tune-framework --model M --framework F --hw auto --budget 8m --out WITHOUT
    python -m benchmarks.head_start OUT --with WITH... --without WITHOUT... [--rounds 4]

For each pair of a model and a framework: which configuration was the best so far, of those whose
outputs stay the same, after each trial of either study; fresh interleaved rounds of all these and
of the default, for the searches' own figures flatter what they chose; and the seconds of its budget
after which each study first held one that is within 5 % of the best of all of them. Which of the
two studies was made first should differ between pairs: a host has its hours.

Rounds are kept in OUT and not measured again. Run nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from benchmarks.real_regret import measure_rounds
from tuner.record.configuration import Configuration
from tuner.record.integrity import JOURNAL
from tuner.record.journal import TrialNoted
from tuner.record.lines import NoteLine, read_lines
from tuner.record.winner_class import WinnerClass
from tuner.space.catalogue import allowed_in

CLOSE = 0.95


class Course(NamedTuple):
    """A study as it went."""

    name: str
    pair: str
    incumbents: list[tuple[float, Configuration]]
    """Each with the seconds of the budget that were used when it became the best so far."""
    learnt: str


def read_course(folder: Path) -> Course:
    """Read which configurations were the best so far, and when. Raises OSError, ValueError."""
    result: dict[str, Any] = json.loads((folder / "result.json").read_text())
    ratios = {t["number"]: t["search_ratio"] for t in result["trials"]}
    incumbents, best = [(0.0, Configuration())], 1.0
    for line in read_lines(folder, JOURNAL, msgspec.json.Decoder(NoteLine).decode):
        note = line.note
        if isinstance(note, TrialNoted) and allowed_in(
            WinnerClass.SAME_PRECISION, note.configuration
        ):
            ratio = ratios.get(note.number)
            if ratio is not None and ratio > best:
                best = ratio
                incumbents.append((line.used_s, note.configuration))
    learnt = result["learnt_from"]
    told = "nothing" if not learnt else "dropped" if learnt["is_dropped"] else "listened to"
    return Course(folder.name, f"{result['model']}/{result['framework']}", incumbents, told)


def seconds_until(course: Course, log_gain: Mapping[Configuration, float], best: float) -> float:
    """Return when a study first held what is within 5 % of the best; infinite if never."""
    for used_s, configuration in course.incumbents:
        if log_gain.get(configuration, -math.inf) >= best + math.log(CLOSE):
            return used_s
    return math.inf


def tell_pair(out: Path, with_rules: Course, without: Course, n_rounds: int) -> list[float]:
    """Measure and print a pair; return the seconds of both."""
    courses = (with_rules, without)
    arms = [Configuration(), *(c for course in courses for _, c in course.incumbents)]
    arms = list(dict.fromkeys(arms))
    path = out / f"{with_rules.pair.replace('/', '-')}.jsonl"
    rounds = measure_rounds(path, with_rules.pair, arms, n_rounds)
    gains: dict[Configuration, float] = {}
    for arm in arms:
        both = [row[arm] - row[Configuration()] for row in rounds
                if arm in row and Configuration() in row]  # fmt: skip
        if both:
            gains[arm] = statistics.fmean(both)
    best = max(gains.values(), default=0.0)
    found = []
    for course in courses:
        seconds = seconds_until(course, gains, best)
        found.append(seconds)
        steps = ", ".join(
            f"{used_s:.0f} s {math.exp(gains[c]):.2f}x"
            for used_s, c in course.incumbents if c in gains
        )  # fmt: skip
        told = "never" if math.isinf(seconds) else f"after {seconds:.0f} s"
        print(f"{course.pair:24s} {course.name:32s} rules: {course.learnt:12s} "
              f"within 5 % of {math.exp(best):.2f}x {told}: {steps}")  # fmt: skip
    return found


def by_pair(folders: Sequence[Path]) -> dict[str, Course]:
    """Read studies by what they tuned."""
    return {course.pair: course for course in map(read_course, folders)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--with", dest="with_rules", type=Path, nargs="+", required=True)
    parser.add_argument("--without", type=Path, nargs="+", required=True)
    parser.add_argument("--rounds", type=int, default=4)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    with_rules, without = by_pair(given.with_rules), by_pair(given.without)
    if with_rules.keys() != without.keys():
        parser.error("give for each pair a study with rules and one without")
    for pair, course in with_rules.items():
        tell_pair(given.out, course, without[pair], given.rounds)


if __name__ == "__main__":
    main()
