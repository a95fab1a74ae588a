"""What rules recommend, beside what tuning found and what vendors recommend, in fresh rounds.

    python -m benchmarks.guideline_rounds FOLDER --recordings reports/studies [--known STUDIES]
        [--pairs resnet50/torch dlrm-rmc2/tensorflow] [--rounds 5]

For each pair: rules learnt without its family; rounds of the default, of what they recommend in
both classes, of the best known of both (fixed before: the fastest of what the pair's studies
confirmed and of the cells of its designed part), of every vendor's recommendation, of Packrat and
of the guideline of arXiv:1908.04705. Reported: log(guideline / default) over log(best known /
default) where the best known is surely worth more than 1.10x.

What is there in FOLDER is not measured again. Run nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.company import NOISE, bench_for, interval
from benchmarks.packrat import divide, one_instance, profiled, team
from benchmarks.real_regret import Study, known_studies, log_rate, measure_rounds
from tuner.host.identity import probe
from tuner.insight.facts import facts_of
from tuner.insight.predict import known_of, ranked, settable
from tuner.insight.studies import make_guidelines, read_recordings
from tuner.plan import Plan, plan
from tuner.recommending import configuration_of
from tuner.record.configuration import Configuration
from tuner.record.guidelines import Recording
from tuner.record.journal import WinnerClass
from tuner.record.launch import Purpose
from tuner.request import Request
from tuner.space.baselines import to_measure
from tuner.space.catalogue import allowed_in
from tuner.space.design import Factors
from tuner.space.knobs_of.launch import BATCH

WORTH_SCORING = 1.10
N_PROFILES = 2
"""Launches of each instance that Packrat profiles."""
GUIDELINE, KNOWN, PACKRAT = "guideline", "best known", "packrat"
CLASSES = (WinnerClass.SAME, WinnerClass.REDUCED)


def guideline_for(
    planned: Plan, factors: Factors, recordings: Sequence[Recording], klass: WinnerClass
) -> Configuration:
    """Return what rules of other families recommend for a model."""
    workload = planned.workload
    others = [each for each in recordings if each.family != workload.card.family]
    facts = facts_of(workload.card, planned.facts, probe().identity())
    known = known_of(make_guidelines(others, ""), workload.framework, facts)
    for prediction in ranked(known, settable(known, factors.here)):
        found = configuration_of(factors, prediction, klass)
        if found is not None:
            return found
    return Configuration()


def best_known(
    planned: Plan, klass: WinnerClass, recordings: Sequence[Recording], studies: Sequence[Study]
) -> Configuration:
    """Return the fastest that is known of a pair: a winner of a study, or a designed cell.

    By what was measured there, whichever is more: a short study's winner may be slower than a cell.
    What cannot be set here, as bf16 where a recording's host had it, is left out; so are winners at
    another batch, which are faster than the default at that batch, and not than the rounds' own.
    """
    found: dict[Configuration, float] = {}
    for each in recordings:
        for cell in each.design.cells:
            configuration = Configuration.of(cell.configuration)
            if cell.log_ratio and allowed_in(klass, configuration):
                found[configuration] = math.exp(cell.log_ratio)
    for each in recordings:
        won = each.winners.get(str(klass))
        if won is not None and won.verdict == "faster" and won.speedup is not None:
            found[Configuration.of(won.configuration)] = won.speedup.point
    for study in studies:
        won_there = study.result["winners"][klass]
        if won_there["verdict"] == "faster":
            configuration = Configuration.of(won_there["configuration"])
            found[configuration] = won_there["speedup"]["point"]
    here = {
        c: ratio for c, ratio in found.items() if planned.space.contains(c) and c.get(BATCH) is None
    }
    best = max(here, key=lambda c: here[c], default=Configuration())
    return best if found.get(best, 0.0) > 1 else Configuration()


def packrat(planned: Plan, folder: Path) -> Configuration:
    """Profile single instances, once, and return what Packrat makes of them."""
    path, workload = folder / "packrat.json", planned.workload
    cores = probe().usable_cores
    wanted = profiled(cores, workload.card.batches)
    if not path.exists():
        arms = [one_instance(planned.space, *each) for each in wanted]
        rates: dict[Configuration, list[float]] = {}
        with bench_for(workload.model.label(), workload.framework) as bench:
            for number in range(N_PROFILES):
                records = bench.measure_round(
                    list(dict.fromkeys(arms)), number + 1, Purpose.CONFIRM, noise=NOISE
                )
                for record in records:
                    if (rate := log_rate(record)) is not None:
                        rates.setdefault(record.request.configuration, []).append(rate)
        kept = [
            [*each, math.exp(statistics.fmean(rates[arm]))]
            for each, arm in zip(wanted, arms, strict=True)
            if arm in rates
        ]
        path.write_text(json.dumps(kept))
    measured = {(t, b): rate for t, b, rate in json.loads(path.read_text())}
    return team(planned.space, divide(cores, measured))


def arms_of(
    planned: Plan, factors: Factors, recordings: Sequence[Recording], known: Sequence[Study],
    folder: Path,
) -> dict[str, Configuration]:  # fmt: skip
    """Return every arm of a pair by its name; several names may have one configuration."""
    workload = planned.workload
    pair = (workload.model.label(), workload.framework)
    own = [each for each in recordings if (each.model, each.framework) == pair]
    arms = {"default": Configuration()}
    for klass in CLASSES:
        arms[f"{GUIDELINE} {klass}"] = guideline_for(planned, factors, recordings, klass)
        arms[f"{KNOWN} {klass}"] = best_known(planned, klass, own, known)
    arms |= {b.name: b.configuration for b in to_measure(planned.baselines)}
    arms[PACKRAT] = packrat(planned, folder)
    return arms


def tell_pair(
    pair: str,
    arms: Mapping[str, Configuration],
    rounds: Sequence[Mapping[Configuration, float]],
) -> list[dict[str, Any]]:
    """Print every arm over the default; return rows."""
    rows = []
    for name, configuration in arms.items():
        found = [r[configuration] - r[Configuration()] for r in rounds
                 if configuration in r and Configuration() in r]  # fmt: skip
        if len(found) < 2 or name == "default":
            continue
        point, low, high = interval(found)
        print(
            f"{pair:24s} {name:32s} {point:.3f} ({low:.3f} - {high:.3f})  {configuration.label()}"
        )
        rows.append({"pair": pair, "arm": name, "speedup": [point, low, high],
                     "settings": configuration.as_dict()})  # fmt: skip
    return rows


def tell_all(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print, per class, the share of the best known gain, and the means of all that took part."""
    speedup = {(row["pair"], row["arm"]): row["speedup"] for row in rows}
    pairs = list(dict.fromkeys(row["pair"] for row in rows))
    for klass in CLASSES:
        shares = {}
        for pair in pairs:
            known = speedup.get((pair, f"{KNOWN} {klass}"))
            own = speedup.get((pair, f"{GUIDELINE} {klass}"))
            if known and own and known[1] > WORTH_SCORING:
                shares[pair] = math.log(own[0]) / math.log(known[0])
        slower = [p for p in pairs if (s := speedup.get((p, f"{GUIDELINE} {klass}"))) and s[2] < 1]
        mean = statistics.fmean(shares.values()) if shares else math.nan
        told = f"mean {mean:.2f}, worst {min(shares.values(), default=math.nan):.2f}"
        print(f"{klass}: share of the best known gain, {len(shares)} pairs: {told}; "
              f"surely slower than the default: {', '.join(slower) or 'none'}")  # fmt: skip
    for arm in dict.fromkeys(row["arm"] for row in rows):
        own = [math.log(row["speedup"][0]) for row in rows if row["arm"] == arm]
        print(f"{arm:32s} geometric mean {math.exp(statistics.fmean(own)):.3f}x over {len(own)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--recordings", type=Path, required=True)
    parser.add_argument("--known", type=Path, help="a folder of studies of the same host")
    parser.add_argument("--pairs", nargs="+")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    recordings = read_recordings([given.recordings])
    pairs = given.pairs or list(dict.fromkeys(f"{r.model}/{r.framework}" for r in recordings))
    rows = []
    for pair in pairs:
        folder = given.folder / pair.replace("/", "-")
        folder.mkdir(parents=True, exist_ok=True)
        model, framework = pair.split("/")
        host = probe()
        (planned,) = plan(Request(model=model, frameworks=(framework,)), host)
        factors = Factors(planned.profile, host, planned.workload, planned.facts, planned.space)
        known = known_studies(given.known, pair) if given.known else []
        arms = arms_of(planned, factors, recordings, known, folder)
        (folder / "arms.json").write_bytes(
            msgspec.json.encode({n: c.as_dict() for n, c in arms.items()})
        )
        measured = list(dict.fromkeys(arms.values()))
        rounds = measure_rounds(folder / "rounds.jsonl", pair, measured, given.rounds)
        rows += tell_pair(pair, arms, rounds)
        (given.folder / "rows.json").write_text(json.dumps(rows, indent=1))
    tell_all(rows)


if __name__ == "__main__":
    main()
