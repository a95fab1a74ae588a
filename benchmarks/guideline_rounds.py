"""What rules recommend, beside what tuning found and what vendors recommend, in fresh rounds.

    python -m benchmarks.guideline_rounds FOLDER --recordings reports/studies [--known STUDIES]
        [--pairs resnet50/torch dlrm-rmc2/tensorflow] [--rounds 3] [--hours 2]
    python -m benchmarks.guideline_rounds FOLDER --tell

For each pair: rules learnt without its family; rounds of the default, of what they recommend in
each class, of the best known of each (fixed before: the fastest of what the pair's studies
confirmed and of the cells of its designed part), of every vendor's recommendation, of Packrat and
of the guideline of arXiv:1908.04705. A recommendation that comes to the default on this host counts
as the default. Reported: log(guideline / default) over log(best known / default) where the best
known is surely worth more than 1.10x; and by how much the guideline is ahead of each
recommendation of its class, over the same pairs.

Every pair has its first round before any has its second, so that a pair's rounds are hours apart;
outputs are compared in the first. Intervals rest on how launches of a pair scatter, over all of its
arms. A pair's arms are fixed when it is first measured. What is there in FOLDER is not measured
again: the same command goes on. --hours: no round is begun after so many; --tell: nothing is
measured. Run nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from scipy import stats

from benchmarks.company import NOISE, bench_of, interval
from benchmarks.packrat import divide, one_instance, profiled, team
from benchmarks.real_regret import (
    Study,
    known_studies,
    log_rate,
    lost_to_best,
    measure_rounds,
    read_rounds,
    take_rounds,
)
from tuner.app.plan import Plan, plan
from tuner.app.request import Request
from tuner.galleries import MODELS
from tuner.guidelines.facts import facts_of, host_in_words
from tuner.guidelines.predict import best_combination, known_of
from tuner.guidelines.studies import make_guidelines, read_recordings
from tuner.host.identity import probe
from tuner.launchers.describe import gallery_cards
from tuner.measurement.bench import Bench
from tuner.record.configuration import Configuration, Value
from tuner.record.guidelines import Recording
from tuner.record.launch import Purpose
from tuner.record.objective import THROUGHPUT
from tuner.record.winner_class import WinnerClass
from tuner.space.catalogue import allowed_in
from tuner.space.design import Factors
from tuner.space.knobs_of.launch import BATCH

WORTH_SCORING = 1.10
LEAST_ROUNDS = 2
N_PROFILES = 2
"""Launches of each instance that Packrat profiles."""
GUIDELINE, KNOWN, PACKRAT = "guideline", "best known", "packrat"
GUIDELINE_SAME = f"{GUIDELINE} {WinnerClass.SAME_PRECISION}"
OURS = (
    "default",
    *(f"{name} {winner_class}" for name in (GUIDELINE, KNOWN) for winner_class in WinnerClass),
)
Round = Mapping[Configuration, float]
"""The logarithm of each arm's rate; without those that failed."""


class Arms(msgspec.Struct, frozen=True):
    """What is measured of a pair, as it was fixed before."""

    host: str
    """In words: rounds of two are no rounds."""
    arms: dict[str, dict[str, Value]]


