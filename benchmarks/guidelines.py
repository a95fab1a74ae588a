"""What are rules worth for models of families that did not teach them?

    python -m benchmarks.guidelines RECORDINGS...

By recordings alone (tune-framework guidelines leaves them in studies/), each family left out in
turn, both frameworks together, so that a model never teaches its own rule:

- do 90 % prediction intervals hold a model's effect (widened by that effect's own error)?
- what would the predicted combination gain, by the model's own effects, and how much of the best
  combination's gain is that? The best is chosen by the same effects that it is scored by, which
  flatters it.

Intervals of shares are over models (a bootstrap by model): effects of one model err together.
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from tuner.guidelines.predict import WITH, known_of, ranked
from tuner.guidelines.studies import make_guidelines, read_recordings
from tuner.record.guidelines import Guidelines, Recording, StudyOf
from tuner.record.winner_class import WinnerClass

N_RESAMPLES = 2000
PRECISION = {"autocast", "policy", "precision"}
"""Factors that change numerics."""
WORTH_SCORING = math.log(1.10)


class Prediction(NamedTuple):
    """An effect that was foretold by other families."""

    model: str
    framework: str
    setting: str
    value: float
    held: bool
    half_width: float
    """Of the interval of the rule, as a ratio less 1."""


class Chosen(NamedTuple):
    """A combination that was foretold to be the best, by the model's own effects."""

    model: str
    framework: str
    winner_class: str
    factors: tuple[str, ...]
    gain: float
    error: float
    best: float


def left_out(
    recordings: Sequence[Recording],
) -> Iterator[tuple[list[StudyOf], Guidelines]]:
    """Yield each family's studies, and the rules of all others."""
    everything = make_guidelines(recordings, "")
    for family in dict.fromkeys(each.family for each in recordings):
        others = [each for each in recordings if each.family != family]
        yield (
            [study for study in everything.studies if study.family == family],
            make_guidelines(others, ""),
        )


def predicted_effects(recordings: Sequence[Recording]) -> list[Prediction]:
    """Return every effect of a single setting, beside what other families' rules said of it."""
    found = []
    for studies, guidelines in left_out(recordings):
        for study in studies:
            rules = known_of(guidelines, study.framework, study.facts).rules
            for setting, (value, error) in study.effects.items():
                rule = rules.get(setting)
                if rule is None or WITH in setting:
                    continue
                t = -float(stdtrit(rule.n_families - 1, 0.05))
                held = abs(value - rule.mean) <= t * math.hypot(rule.spread, error)
                half = math.expm1(t * rule.spread)
                found.append(Prediction(study.model, study.framework, setting, value, held, half))
    return found


def set_together(recordings: Sequence[Recording], framework: str) -> set[frozenset[str]]:
    """Return the pairs of factors that any designed cell holds.

    Cells leave out what another factor leaves nothing to do, as one inter-op thread where each of
    two instances has one core: what both are worth alone does not add up then.
    """
    return {
        frozenset(pair)
        for each in recordings
        if each.framework == framework
        for cell in each.design.cells
        for pair in itertools.combinations(cell.factors, 2)
    }


def can_be(factors: Sequence[str], pairs: Collection[frozenset[str]]) -> bool:
    """Tell whether factors can all be set together."""
    return all(frozenset(pair) in pairs for pair in itertools.combinations(factors, 2))


def predicted_choices(recordings: Sequence[Recording]) -> list[Chosen]:
    """Return what other families' rules would set for each model, and what it is worth there."""
    found = []
    for studies, guidelines in left_out(recordings):
        for study in studies:
            known = known_of(guidelines, study.framework, study.facts)
            own = [name for name in study.effects if WITH not in name]
            pairs = set_together(recordings, study.framework)
            for winner_class in list(WinnerClass)[1:]:
                is_reduced = winner_class is WinnerClass.REDUCED_PRECISION
                allowed = [n for n in own if is_reduced or n not in PRECISION]
                chosen = next(e.factors for e in ranked(known, allowed) if can_be(e.factors, pairs))
                gain, error = log_gain(study.effects, chosen)
                best = max(
                    log_gain(study.effects, each)[0]
                    for n in range(len(allowed) + 1)
                    for each in itertools.combinations(allowed, n)
                    if can_be(each, pairs)
                )
                found.append(
                    Chosen(study.model, study.framework, winner_class, chosen, gain, error, best)
                )
    return found


def log_gain(
    effects: Mapping[str, tuple[float, float]], factors: Sequence[str]
) -> tuple[float, float]:
    """Return what some factors come to together by a model's own effects, and its error.

    The errors of effects are taken to be independent.
    """
    here = set(factors)
    used = [effect for name, effect in effects.items() if set(name.split(WITH)) <= here]
    return sum(value for value, _ in used), math.hypot(*(error for _, error in used), 0.0)


def over_models(
    rows: Sequence[Prediction], of: Callable[[list[int]], float]
) -> tuple[float, float]:
    """Return the 95 % interval of a figure of rows (by their indices), models resampled."""
    by_model: dict[str, list[int]] = {}
    for i, row in enumerate(rows):
        by_model.setdefault(row.model, []).append(i)
    groups, random = list(by_model.values()), np.random.default_rng(1)
    figures = [
        of([i for g in random.integers(len(groups), size=len(groups)) for i in groups[g]])
        for _ in range(N_RESAMPLES)
    ]
    low, high = np.percentile(figures, [2.5, 97.5])
    return float(low), float(high)


def tell_effects(told: Sequence[Prediction]) -> None:
    """Print whether intervals hold, and how wide they are."""
    held = statistics.fmean(each.held for each in told)
    low, high = over_models(told, lambda chosen: statistics.fmean(told[i].held for i in chosen))
    n_models = len({each.model for each in told})
    print(
        f"90 % intervals hold {held:.1%} ({low:.1%} - {high:.1%}) of {len(told)} effects in "
        f"{n_models} models; median half-width {statistics.median(e.half_width for e in told):.1%}"
    )


def tell_choices(chosen: Sequence[Chosen]) -> None:
    """Print what predictions gain, model by model and over all of them."""
    for each in chosen:
        share = f"{each.gain / each.best:.2f}" if each.best > WORTH_SCORING else "-"
        print(
            f"{each.model:16s} {each.framework:11s} {each.winner_class:8s} "
            f"{math.exp(each.gain):.2f}x of {math.exp(each.best):.2f}x, share {share:>5s}  "
            f"{' '.join(each.factors) or 'the default'}"
        )
    for winner_class in list(WinnerClass)[1:]:
        own = [each for each in chosen if each.winner_class == winner_class]
        scored = [each.gain / each.best for each in own if each.best > WORTH_SCORING]
        worse = [each.model for each in own if each.gain < -1.96 * each.error < 0]
        mean = f"{statistics.fmean(scored):.2f}, worst {min(scored):.2f}" if scored else "unknown"
        print(
            f"{winner_class}: geometric mean "
            f"{math.exp(statistics.fmean(e.gain for e in own)):.3f}x of "
            f"{math.exp(statistics.fmean(e.best for e in own)):.3f}x; share of the best's gain, "
            f"{len(scored)} pairs: mean {mean}; surely slower than the default: "
            f"{', '.join(worse) or 'none'}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recordings", type=Path, nargs="+")
    recordings = read_recordings(parser.parse_args().recordings)
    tell_effects(predicted_effects(recordings))
    tell_choices(predicted_choices(recordings))


if __name__ == "__main__":
    main()
