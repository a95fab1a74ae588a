"""What the confirmation's rounds allow to say: verdicts and intervals, and nothing else."""

from __future__ import annotations

import math
import statistics

import msgspec

from tuner.measurement.confirmation import (
    LOOKS,
    ArmSeries,
    Noise,
    estimate_noise,
    holm_alphas,
    judge,
    rate_interval,
    speedup_interval,
)
from tuner.measurement.estimates import round_values
from tuner.record.configuration import Configuration
from tuner.record.journal import RoundDone, WinnerClass
from tuner.record.result import Interval, Verdict
from tuner.record.store import Store
from tuner.study.ledger import Ledger, is_default

_MANY = 10**6
"""Degrees of freedom of what is as good as known."""


class Claim(msgspec.Struct, frozen=True):
    """What is said of one class."""

    configuration: Configuration
    verdict: Verdict
    reason: str
    n_rounds: int = 0
    speedup: Interval | None = None
    at_reference_batch: Interval | None = None
    batch_gain: float | None = None
    rate: Interval | None = None


class Claims:
    """Verdicts over the complete rounds, or over the first `n_rounds` of them.

    Between looks nothing is decided: ask with the number of rounds at the last look.
    """

    def __init__(
        self,
        store: Store,
        ledger: Ledger,
        finalists: dict[WinnerClass, Configuration],
        best_baseline: Configuration | None,
        n_rounds: int | None = None,
    ) -> None:
        self._ledger = ledger
        self._finalists = finalists
        self.best_baseline = best_baseline
        self.rounds = store.all(RoundDone)[:n_rounds]
        self._rounds: list[dict[Configuration, float | None]] = []
        for done in self.rounds:
            records = [store.launches[i] for i in done.launches]
            names = [record.request.configuration for record in records]
            self._rounds.append(dict(zip(names, round_values(records), strict=True)))
        self.default = self._default()
        self.noise = self._noise()
        family = {c.label(): self.differences(c) for c in finalists.values() if not is_default(c)}
        self._levels = holm_alphas(dict(family))

    # ---------------------------------------------------------------- series

    def series(self, configuration: Configuration) -> ArmSeries:
        """Return an arm's log rate per round."""
        return ArmSeries(tuple(values.get(configuration) for values in self._rounds))

    def n_failures(self, configuration: Configuration) -> int:
        """Return in how many rounds the arm's launch failed."""
        return sum(
            configuration in values and values[configuration] is None for values in self._rounds
        )

    def _default(self) -> Configuration:
        """Return the default at the batch at which it is fastest in these rounds.

        Best is compared with best; choosing by the very data that is compared can only flatter
        the default.
        """
        means = {}
        for batch in self._ledger.batches:
            configuration = self._ledger.at_batch(Configuration(), batch)
            known = self.series(configuration).known()
            if known:
                means[configuration] = statistics.fmean(known)
        return max(means, key=means.__getitem__) if means else Configuration()

    def differences(self, configuration: Configuration) -> list[float]:
        """Return the arm's log rates less the default's, each at its best batch."""
        return self.series(configuration).against(self.series(self.default))

    def _noise(self) -> Noise:
        """Estimate the noise over the rounds; without any, take the search's spread of launches."""
        arms = {c for values in self._rounds for c in values}
        table = [[values.get(c) for c in arms] for values in self._rounds]
        return estimate_noise(table) or Noise(self._ledger.estimates.launch_sd, _MANY)

    def noise_floor(self, klass: WinnerClass) -> float:
        """Return the noise floor at the replication of a class's finalist."""
        n = len(self.differences(self._finalists[klass]))
        return self.noise.floor(max(n, LOOKS[0]))

    # ---------------------------------------------------------------- verdicts

    def claim(self, klass: WinnerClass) -> Claim:
        """Say what holds for a class's finalist."""
        configuration = self._finalists[klass]
        if is_default(configuration):
            return self._nothing_better(klass, configuration)
        differences = self.differences(configuration)
        n = len(differences)
        failures = self.n_failures(configuration)
        if failures:
            reason = f"it failed in {failures} of {failures + n} rounds"
            return Claim(configuration, "ambiguous", reason, n)
        if self._ledger.has_failed(configuration):
            return Claim(configuration, "ambiguous", "it failed when it was launched again", n)
        if n < LOOKS[0]:
            reason = f"{n} of the {LOOKS[0]} rounds that a claim needs fitted into the budget"
            return Claim(configuration, "ambiguous", reason, n)
        level = self._levels[configuration.label()]
        speedup = speedup_interval(differences, level)
        floor = self.noise_floor(klass)
        verdict = judge(speedup, floor)
        own = self.series(configuration)
        at_reference = self.series(
            self._ledger.at_batch(configuration, self._ledger.reference_batch)
        )
        pairs = at_reference.against(self.series(Configuration()))
        gains = own.against(at_reference)
        return Claim(
            configuration=configuration,
            verdict=verdict,
            reason=_explain(verdict, floor),
            n_rounds=n,
            speedup=speedup,
            at_reference_batch=speedup_interval(pairs, level) if len(pairs) > 1 else None,
            batch_gain=math.exp(statistics.fmean(gains)) if gains else None,
            rate=rate_interval(own.known()),
        )

    def _nothing_better(self, klass: WinnerClass, default: Configuration) -> Claim:
        """Say that the search found nothing; where it tried nothing, that this says nothing."""
        n = self._ledger.n_tried(klass)
        if n == 0:
            reason = "nothing but the default was tried: no time, or the options rule it out"
            return Claim(default, "ambiguous", reason)
        reason = f"none of the {n} other configurations tried was better than the default"
        return Claim(default, "keep_default", reason)

    def open_arms(self) -> list[Configuration]:
        """Return the finalists about which nothing is decided yet."""
        claims = [self.claim(klass) for klass in WinnerClass]
        return list(
            dict.fromkeys(
                claim.configuration
                for claim in claims
                if claim.verdict == "ambiguous" and not is_default(claim.configuration)
                if not self._ledger.has_failed(claim.configuration)
                if not self.n_failures(claim.configuration)
            )
        )

    def against_default(self, configuration: Configuration) -> Interval | None:
        """Return the interval of an arm outside the family (a baseline): look-adjusted only."""
        if is_default(configuration):
            return None
        differences = self.differences(configuration)
        return speedup_interval(differences, 0.05) if len(differences) >= LOOKS[0] else None

    def against(self, configuration: Configuration, other: Configuration) -> Interval | None:
        """Return the interval of one arm against another, over their common rounds."""
        pairs = self.series(configuration).against(self.series(other))
        return speedup_interval(pairs, 0.05) if len(pairs) >= LOOKS[0] else None

    def default_rate(self) -> Interval | None:
        """Return the default's rate at its best batch."""
        known = self.series(self.default).known()
        return rate_interval(known) if len(known) > 1 else None


def _explain(verdict: Verdict, floor: float) -> str:
    match verdict:
        case "faster":
            return f"the interval lies above 1 and the point above the noise floor of {floor:.1%}"
        case "keep_default":
            return f"the interval leaves no room for more than the noise floor of {floor:.1%}"
    return f"the interval does not decide it against a noise floor of {floor:.1%}"