class Pair(NamedTuple):
    """What was measured of a model in a framework."""

    model: str
    framework: str
    arms: dict[str, Configuration]
    """By name; several may have one configuration."""
    rounds: list[Round]

    @property
    def name(self) -> str:
        return f"{self.model}/{self.framework}"

    @property
    def classes(self) -> list[WinnerClass]:
        """The classes that have arms of their own, the narrowest first."""
        return [
            winner_class
            for winner_class in WinnerClass
            if f"{GUIDELINE} {winner_class}" in self.arms
        ]

    def others(self) -> list[str]:
        """Return the names of all arms that are not ours."""
        return [name for name in self.arms if name not in OURS]

    def vendors(self, winner_class: WinnerClass) -> dict[str, Configuration]:
        """Return the recommendations of others that a class allows, Packrat's aside."""
        return {
            name: self.arms[name]
            for name in self.others()
            if name != PACKRAT and allowed_in(winner_class, self.arms[name])
        }

    def has_failed(self, name: str) -> bool:
        """Tell whether an arm failed in any round."""
        return any(self.arms[name] not in row for row in self.rounds)

    def gain(self, name: str) -> tuple[float, float, float] | None:
        """Return an arm over the default with its 95 % interval; None where the default failed.

        By the scatter of all arms of the pair: of three rounds a single one's is not known. One
        that failed in any round counts as the default, which is what is left to whoever took it.
        """
        if self.has_failed("default") or len(self.rounds) < LEAST_ROUNDS:
            return None
        if self.arms[name] == Configuration() or self.has_failed(name):
            return 1.0, 1.0, 1.0
        found = [row[self.arms[name]] - row[Configuration()] for row in self.rounds]
        sd, freedom = self.launch_sd()
        half = float(stats.t.ppf(0.975, freedom)) * sd * math.sqrt(2 / len(found))
        mean = statistics.fmean(found)
        return math.exp(mean), math.exp(mean - half), math.exp(mean + half)

    def launch_sd(self) -> tuple[float, int]:
        """Return the SD of a launch's log rate within its round, and its degrees of freedom.

        What arms and rounds leave unexplained, of the arms that never failed: two at the least,
        over two rounds.
        """
        arms = [c for c in dict.fromkeys(self.arms.values()) if all(c in r for r in self.rounds)]
        n_rounds = len(self.rounds)
        of_round = [statistics.fmean(row[c] for c in arms) for row in self.rounds]
        mean = statistics.fmean(of_round)
        rest = 0.0
        for c in arms:
            own = statistics.fmean(row[c] for row in self.rounds)
            rest += sum(
                (row[c] - own - at + mean) ** 2
                for row, at in zip(self.rounds, of_round, strict=True)
            )
        freedom = (len(arms) - 1) * (n_rounds - 1)
        return math.sqrt(rest / freedom), freedom


def guideline_for(
    planned: Plan, factors: Factors, recordings: Sequence[Recording], winner_class: WinnerClass
) -> Configuration:
    """Return what rules of other families recommend for a model."""
    workload = planned.workload
    others = [each for each in recordings if each.family != workload.card.family]
    facts = facts_of(workload.card, planned.facts, probe().identity())
    known = known_of(make_guidelines(others, ""), workload.framework, facts)
    best = best_combination(factors, known, winner_class)
    return Configuration() if best is None else best[0]


def best_known(
    planned: Plan,
    winner_class: WinnerClass,
    recordings: Sequence[Recording],
    studies: Sequence[Study],
) -> Configuration:
    """Return the fastest that is known of a pair: a winner of a study, or a designed cell.

    By the mean of what was measured of each, on this host where anything was. What cannot be set
    here, as bf16 where a recording's host had it, is left out; so are winners at another batch,
    which are faster than the default at that batch, and not than the rounds' own.
    """
    here = host_in_words(probe().identity())
    own_recordings = [each for each in recordings if each.host == here]
    own_studies = [s for s in studies if host_in_words(s.result["host"]["identity"]) == here]
    if own_recordings or own_studies:
        recordings, studies = own_recordings, own_studies
    seen: defaultdict[Configuration, list[float]] = defaultdict(list)
    for each in recordings:
        for cell in each.design.cells:
            if cell.log_ratio is not None:
                seen[Configuration.of(cell.configuration)].append(cell.log_ratio)
    for study in studies:
        for won in study.result["winners"].values():
            gain = won["speedup_at_reference_batch"]
            if won["verdict"] == "faster" and gain is not None:
                seen[Configuration.of(won["configuration"])].append(math.log(gain["point"]))
    for each in recordings:  # these are over the default at its best batch, which is more
        for found in each.winners.values():
            if found.verdict == "faster" and found.speedup is not None:
                seen.setdefault(
                    Configuration.of(found.configuration), [math.log(found.speedup.point)]
                )
    literal = {each.configuration for each in planned.baselines}
    log_gain = {
        c: statistics.fmean(logs)
        for c, logs in seen.items()
        if allowed_in(winner_class, c)
        and c.get(BATCH) is None
        and (planned.space.contains(c) or c in literal)
    }
    best = max(log_gain, key=lambda c: log_gain[c], default=Configuration())
    return best if log_gain.get(best, 0.0) > 0 else Configuration()


