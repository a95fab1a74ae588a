"""How much slower than the best known are the winners of short studies of real models?

    python -m benchmarks.real_regret FOLDER [--pairs resnet50/torch dlrm-rmc2/tensorflow]
        [--minutes 6 10] [--continued] [--long 30] [--against CHECKOUT] [--known STUDIES]
        [--rounds 8]

For each pair of a model and a framework: studies of so many minutes by this code, and by another
checkout of the tool, in turns, each from nothing; with --continued, each goes on with the one
before it; with --long one more by this code. --known names
a folder of studies that are there already, of the same host; the pair's stand beside them. Then
fresh interleaved rounds of the default and of everything that any study of the pair suggests: each
class's winner, the best recommendation of each class, and per class the two trials that the
searches saw fastest.

Regret is 1 - rate of what a study recommends in a class (the default where nothing was confirmed) /
rate of the best known that the class allows. The best is chosen in every round by all other rounds,
so that luck in a round does not choose what the round scores. The default is meant at its best
batch. A class is worth deciding where the best known gains at least 15 % over it.

What is there in FOLDER is not made again: the same command goes on after an interruption. Only the
studies of one pair have to be made on one host. Run nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.company import NOISE, bench_for, interval
from tuner.measurement.bench import Bench
from tuner.record.configuration import Configuration, Value
from tuner.record.launch import LaunchRecord, Purpose
from tuner.record.load import OFFLINE
from tuner.record.outcome import Outcome
from tuner.record.winner_class import WinnerClass
from tuner.record.workload import CPU
from tuner.space.as_run import AS_RUN
from tuner.space.catalogue import allowed_in
from tuner.space.knobs_of.launch import BATCH

HERE = Path(__file__).resolve().parent.parent
LEAST_ROUNDS = 2
WORTH_DECIDING = 1.15
N_SEEN_FASTEST = 2
"""Trials per class that become arms although no study chose them."""


class Study(msgspec.Struct, frozen=True):
    """What came of a study, whichever version of the tool wrote it."""

    code: str
    minutes: float
    result: dict[str, Any]

    @property
    def name(self) -> str:
        return f"{self.code} {self.minutes:g} min"

    @property
    def default(self) -> Configuration:
        """The default at its best batch."""
        batch = self.result["default"]["batch"]
        is_reference = batch == self.result["reference_batch"]
        return _configuration({} if is_reference else {BATCH: batch})

    def winner(self, winner_class: WinnerClass) -> Configuration:
        """Return what it recommends in a class: the default where nothing was confirmed."""
        won = self.result["winners"].get(winner_class)
        return _configuration(won["configuration"]) if _is_faster(won) else self.default

    def half_width(self, winner_class: WinnerClass) -> float | None:
        """Return that of the claim's interval (log); None without a claim."""
        won = self.result["winners"].get(winner_class)
        if not _is_faster(won):
            return None
        return math.log(won["speedup"]["high"] / won["speedup"]["low"]) / 2

    def tried(self) -> Iterable[tuple[Configuration, float]]:
        """Yield what the search measured, with its ratio to the default."""
        for trial in self.result["trials"]:
            if trial["search_ratio"] is not None:
                yield _configuration(trial["configuration"]), trial["search_ratio"]

    def recommendation(self, winner_class: WinnerClass) -> Configuration:
        """Return the guides' configuration that the search saw fastest in a class."""
        ratios = {
            _configuration(b["configuration"]): b["search_ratio"]
            for b in self.result["baselines"]
            if b["search_ratio"] is not None and b["name"] != AS_RUN
        }
        allowed = [c for c in ratios if allowed_in(winner_class, c)]
        return max(allowed, key=lambda c: ratios[c], default=Configuration())


def _is_faster(won: Mapping[str, Any] | None) -> bool:
    return won is not None and won["verdict"] == "faster"


def _configuration(settings: Mapping[str, Value]) -> Configuration:
    return Configuration.of(dict(settings))


def make_study(
    folder: Path,
    pair: str,
    code: str,
    checkout: Path,
    minutes: float,
    begun: Study | None = None,
) -> Study:
    """Carry a study out, or take the one that is there. begun: one that it goes on with."""
    made = folder / f"{code}-{minutes:g}"
    if begun is not None and not made.exists():
        shutil.copytree(folder / f"{code}-{begun.minutes:g}", made)
    if not _is_made(made, minutes):
        model, framework = pair.split("/")
        command = [sys.executable, "-m", "tuner.cli.main", "--model", model, "--hw", "auto"]
        command += ["--framework", framework, "--budget", f"{minutes:g}m", "--out", str(made)]
        with (folder / f"{made.name}.log").open("a") as log:
            environment = os.environ | {"PYTHONPATH": str(checkout)}
            subprocess.run(
                command, cwd=checkout, env=environment, stdout=log, stderr=log, check=False
            )
    if not _is_made(made, minutes):
        sys.exit(f"{pair}: a study of {minutes:g} minutes left no result; see {made}.log")
    return Study(code, minutes, json.loads((made / "result.json").read_text()))


