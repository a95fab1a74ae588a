"""How often are claims wrong, and how wide are their intervals? The whole procedure, simulated.

    python -m benchmarks.looks [--studies 2000] [--rounds 4,6,18] [--json OUT]
    python -m benchmarks.looks --continued 2

A study confirms three finalists and a baseline against the default, with the product's own
functions (tuner/measurement/confirmation.py): interim looks, the last look, the classes' levels,
the pooled scatter. Its noise is made up: normal, with heavy tails, with one slow launch in twenty,
with arms that scatter differently, or with a state that an arm keeps from round to round. In the
first half of the rows nothing is faster: any claim is false. In the others each finalist is 5, 10
or 20 % faster.

--continued: nothing is faster, and each study goes on as often after its end, with as many rounds
again: the finalist that looked best stays, with its rounds, and the others are new.

Printed per row: studies with a false claim, intervals that hold the truth, the median half-width of
the first finalist's interval (log), and the share of finalists called faster.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np

from tuner.measurement.confirmation import (
    ALPHA,
    INTERIM_ALPHA,
    LOOKS,
    Difference,
    difference,
    fallback_alphas,
    fit_rounds,
    judge,
    look_level,
)

N_FINALISTS, N_ARMS = 3, 4
_SLOWER = (math.log(1.3), math.log(2.0))

LogScores = np.ndarray
"""Of rounds (rows) and arms, the default first."""
Draw = Callable[[np.random.Generator, int], LogScores]


def _normal(sd: float) -> Draw:
    return lambda random, n: random.normal(0, sd, (n, 1 + N_ARMS))


def _heavy(sd: float) -> Draw:
    """Student's t with three degrees of freedom."""
    return lambda random, n: random.standard_t(3, (n, 1 + N_ARMS)) * sd / math.sqrt(3)


def _slow(random: np.random.Generator, n: int) -> LogScores:
    """One launch in twenty takes 1.3 to 2 times as long."""
    is_slow = random.random((n, 1 + N_ARMS)) < 0.05
    return random.normal(0, 0.03, (n, 1 + N_ARMS)) - is_slow * random.uniform(*_SLOWER)


def _loud(arm: int) -> Draw:
    """One arm scatters five times as much as the others."""
    sd = np.full(1 + N_ARMS, 0.03)
    sd[arm] = 0.15
    return lambda random, n: random.normal(0, sd, (n, 1 + N_ARMS))


def _lasting(correlation: float) -> Draw:
    """Each arm's deviation goes on from round to round."""

    def draw(random: np.random.Generator, n: int) -> LogScores:
        log_scores = random.normal(0, 0.05, (n, 1 + N_ARMS))
        for i in range(1, n):
            own = math.sqrt(1 - correlation**2) * log_scores[i]
            log_scores[i] = correlation * log_scores[i - 1] + own
        return log_scores

    return draw


NOISES: dict[str, Draw] = {
    "normal, 3 %": _normal(0.03),
    "normal, 10 %": _normal(0.1),
    "heavy tails, 10 %": _heavy(0.1),
    "one launch in 20 slow": _slow,
    "a loud finalist": _loud(1),
    "a loud default": _loud(0),
    "lasting state, 0.4": _lasting(0.4),
    "lasting state, 0.8": _lasting(0.8),
}


class Row(msgspec.Struct):
    """What came of the studies of one kind."""

    noise: str
    gain: float
    n_rounds: int
    false: float
    """Share of studies in which any finalist that is no faster is called faster."""
    covered: float
    half_width: float
    faster: float
    bias: float
    """Mean of the log point less the truth."""


class Ended(msgspec.Struct, frozen=True):
    """What is said of a finalist, and after how many rounds."""

    n_rounds: int
    found: Difference
    level: float
    is_faster: bool


def confirm(log_scores: LogScores) -> list[Ended]:
    """Return what a confirmation says of each finalist. worths: all that the budget holds."""
    ended: dict[int, Ended] = {}
    n_rounds = len(log_scores)
    for n in [*(look for look in LOOKS if look < n_rounds), n_rounds]:
        is_last = n == n_rounds
        noise = fit_rounds(log_scores[:n].tolist()).noise
        assert noise is not None
        found = [
            ended[i].found
            if i in ended
            else difference((log_scores[:n, 1 + i] - log_scores[:n, 0]).tolist(), noise)
            for i in range(N_FINALISTS)
        ]
        levels = [INTERIM_ALPHA] * N_FINALISTS
        if is_last:
            levels = fallback_alphas([each.p_value() for each in found], look_level(0))
        for i in range(N_FINALISTS):
            interval = found[i].interval(levels[i])
            verdict = judge(interval, noise.floor(n))
            if is_last or (i not in ended and verdict != "ambiguous"):
                n_own = ended[i].n_rounds if i in ended else n
                ended[i] = Ended(n_own, found[i], levels[i], verdict == "faster")
    return [ended[i] for i in range(N_FINALISTS)]