def packrat(planned: Plan, bench: Bench) -> Configuration:
    """Profile single instances, and return what Packrat makes of them.

    At the batch of all other arms.
    """
    cores = probe().usable_cores
    wanted = profiled(cores, [planned.workload.card.reference_batch])
    profiles = {each: one_instance(planned.space, *each) for each in wanted}
    rates: defaultdict[Configuration, list[float]] = defaultdict(list)
    for number in range(N_PROFILES):
        arms = list(dict.fromkeys(profiles.values()))
        records = bench.measure_round(arms, number + 1, Purpose.CONFIRM, noise=NOISE)
        for record in records:
            if (rate := log_rate(record)) is not None:
                rates[record.request.configuration].append(rate)
    measured = {
        each: math.exp(statistics.fmean(rates[arm]))
        for each, arm in profiles.items()
        if arm in rates
    }
    return team(planned.space, divide(cores, measured))


def arms_of(
    planned: Plan, factors: Factors, recordings: Sequence[Recording], known: Sequence[Study],
    bench: Bench,
) -> dict[str, Configuration]:  # fmt: skip
    """Return every arm of a pair by its name; several names may have one configuration."""
    workload = planned.workload
    pair = (workload.model.label(), workload.framework)
    own = [each for each in recordings if (each.model, each.framework) == pair]
    arms = {"default": Configuration()}
    for winner_class in WinnerClass:
        arms[f"{GUIDELINE} {winner_class}"] = guideline_for(
            planned, factors, recordings, winner_class
        )
        arms[f"{KNOWN} {winner_class}"] = best_known(planned, winner_class, own, known)
    for each in planned.baselines:
        if each.is_applicable:
            twin = arms.get(each.same_as or "")
            arms[each.name] = each.configuration if twin is None else twin
    arms[PACKRAT] = packrat(planned, bench)
    return arms


def measure(
    folder: Path, pair: str, recordings: Sequence[Recording], known: Path | None, n_rounds: int
) -> tuple[int, int]:
    """Have a pair's missing rounds; return how many there are, and of how many arms."""
    path, rounds = folder / "arms.json", folder / "rounds.jsonl"
    host = probe()
    here = host_in_words(host.identity())
    if path.exists():
        kept = read_arms(path)
        if kept.host != here:
            sys.exit(f"{pair}: its arms were fixed on {kept.host}; name another folder")
        arms = list(dict.fromkeys(map(Configuration.of, kept.arms.values())))
        return len(measure_rounds(rounds, pair, arms, n_rounds)), len(arms)
    folder.mkdir(parents=True, exist_ok=True)
    model, framework = pair.split("/")
    (planned,) = plan(Request(model=model, frameworks=(framework,)), host)
    factors = Factors(planned.profile, host, planned.workload, planned.facts, planned.space)
    studies = known_studies(known, pair) if known else []
    with bench_of(planned.workload, planned.facts, THROUGHPUT) as bench:
        named = arms_of(planned, factors, recordings, studies, bench)
        kept = Arms(here, {name: c.as_dict() for name, c in named.items()})
        path.write_bytes(msgspec.json.format(msgspec.json.encode(kept)))
        arms = list(dict.fromkeys(named.values()))
        take_rounds(rounds, bench, arms, n_rounds)
    return len(read_rounds(rounds, arms)), len(arms)


def read_arms(path: Path) -> Arms:
    """Read a pair's arms. Raises OSError, and ValueError for what is damaged."""
    return msgspec.json.decode(path.read_bytes(), type=Arms)


def read_pairs(folder: Path) -> list[Pair]:
    """Read what lies in a folder of rounds. Raises OSError and ValueError for what is damaged."""
    found = []
    for path in sorted(folder.glob("*/arms.json")):
        model, _, framework = path.parent.name.rpartition("-")
        named = read_arms(path).arms
        arms = {_present(name): Configuration.of(settings) for name, settings in named.items()}
        measured = list(dict.fromkeys(arms.values()))
        rounds: list[Round] = list(read_rounds(path.with_name("rounds.jsonl"), measured))
        found.append(Pair(model, framework, arms, rounds))
    return found