def _is_made(folder: Path, minutes: float) -> bool:
    """Tell whether a study has ended that was granted so many minutes."""
    path = folder / "result.json"
    return path.exists() and json.loads(path.read_text())["budget_s"] >= 60 * minutes


def known_studies(folder: Path, pair: str) -> list[Study]:
    """Return the studies of a pair that lie in a folder."""
    results = [json.loads(path.read_text()) for path in sorted(folder.glob("*/result.json"))]
    return [
        Study("known", result["budget_s"] / 60, result)
        for result in results
        if f"{result['model']}/{result['framework']}" == pair
        and (result["scenario"], result["device"]) == (OFFLINE, CPU)
    ]


def arms_of(studies: Sequence[Study]) -> list[Configuration]:
    """Return the default and all that the studies of a pair suggest, each once."""
    ratios: dict[Configuration, list[float]] = {}
    for study in studies:
        for configuration, ratio in study.tried():
            ratios.setdefault(configuration, []).append(math.log(ratio))
    arms = [Configuration(), *(study.default for study in studies)]
    for winner_class in WinnerClass:
        arms += [study.winner(winner_class) for study in studies]
        arms += [study.recommendation(winner_class) for study in studies]
        allowed = [c for c in ratios if allowed_in(winner_class, c)]
        allowed.sort(key=lambda c: -statistics.fmean(ratios[c]))
        arms += allowed[:N_SEEN_FASTEST]
    return list(dict.fromkeys(arms))


def log_rate(record: LaunchRecord) -> float | None:
    """Return the median logarithm of the rates of a launch's slices; None if it failed at any time.

    By undisturbed slices where there are any.
    """
    if record.ending is None or record.ending.outcome != Outcome.MEASURED:
        return None
    clean = [s for s in record.slices if not s.interference.dirty]
    rates = [math.log(s.rate) for s in clean or record.slices]
    return statistics.median(rates) if rates else None


def measure_rounds(
    path: Path, pair: str, arms: Sequence[Configuration], n_rounds: int
) -> list[dict[Configuration, float]]:
    """Have fresh rounds until there are so many; each is kept in the file as it ends.

    With every slice: its rate, and whether it was disturbed. Outputs are compared in those of the
    first call. Rounds of other arms, from before a study was added, are left in the file and not
    counted.
    """
    model, framework = pair.split("/")
    if len(read_rounds(path, arms)) < n_rounds:
        with bench_for(model, framework) as bench:
            take_rounds(path, bench, arms, n_rounds)
    return read_rounds(path, arms)


def take_rounds(path: Path, bench: Bench, arms: Sequence[Configuration], n_rounds: int) -> None:
    """Have the rounds that are missing on a bench, as measure_rounds does."""
    wanted = [dict(arm.settings) for arm in arms]
    n_kept = len(read_rounds(path, arms))
    n_before = len(path.read_text().splitlines()) if path.exists() else 0
    with path.open("a") as file:
        for number in range(n_before + 1, n_before + 1 + n_rounds - n_kept):
            records = bench.measure_round(
                list(arms), number, Purpose.CONFIRM, noise=NOISE, checks=not n_kept
            )
            row = [
                [c, log_rate(r), [[s.rate, bool(s.interference.dirty)] for s in r.slices]]
                for c, r in zip(wanted, records, strict=True)
            ]
            file.write(json.dumps(row) + "\n")
            file.flush()


def read_rounds(path: Path, arms: Sequence[Configuration]) -> list[dict[Configuration, float]]:
    """Read the rounds of just these arms that a file holds; without those that failed."""
    wanted = [dict(arm.settings) for arm in arms]
    lines = path.read_text().splitlines() if path.exists() else []
    kept = [row for row in map(json.loads, lines) if [settings for settings, *_ in row] == wanted]
    return [{_configuration(c): rate for c, rate, *_ in row if rate is not None} for row in kept]


def lost_to_best(
    rounds: Sequence[Mapping[Configuration, float]],
    own: Configuration,
    among: Sequence[Configuration],
) -> tuple[float, float, float]:
    """Return the rate of the best of `among` over one's own, with its interval over rounds.

    Over those rounds in which one's own did not fail.
    """
    found = []
    for i, scored in enumerate(rounds):
        if own not in scored:
            continue
        others = [r for j, r in enumerate(rounds) if j != i]
        known = {c: [r[c] for r in others if c in r] for c in among if c in scored}
        known = {c: rates for c, rates in known.items() if rates} or {own: [scored[own]]}
        best = max(known, key=lambda c: statistics.fmean(known[c]))
        found.append(scored[best] - scored[own])
    return interval(found)


def over(
    rounds: Sequence[Mapping[Configuration, float]], own: Configuration, other: Configuration
) -> tuple[float, float, float] | None:
    """Return one's own rate over another's, over the rounds that have both; None of too few."""
    found = [row[own] - row[other] for row in rounds if own in row and other in row]
    return interval(found) if len(found) >= LEAST_ROUNDS else None


