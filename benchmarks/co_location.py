"""What are batching and co-location worth to a recommendation model, and what do they cost?

    python -m benchmarks.co_location FOLDER --slo p99=10ms [--framework torch] [--rounds 4]
        [--models dlrm-rmc1@row_scale=0.25 dlrm-rmc2@row_scale=0.25] [--batch 16]

As in Gupta et al., arXiv:1906.03109, for each model, in fresh interleaved rounds: the highest rate
of random requests within the bound when one process takes them one by one, when it takes up to so
many at once, when there is a process for each core, and both; then offline, with one sample and
with such a batch, how much longer a call takes on one core when each of the other cores has a
process of the same model, too. With 95 % intervals over rounds. row_scale: tables in full take 2.4
to 3.8 GiB, and a round holds six copies; what the last-level cache holds is not bound by memory.

Rounds are kept in FOLDER and not measured again. Run nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.company import interval
from benchmarks.other_question import measure, tell
from benchmarks.real_regret import LEAST_ROUNDS
from tuner.app.request import Request
from tuner.host.identity import probe
from tuner.record.configuration import Configuration
from tuner.space.knobs_of.launch import BATCH, CORES_PER_INSTANCE, INSTANCES

MODELS = tuple(f"dlrm-rmc{n}@row_scale=0.25" for n in (1, 2, 3))
ONE_BY_ONE, BATCHING, CO_LOCATED, BOTH = "one by one", "batching", "co-location", "both"
ALONE, BESIDE = "one core's process alone", "one on every core"


def in_line(batch: int, n_cores: int) -> dict[str, Configuration]:
    """Return the ways in which a server may take its requests, by name."""
    return {
        ONE_BY_ONE: Configuration.of({BATCH: 1}),
        BATCHING: Configuration.of({BATCH: batch}),
        CO_LOCATED: Configuration.of({BATCH: 1, INSTANCES: n_cores}),
        BOTH: Configuration.of({BATCH: batch, INSTANCES: n_cores}),
    }


def side_by_side(batch: int, n_cores: int) -> dict[str, Configuration]:
    """Return a process on one core, by itself and with one on each of the others."""
    return {
        ALONE: Configuration.of({BATCH: batch, INSTANCES: 1, CORES_PER_INSTANCE: 1}),
        BESIDE: Configuration.of({BATCH: batch, INSTANCES: n_cores}),
    }


def tell_slowdown(rounds: Sequence[Mapping[str, float]], n_cores: int) -> None:
    """Print how much longer a call takes beside others, from logarithms of summed rates."""
    both = [row for row in rounds if ALONE in row and BESIDE in row]
    if len(both) < LEAST_ROUNDS:
        print(f"  a call beside others: known of {len(both)} of {len(rounds)} rounds")
        return
    longer = [math.log(n_cores) + row[ALONE] - row[BESIDE] for row in both]
    told = "{:.2f} ({:.2f} - {:.2f})".format(*interval(longer))
    print(f"  beside {n_cores - 1} more of its kind a call takes {told} times as long")


def main() -> None:
    """Have the rounds of each model, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--framework", default="torch")
    parser.add_argument("--slo", required=True)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=4)
    given = parser.parse_args()
    n_cores = probe().usable_cores
    if n_cores < 2:
        parser.error("co-location takes two cores, and this process may use one")
    given.folder.mkdir(parents=True, exist_ok=True)
    for model in given.models:
        path = given.folder / f"{model}-{given.framework}-{given.slo}.jsonl"
        served = Request(
            model=model, frameworks=(given.framework,), scenario="server", slo=given.slo
        )
        arms = in_line(given.batch, n_cores)
        rounds = measure(path, served, arms, given.rounds)
        tell(f"{model} in {given.framework}", f"requests/s within {given.slo}", rounds, list(arms))
        offline = Request(model=model, frameworks=(given.framework,), scenario="offline")
        for batch in (1, given.batch):
            pair = side_by_side(batch, n_cores)
            rounds = measure(path, offline, pair, given.rounds)
            tell(f"{model}, batches of {batch}", "items/s", rounds, list(pair))
            tell_slowdown(rounds, n_cores)


if __name__ == "__main__":
    main()
