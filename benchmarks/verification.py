"""How often does `verify` miss a gain that is gone, and refute one that is there? A simulation.

    python -m benchmarks.verification [--claims 800] [--seed 1] [--json OUT]

Studies claim a gain as they do: three classes with launches that scatter, each looked at after 4,
6, 9, 12 and 18 rounds and done when it is decided, so that claims are a little lucky. Of each study
that calls its first class faster, rounds are drawn again where the whole true gain is there, half
of it (speedup - 1), or none. The tool's own functions judge them: after 2, 6 or 12 rounds, or after
as many as it takes by itself (`now`). `before` is the rule that it had: refuted where the interval
lies below the claim's, or not above 1; confirmed where it lies above 1.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.looks import N_ARMS, confirm
from tuner.measurement.confirmation import (
    FIRST_LOOK,
    LOOKS,
    Noise,
    early_interval,
    fit_rounds,
    plain_interval,
)
from tuner.record.interval import Interval
from tuner.record.recommendation import ShippedClaim
from tuner.study.claimed_gain import gain_of, is_precise
from tuner.study.verification import Conclusion, decide

ASKED = "--at-least 75%"
SHARES = {"holds": 1.0, "half gone": 0.5, "gone": 0.0}
Judge = Callable[[Sequence[float], ShippedClaim], str]
RULES = ("before, 2", "before, 6", "before, 12", "now, 2", "now, 6", "now, 12", "now")
TABLES = {
    "all is there, and it is refuted": ("holds", Conclusion.REFUTED, RULES),
    "half is gone, and it is refuted": ("half gone", Conclusion.REFUTED, RULES),
    "half is gone, and it is confirmed": ("half gone", Conclusion.CONFIRMED, RULES),
    "all is gone, and it is confirmed": ("gone", Conclusion.CONFIRMED, RULES),
    "all is there, and it is confirmed": ("holds", Conclusion.CONFIRMED, (*RULES, ASKED)),
    "half is gone, and it is refuted, if asked": ("half gone", Conclusion.REFUTED, (ASKED,)),
}
"""What is counted: what is there, what is said of it, and by which rules."""


class Case(NamedTuple):
    """What is claimed, and how launches scatter (SD, log)."""

    name: str
    launch_sd: float
    gain: float
    here_sd: float | None = None
    """Where it is verified; None: the same."""
    own_sd: float | None = None
    """Of the claimed configuration, where it is not that of the others."""
    session_sd: float = 0.0
    """By which the gain itself differs between claim and verification."""


CASES = (
    Case("3 %, +10 %", 0.03, 0.1),
    Case("3 %, +30 %", 0.03, 0.3),
    Case("3 %, +100 %", 0.03, 1.0),
    Case("10 %, +30 %", 0.1, 0.3),
    Case("10 %, +100 %", 0.1, 1.0),
    Case("10 %, here 3 %, +100 %", 0.1, 1.0, here_sd=0.03),
    Case("3 %, here 10 %, +30 %", 0.03, 0.3, here_sd=0.1),
    Case("3 %, this one 6 %, +30 %", 0.03, 0.3, own_sd=0.06),
    Case("3 %, +30 %, sessions 5 %", 0.03, 0.3, session_sd=0.05),
)


def claim_of(case: Case, draw: np.random.Generator) -> ShippedClaim | None:
    """Return what a study claims of its first class; None if it does not call it faster."""
    rounds = draw.normal(0, case.launch_sd, (LOOKS[-1], 1 + N_ARMS))
    if case.own_sd is not None:
        rounds[:, 1] *= case.own_sd / case.launch_sd
    rounds[:, 1:] += math.log1p(case.gain)
    first = confirm(rounds)[0]
    if not first.is_faster:
        return None
    n = first.n_rounds
    noise = fit_rounds(rounds[:n].tolist()).noise
    assert noise is not None
    speedup = first.found.interval(first.level)
    return ShippedClaim("faster", n, noise.floor(n), speedup, noise.launch_sd, noise.freedom)


def rounds_here(case: Case, share: float, draw: np.random.Generator) -> list[float]:
    """Draw the log speedups of as many rounds as a verification may take."""
    sd = case.launch_sd if case.here_sd is None else case.here_sd
    own = sd * (case.own_sd or case.launch_sd) / case.launch_sd
    mean = math.log1p(share * case.gain) + draw.normal(0, case.session_sd)
    return [float(each) for each in draw.normal(mean, math.hypot(sd, own), LOOKS[-1])]


def before(ratios: Sequence[float], claim: ShippedClaim) -> str:
    """Judge as it was: two intervals that overlap agree."""
    assert claim.speedup is not None
    found: Interval | None
    if len(ratios) >= FIRST_LOOK:
        found = plain_interval(ratios)
    else:
        found = early_interval(ratios, Noise(claim.launch_sd or 0.0, claim.launch_freedom))
    if found is None:
        return Conclusion.INCONCLUSIVE
    if found.high < claim.speedup.low or found.high <= 1:
        return Conclusion.REFUTED
    return Conclusion.CONFIRMED if found.low > 1 else Conclusion.INCONCLUSIVE


def now(at_least: float | None = None) -> Judge:
    """Return today's judge, which is asked for a share of the claimed gain or not."""

    def judged(ratios: Sequence[float], claim: ShippedClaim) -> str:
        found = gain_of(ratios, claim, is_scatter_known=True)
        return decide(found, None, claim.speedup, [], at_least, n_rounds=len(ratios))[0]

    return judged