def tell_pair(
    pair: str, studies: Sequence[Study], rounds: Sequence[Mapping[Configuration, float]]
) -> list[dict[str, Any]]:
    """Print what a pair's studies found; return it as rows."""
    arms = list(dict.fromkeys(c for row in rounds for c in row))
    rows = []
    for winner_class in WinnerClass:
        among = [c for c in arms if allowed_in(winner_class, c)]
        for study in studies:
            won, guide = study.winner(winner_class), study.recommendation(winner_class)
            if sum(won in row for row in rounds) < LEAST_ROUNDS:
                named = f"{pair:24s} {winner_class:12s} {study.name:12s}"
                print(f"{named} its winner failed in the rounds")
                continue
            over_best = lost_to_best(rounds, won, among)
            over_guide = over(rounds, won, guide)
            over_default = over(rounds, won, study.default)
            rows.append(
                {
                    "pair": pair,
                    "class": str(winner_class),
                    "study": study.name,
                    "configuration": dict(won.settings),
                    "regret": 1 - 1 / over_best[0],
                    "regret_low": 1 - 1 / over_best[1],
                    "regret_high": 1 - 1 / over_best[2],
                    "over_guide": over_guide,
                    "over_default": over_default,
                    "best_over_default": over_best[0] * over_default[0] if over_default else None,
                    "half_width": study.half_width(winner_class),
                }
            )
            told = "  ".join(
                f"{name} {point:.3f} ({low:.3f} - {high:.3f})"
                for name, each in (
                    ("best/won", over_best),
                    ("won/guide", over_guide),
                    ("won/default", over_default),
                )
                if each is not None
                for point, low, high in [each]
            )
            print(f"{pair:24s} {winner_class:12s} {study.name:12s} {told}", flush=True)
    return rows


def tell_all(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the figures over pairs and classes, per code and length."""
    for name in dict.fromkeys(row["study"] for row in rows):
        own = [row for row in rows if row["study"] == name]
        regrets = sorted(row["regret"] for row in own)
        widths = [row["half_width"] for row in own if row["half_width"] is not None]
        slower = [row for row in own if row["over_guide"] and row["over_guide"][2] < 1]
        worth = [row for row in own if (row["best_over_default"] or 0) >= WORTH_DECIDING]
        n_decided = sum(row["half_width"] is not None for row in worth)
        false = [
            row
            for row in own
            if row["half_width"] is not None and row["over_default"] and row["over_default"][2] < 1
        ]
        half = f"{statistics.median(widths):.1%}" if widths else "unknown"
        print(
            f"{name}: median regret {statistics.median(regrets):.1%}, worst {regrets[-1]:.1%}, "
            f"half-width {half} ({len(widths)} of {len(own)} decided; {n_decided} of {len(worth)} "
            f"worth at least {WORTH_DECIDING - 1:.0%}), {len(false)} claimed and surely slower, "
            f"surely slower than the guides' best {len(slower)}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pairs", nargs="+", default=["resnet50/torch", "dlrm-rmc2/tensorflow"])
    parser.add_argument("--minutes", type=float, nargs="+", default=[6.0, 10.0])
    parser.add_argument("--continued", action="store_true", help="one study, with more minutes")
    parser.add_argument("--long", type=float, help="minutes of one longer study of each pair")
    parser.add_argument("--against", type=Path, help="another checkout of the tool")
    parser.add_argument("--known", type=Path, help="a folder of studies that are there already")
    parser.add_argument("--rounds", type=int, default=8)
    given = parser.parse_args()
    if given.rounds < LEAST_ROUNDS:
        parser.error(f"--rounds {given.rounds}: the best is chosen by other rounds; at least 2")
    rows = []
    for number, pair in enumerate(given.pairs):
        folder = given.folder.resolve() / pair.replace("/", "-")
        folder.mkdir(parents=True, exist_ok=True)
        codes = {"this": HERE}
        if given.against is not None:
            codes["other"] = given.against.resolve()
        studies: list[Study] = []
        for minutes in given.minutes:
            for code in list(codes)[:: 1 if number % 2 else -1]:
                own = [study for study in studies if study.code == code]
                begun = own[-1] if own and given.continued else None
                studies.append(make_study(folder, pair, code, codes[code], minutes, begun))
        if given.long is not None:
            studies.append(make_study(folder, pair, "this", HERE, given.long))
        if given.known is not None:
            studies += known_studies(given.known, pair)
        studies.sort(key=lambda study: study.name)  # the same arms, whoever was first
        rounds = measure_rounds(folder / "rounds.jsonl", pair, arms_of(studies), given.rounds)
        rows += tell_pair(pair, studies, rounds)
        (given.folder / "rows.json").write_text(json.dumps(rows, indent=1))
    tell_all(rows)


if __name__ == "__main__":
    main()