def _present(name: str) -> str:
    """Return an arm's name with the present name of its class: "guideline same" of older rounds."""
    what, _, last = name.rpartition(" ")
    former = {each.former_name: each for each in WinnerClass}
    return f"{what} {former[last]}" if what in (GUIDELINE, KNOWN) and last in former else name


def tell_pair(pair: Pair) -> None:
    """Print every arm over the default."""
    if pair.gain(GUIDELINE_SAME) is None:
        print(f"{pair.name}: the default failed in some round")
        return
    print(f"{pair.name}: {len(pair.rounds)} rounds, SD of a launch {pair.launch_sd()[0]:.1%}")
    for name, configuration in pair.arms.items():
        gain = pair.gain(name)
        told = "failed" if gain is None or pair.has_failed(name) else in_words(gain)
        print(f"{pair.name:24s} {name:32s} {told}  {configuration.label()}")


def in_words(ratio: tuple[float, float, float]) -> str:
    point, low, high = ratio
    return f"{point:.3f} ({low:.3f} - {high:.3f})"


def shares_of(pairs: Iterable[Pair], winner_class: WinnerClass) -> dict[str, float]:
    """Return, of pairs whose best known is surely worth it, the share that the guideline gains."""
    found = {}
    for pair in pairs:
        if winner_class not in pair.classes:
            continue
        known, own = pair.gain(f"{KNOWN} {winner_class}"), pair.gain(f"{GUIDELINE} {winner_class}")
        if known is not None and own is not None and known[1] > WORTH_SCORING:
            found[pair.name] = math.log(own[0]) / math.log(known[0])
    return found


def tell_class(
    pairs: Sequence[Pair], winner_class: WinnerClass, families: Mapping[str, str]
) -> None:
    """Print the share of the best known gain, and who is slower than the default."""
    shares = shares_of(pairs, winner_class)
    own = f"{GUIDELINE} {winner_class}"
    if shares:
        capped = [min(1.0, share) for share in shares.values()]
        print(
            f"{winner_class}: share of the best known gain, {len(shares)} pairs: mean "
            f"{statistics.fmean(shares.values()):.2f}{over_families(shares, families)}, none "
            f"counted above 1 {statistics.fmean(capped):.2f}, worst {min(shares.values()):.2f}"
        )
        told = ", ".join(f"{p} {s:.2f}" for p, s in sorted(shares.items(), key=lambda i: i[1]))
        print(f"{winner_class}: {told}")
    of_best = []
    for pair in pairs:
        allowed = [c for c in dict.fromkeys(pair.arms.values()) if allowed_in(winner_class, c)]
        gain = pair.gain(own)
        if gain is not None:
            best = lost_to_best(pair.rounds, Configuration(), allowed)
            if best[0] > WORTH_SCORING:
                of_best.append(math.log(gain[0]) / math.log(best[0]))
    if of_best:
        print(
            f"{winner_class}: of the best of all arms, chosen by other rounds, "
            f"{len(of_best)} pairs: mean {statistics.fmean(of_best):.2f}"
        )
    gains = {pair.name: gain for pair in pairs if (gain := pair.gain(own)) is not None}
    slower = [name for name, gain in gains.items() if gain[2] < 1]
    may_be = [name for name, gain in gains.items() if gain[1] < 0.9]
    failed = [pair.name for pair in pairs if pair.has_failed(own)]
    for told, names in (
        ("surely slower than the default", slower),
        ("may be slower by a tenth", may_be),
        ("failed", failed),
    ):
        print(f"{winner_class}: {told}: {', '.join(names) or 'none'}")


def over_families(of_pair: Mapping[str, float], families: Mapping[str, str]) -> str:
    """Return the 95 % interval of a mean, in words: by the means of families; empty of one."""
    by_family: defaultdict[str, list[float]] = defaultdict(list)
    for pair, value in of_pair.items():
        by_family[families[pair]].append(value)
    if len(by_family) < 2:
        return ""
    _, low, high = interval([statistics.fmean(own) for own in by_family.values()])
    return f" ({math.log(low):.2f} - {math.log(high):.2f} over {len(by_family)} families)"