def simulate(noise: str, gain: float, n_rounds: int, n_studies: int, seed: int) -> Row:
    """Carry out studies of one kind of noise in which each finalist gains as much (log)."""
    random = np.random.default_rng(seed)
    shift = np.array([0.0] + [gain] * N_FINALISTS + [0.0])
    studies = [confirm(NOISES[noise](random, n_rounds) + shift) for _ in range(n_studies)]
    halves, covered, errors = [], [], []
    for study in studies:
        for i, each in enumerate(study):
            interval = each.found.interval(min(each.level, ALPHA))
            covered.append(interval.low <= math.exp(gain) <= interval.high)
            errors.append(each.found.mean - gain)
            if i == 0:
                halves.append(math.log(interval.point / interval.low))
    called = [each.is_faster for study in studies for each in study]
    any_false = [gain <= 0 and any(each.is_faster for each in study) for study in studies]
    return Row(noise, gain, n_rounds, *map(float, (
        np.mean(any_false), np.mean(covered), np.median(halves), np.mean(called), np.mean(errors)
    )))  # fmt: skip


def is_ever_false(
    random: np.random.Generator, noise: str, n_rounds: int, n_extensions: int
) -> bool:
    """Tell whether a study in which nothing is faster claims something, in any of its extents."""
    arms: dict[int, list[float | None]] = {}
    defaults: list[float] = []
    kept: list[int] = []
    for extent in range(1 + n_extensions):
        log_scores = NOISES[noise](random, n_rounds)
        names = [*kept, *range(len(arms), len(arms) + N_FINALISTS - len(kept))]
        for name, column in zip(names, log_scores.T[1:].tolist(), strict=False):
            arms[name] = [*arms.get(name, [None] * len(defaults)), *column]
        defaults += log_scores[:, 0].tolist()
        for name in set(arms).difference(names):
            arms[name] += [None] * n_rounds
        n_before = len(defaults) - n_rounds
        looks = [n_before + look for look in LOOKS if look < n_rounds]
        for n in [*looks, len(defaults)]:
            table = [[defaults[i], *(arms[name][i] for name in names)] for i in range(n)]
            pooled = fit_rounds(table).noise
            assert pooled is not None
            found = [
                difference([y - defaults[i] for i, y in enumerate(arms[a][:n]) if y is not None],
                           pooled)
                for a in names
            ]  # fmt: skip
            levels = [INTERIM_ALPHA] * N_FINALISTS
            if n == len(defaults):
                levels = fallback_alphas([each.p_value() for each in found], look_level(extent))
            for each, level in zip(found, levels, strict=True):
                if judge(each.interval(level), pooled.floor(n)) == "faster":
                    return True
        kept = [max(names, key=lambda a: found[names.index(a)].mean)]
    return False


def simulate_continued(noise: str, n_rounds: int, n_extensions: int, n: int, seed: int) -> float:
    """Return the share of such studies in which a claim is false; n: studies."""
    random = np.random.default_rng(seed)
    return float(np.mean([is_ever_false(random, noise, n_rounds, n_extensions) for _ in range(n)]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--studies", type=int, default=2000, help="of each row")
    parser.add_argument("--rounds", default="4,6,18", help="that the budget holds")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the table there as well")
    parser.add_argument("--continued", type=int, metavar="N", help="go on N times; nothing gains")
    arguments = parser.parse_args()
    lengths = [int(each) for each in arguments.rounds.split(",")]
    if arguments.continued is not None:
        print(f"{'noise':24}{'rounds':>8}{'false':>8}")
        for noise in NOISES:
            for n_rounds in lengths:
                false = simulate_continued(
                    noise, n_rounds, arguments.continued, arguments.studies, arguments.seed
                )
                print(f"{noise:24}{n_rounds:8}{false:8.1%}", flush=True)
        return
    rows = []
    print(f"{'noise':24}{'gain':>6}{'rounds':>8}{'false':>8}{'covered':>9}{'half-width':>12}"
          f"{'faster':>8}{'bias':>8}")  # fmt: skip
    for gain in (0.0, math.log(1.05), math.log(1.1), math.log(1.2)):
        for noise in NOISES:
            for n_rounds in lengths:
                row = simulate(noise, gain, n_rounds, arguments.studies, arguments.seed)
                rows.append(row)
                print(f"{noise:24}{math.expm1(gain):6.0%}{n_rounds:8}{row.false:8.1%}"
                      f"{row.covered:9.1%}{row.half_width:12.3f}{row.faster:8.1%}"
                      f"{row.bias:+8.2%}", flush=True)  # fmt: skip
    if arguments.json:
        arguments.json.write_bytes(msgspec.json.format(msgspec.json.encode(rows)) + b"\n")


if __name__ == "__main__":
    main()
