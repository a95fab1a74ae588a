"""Do the intervals that are printed with a recommendation hold what it gains?

    python -m benchmarks.guideline_coverage benchmarks/rounds --recordings reports/studies
        [--write search_spaces/calibration.json]

Every configuration in fresh rounds (benchmarks/guideline_rounds.py) that is a combination of the
designed parts' settings is foretold by rules learnt without the model's family, and compared with
what it gained there, before and after the SD that predictions carry beyond what their rules know
(guidelines/calibration.py). That SD is estimated by maximum likelihood from what rules recommended,
every pair of model and framework counting once. Held apart: estimated on rounds of other hosts and
of other families than the gain that is tested. `--write` keeps the estimate with that count.

A gain counts as held where its point lies in the printed interval; "with errors" where it does so
within the rounds' own 90 % error. Nothing is measured: it takes half a minute.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from scipy import optimize, stats

from benchmarks.guideline_rounds import GUIDELINE, LEAST_ROUNDS, Pair, read_arms, read_pairs
from tuner.guidelines.calibration import Calibration
from tuner.guidelines.facts import HOST, HOST_CORES, HOST_ISA
from tuner.guidelines.predict import WITH, Known, Prediction, known_of, predicted
from tuner.guidelines.studies import make_guidelines, read_recordings
from tuner.record.configuration import Configuration
from tuner.record.files import write_whole
from tuner.record.guidelines import Fact, Guidelines, Recording, Rule

_NORMAL_90 = 1.645
_SD_BOUNDS = (1e-3, 1.0)
_NEEDLESS = {"instances", "threads"}
"""Set together they are one: each of two instances of one core has one thread anyway."""


class Gain(NamedTuple):
    """What a combination gained in fresh rounds, and the rules that foretold it."""

    rounds: str
    host: str
    model: str
    framework: str
    family: str
    factors: tuple[str, ...]
    is_recommended: bool
    """Whether rules recommended it when the rounds were taken, in whichever class."""
    log_gain: float
    error: float
    """Its standard error."""
    rules: Mapping[str, Rule]

    def predicted(self, unexplained_sd: float) -> Prediction:
        """Return what the rules expect of it."""
        return predicted(self.rules, self.factors, unexplained_sd)

    @property
    def off(self) -> float:
        """The logarithm of what it gained over what was foretold."""
        return self.log_gain - math.log(self.predicted(0.0).speedup.point)

    def likelihood(self, unexplained_sd: float) -> float:
        """Return the logarithm of its likelihood, by the prediction and the error of the rounds."""
        prediction = self.predicted(unexplained_sd)
        freedom = min(rule.n_families for rule in prediction.rules) - 1
        half = math.log(prediction.speedup.high / prediction.speedup.point)
        spread = half / float(stats.t.ppf((1 + prediction.speedup.confidence) / 2, freedom))
        sd = math.hypot(spread, self.error)
        return float(stats.t.logpdf(self.off / sd, freedom)) - math.log(sd)

    def is_held(self, unexplained_sd: float, *, with_error: bool = False) -> bool:
        """Tell whether the printed interval holds it.

        with_error: widened by the 90 % error of the rounds.
        """
        speedup = self.predicted(unexplained_sd).speedup
        half = math.log(speedup.high / speedup.point)
        return abs(self.off) <= math.hypot(half, _NORMAL_90 * self.error if with_error else 0.0)


def factors_of(settings: Mapping[str, Sequence[str]], arm: Configuration) -> tuple[str, ...]:
    """Return the factors that a configuration consists of; nothing where it has other settings.

    settings: what each sets (record/guidelines.py): KNOB=VALUE, with alternatives.
    """
    here = {f"{knob}={value}" for knob, value in arm.as_dict().items()}
    choices = {name: [each.split(" or ") for each in sets] for name, sets in settings.items()}
    found = [name for name, sets in choices.items() if all(here & set(each) for each in sets)]
    covered = {each for name in found for one_of in choices[name] for each in one_of}
    return tuple(found) if here <= covered else ()


def gains_of_pair(
    pair: Pair, rounds: str, host: str, family: str, guidelines: Guidelines, facts: dict[str, Fact]
) -> list[Gain]:
    """Return the gain of each configuration of a pair that rules foretell.

    guidelines: without its family.
    """
    if len(pair.rounds) < LEAST_ROUNDS or pair.has_failed("default"):
        return []
    known = known_of(guidelines, pair.framework, facts)
    recommended = {arm for name, arm in pair.arms.items() if name.startswith(GUIDELINE)}
    sd, _ = pair.launch_sd()
    found = []
    for arm in dict.fromkeys(pair.arms.values()):
        factors = factors_of(guidelines.settings.get(pair.framework, {}), arm)
        if not _is_predicted(known, factors) or any(arm not in row for row in pair.rounds):
            continue
        gain = statistics.fmean(row[arm] - row[Configuration()] for row in pair.rounds)
        error = sd * math.sqrt(2 / len(pair.rounds))
        found.append(
            Gain(rounds, host, pair.model, pair.framework, family, factors, arm in recommended,
                 gain, error, known.rules)
        )  # fmt: skip
    return found


def _is_predicted(known: Known, factors: Sequence[str]) -> bool:
    together = set(factors)
    is_conclusive = not any(set(pair.split(WITH)) <= together for pair in known.untold)
    return bool(together) and together <= known.rules.keys() and is_conclusive and not (
        together >= _NEEDLESS
    )  # fmt: skip


def gains_below(folder: Path, recordings: Sequence[Recording]) -> list[Gain]:
    """Return the gains of all rounds below a folder."""
    family_of = {each.model: each.family for each in recordings}
    without = {
        family: make_guidelines([each for each in recordings if each.family != family], "")
        for family in dict.fromkeys(family_of.values())
    }
    found = []
    for rounds in sorted(path for path in folder.iterdir() if any(path.glob("*/arms.json"))):
        for pair in read_pairs(rounds):
            host = read_arms(rounds / f"{pair.model}-{pair.framework}" / "arms.json").host
            own = [r for r in recordings if (r.model, r.framework) == (pair.model, pair.framework)]
            nearest = max(own, key=lambda each: each.host == host)
            isa, _, cores = host.partition(" with ")[2].rpartition(", ")
            of_host: dict[str, Fact] = {
                HOST: host, HOST_ISA: isa, HOST_CORES: float(cores.split()[0])
            }  # fmt: skip
            family = family_of[pair.model]
            found += gains_of_pair(
                pair, rounds.name, host, family, without[family], nearest.facts | of_host
            )
    return found


def estimate(gains: Sequence[Gain]) -> float:
    """Return the SD under which gains are likeliest: t around their predictions, errors known."""
    n_of_pair = Counter((gain.model, gain.framework) for gain in gains)

    def lack(log_sd: float) -> float:
        return -math.fsum(
            gain.likelihood(math.exp(log_sd)) / n_of_pair[gain.model, gain.framework]
            for gain in gains
        )

    low, high = map(math.log, _SD_BOUNDS)
    best = optimize.minimize_scalar(lack, bounds=(low, high), method="bounded")
    return math.exp(float(best.x))


HELD_APART = "other hosts and families"
"""What is kept with the estimate: the strictest."""
Apart = Callable[[Gain, Gain], bool]
"""Whether the first is apart from the second, so that it may calibrate its interval."""
APART: dict[str, Apart] = {
    "other hosts": lambda a, b: a.host != b.host,
    "other families": lambda a, b: a.family != b.family,
    HELD_APART: lambda a, b: a.host != b.host and a.family != b.family,
}


def held_apart(gains: Sequence[Gain], apart: Apart) -> list[bool]:
    """Tell of each gain whether the interval holds it that only gains apart from it calibrated."""
    sds: dict[tuple[int, ...], float] = {}
    found = []
    for gain in gains:
        others = tuple(i for i, other in enumerate(gains) if apart(other, gain))
        if others not in sds:
            sds[others] = estimate([gains[i] for i in others])
        found.append(gain.is_held(sds[others]))
    return found


def tell(name: str, gains: Sequence[Gain], after: float) -> None:
    """Print how many gains are held before and after, and how they compare with the points."""
    if not gains:
        return
    n = len(gains)
    held = [sum(gain.is_held(sd) for gain in gains) for sd in (0.0, after)]
    wide = [sum(gain.is_held(sd, with_error=True) for gain in gains) for sd in (0.0, after)]
    gained = sum(gain.log_gain > 0 for gain in gains)
    ratio = math.exp(statistics.fmean(gain.off for gain in gains))
    print(
        f"{name:34s} {n:4d}  before {held[0]:3d} ({held[0] / n:4.0%})  after {held[1]:3d} "
        f"({held[1] / n:4.0%})  with errors {wide[0]:3d}, {wide[1]:3d}  gained {gained:3d}  "
        f"measured / predicted {ratio:.2f}"
    )


def host_sd(gains: Iterable[Gain]) -> float:
    """Return the SD between hosts of one combination's gain in one model."""
    by_arm: dict[tuple[str, str, tuple[str, ...]], dict[str, list[Gain]]] = {}
    for gain in gains:
        arm = by_arm.setdefault((gain.model, gain.framework, gain.factors), {})
        arm.setdefault(gain.host, []).append(gain)
    variances = []
    for hosts in by_arm.values():
        if len(hosts) > 1:
            means = [statistics.fmean(g.log_gain for g in own) for own in hosts.values()]
            errors = [
                statistics.fmean(g.error**2 for g in own) / len(own) for own in hosts.values()
            ]
            variances.append(statistics.variance(means) - statistics.fmean(errors))
    return math.sqrt(max(0.0, statistics.fmean(variances))) if variances else math.nan


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--recordings", type=Path, required=True)
    parser.add_argument("--write", type=Path, help="where the calibration is kept")
    given = parser.parse_args()
    everything = gains_below(given.folder, read_recordings([given.recordings]))
    gains = [gain for gain in everything if gain.is_recommended]
    sd = estimate(gains)
    print(f"unexplained SD {sd:.3f}; between hosts, of one combination in one model: "
          f"{host_sd(everything):.3f}")  # fmt: skip
    tell("recommended", gains, sd)
    for rounds in dict.fromkeys(gain.rounds for gain in gains):
        tell(f"  {rounds}", [gain for gain in gains if gain.rounds == rounds], sd)
    for framework in dict.fromkeys(gain.framework for gain in gains):
        own = [gain for gain in gains if gain.framework == framework]
        tell(f"  {framework}", own, sd)
        for n in sorted({len(gain.factors) for gain in own}):
            tell(f"    of {n} settings", [gain for gain in own if len(gain.factors) == n], sd)
    alone = [g for g in gains if (g.framework, g.factors) == ("torch", ("allocator",))]
    tell("  tcmalloc alone, torch", alone, sd)
    tell("all that rules foretell", everything, sd)
    by_split = {name: held_apart(gains, apart) for name, apart in APART.items()}
    for name, held in by_split.items():
        print(
            f"calibrated on {name}: {sum(held)} of {len(held)} held ({statistics.fmean(held):.0%})"
        )
        for host in dict.fromkeys(gain.host for gain in gains):
            here = [h for h, gain in zip(held, gains, strict=True) if gain.host == host]
            print(f"    {host}: {sum(here)} of {len(here)}")
    if given.write:
        kept = Calibration(
            round(sd, 3), sum(by_split[HELD_APART]), len(gains),
            list(dict.fromkeys(g.rounds for g in gains)),
            f"python -m benchmarks.guideline_coverage {given.folder} --recordings "
            f"{given.recordings} --write {given.write}",
        )  # fmt: skip
        write_whole(given.write, msgspec.json.format(msgspec.json.encode(kept)).decode() + "\n")


if __name__ == "__main__":
    main()