def class_of(name: str, pair: Pair) -> WinnerClass:
    """Return the narrowest class that allows a recommendation: ours of the same is its match."""
    return next(
        winner_class for winner_class in pair.classes if allowed_in(winner_class, pair.arms[name])
    )


def tell_others(pairs: Sequence[Pair]) -> None:
    """Print by how much the guideline is ahead of each recommendation.

    Over the same pairs, in each the guideline of the recommendation's own class.
    """
    for framework in dict.fromkeys(pair.framework for pair in pairs):
        here = [pair for pair in pairs if pair.framework == framework]
        for name in dict.fromkeys(name for pair in here for name in pair.others()):
            there = [pair for pair in here if name in pair.arms]
            both = [
                (math.log(own[0]), math.log(other[0]))
                for pair in there
                if (own := pair.gain(f"{GUIDELINE} {class_of(name, pair)}"))
                and (other := pair.gain(name))
            ]
            n_default = sum(pair.arms[name] == Configuration() for pair in there)
            if len(both) < 2:
                continue
            ours, theirs = (math.exp(statistics.fmean(logs)) for logs in zip(*both, strict=True))
            ahead = interval([a - b for a, b in both])
            print(
                f"{framework:11s} {name:24s} {theirs:.3f}x, the guideline {ours:.3f}x: "
                f"ahead by {in_words(ahead)} over {len(both)} models, in {n_default} of which it "
                "is the default"
            )


def tell_all(pairs: Sequence[Pair], families: Mapping[str, str]) -> None:
    """Print all pairs, and what holds over them."""
    measured = [pair for pair in pairs if len(pair.rounds) >= LEAST_ROUNDS]
    for pair in measured:
        tell_pair(pair)
    if few := [pair.name for pair in pairs if pair not in measured]:
        print(f"too few rounds yet, left out: {', '.join(few)}")
    narrower: WinnerClass | None = None
    for winner_class in WinnerClass:
        there = [pair for pair in measured if winner_class in pair.classes]
        if not there:
            continue
        if narrower is None or any(differ(pair, winner_class, narrower) for pair in there):
            tell_class(there, winner_class, families)
        else:
            print(f"{winner_class}: both arms are those of the class {narrower}, in every pair")
        narrower = winner_class
    tell_others(measured)


def differ(pair: Pair, one: WinnerClass, other: WinnerClass) -> bool:
    """Tell whether either of our arms is another in another class."""
    names = (GUIDELINE, KNOWN)
    return any(pair.arms[f"{n} {one}"] != pair.arms.get(f"{n} {other}") for n in names)


def families_of(pairs: Iterable[Pair]) -> dict[str, str]:
    """Return each pair's family, as its model's card has it."""
    cards = {card.name: card for card in gallery_cards(MODELS)}
    return {pair.name: cards[pair.model.partition("@")[0]].family for pair in pairs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--recordings", type=Path)
    parser.add_argument("--known", type=Path, help="a folder of studies of the same host")
    parser.add_argument("--pairs", nargs="+")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--hours", type=float, default=math.inf)
    parser.add_argument("--tell", action="store_true", help="measure nothing")
    given = parser.parse_args()
    until_s = time.monotonic() + 3600 * given.hours
    if not given.tell:
        if given.recordings is None:
            parser.error("name --recordings, or --tell what was measured")
        recordings = read_recordings([given.recordings])
        pairs = given.pairs or list(dict.fromkeys(f"{r.model}/{r.framework}" for r in recordings))
        for n_rounds in range(1, given.rounds + 1):
            for pair in pairs:
                if time.monotonic() > until_s:
                    break
                began_s = time.monotonic()
                folder = given.folder / pair.replace("/", "-")
                kept, n_arms = measure(folder, pair, recordings, given.known, n_rounds)
                print(f"{pair}: {kept} rounds of {n_arms} arms, {time.monotonic() - began_s:.0f} s",
                      flush=True)  # fmt: skip
    found = read_pairs(given.folder)
    tell_all(found, families_of(found))


if __name__ == "__main__":
    main()