def as_many_as_needed(
    ratios: Sequence[float], claim: ShippedClaim, at_least: float | None = None
) -> int:
    """Return how many rounds a verification takes that has the time."""
    enough = (n for n in range(FIRST_LOOK, LOOKS[-1]) if is_precise(ratios[:n], claim, at_least))
    return next(enough, LOOKS[-1])


def table(name: str, rows: Sequence[dict[str, Any]]) -> str:
    """Write a table: per cent of the claims."""
    there, verdict, rules = TABLES[name]
    lines = [f"| {name} | {' | '.join(rules)} |", "|---" * (1 + len(rules)) + "|"]
    for row in rows:
        counts = [row["counts"][f"{there}: {rule}"] for rule in rules]
        cells = [f"{100 * each.get(verdict, 0) / sum(each.values()):.1f}" for each in counts]
        lines.append(f"| {row['case']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--claims", type=int, default=800)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the counts there as well")
    arguments = parser.parse_args()
    rows = []
    for case in CASES:
        rows.append(simulated(case, arguments.claims, np.random.default_rng(arguments.seed)))
    for name in TABLES:
        print(table(name, rows), end="\n\n")
    print(
        "| | rounds of the claim | rounds here | its share's interval holds, % |\n|---|---|---|---|"
    )
    for row in rows:
        held = 100 * row["share_interval_holds"]
        print(f"| {row['case']} | {row['claim_rounds']:.1f} | {row['rounds']:.1f} | {held:.1f} |")
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


def simulated(case: Case, n_claims: int, draw: np.random.Generator) -> dict[str, Any]:
    """Count the verdicts over many claims, by what is there and how it is judged."""
    counts: dict[str, Counter[str]] = {}
    n_rounds: list[int] = []
    claimed: list[int] = []
    held = 0
    while len(claimed) < n_claims:
        claim = claim_of(case, draw)
        if claim is None or claim.speedup is None:
            continue
        claimed.append(claim.n_rounds)
        for name, share in SHARES.items():
            ratios = rounds_here(case, share, draw)
            for n in (2, 6, 12):
                counts.setdefault(f"{name}: before, {n}", Counter())[before(ratios[:n], claim)] += 1
                counts.setdefault(f"{name}: now, {n}", Counter())[now()(ratios[:n], claim)] += 1
            n = as_many_as_needed(ratios, claim)
            n_rounds.append(n)
            counts.setdefault(f"{name}: now", Counter())[now()(ratios[:n], claim)] += 1
            found = gain_of(ratios[:n], claim)
            assert found is not None and found.share is not None
            held += found.share.low <= share <= found.share.high
            asked = ratios[: as_many_as_needed(ratios, claim, 0.75)]
            counts.setdefault(f"{name}: {ASKED}", Counter())[now(0.75)(asked, claim)] += 1
    return {
        "case": case.name,
        "claim_rounds": float(np.mean(claimed)),
        "rounds": float(np.mean(n_rounds)),
        "share_interval_holds": held / len(n_rounds),
        "counts": {name: dict(found) for name, found in counts.items()},
    }


if __name__ == "__main__":
    main()
