"""Verdicts and intervals from the confirmation's rounds, and from nothing else."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType

import msgspec

from tuner.host.interference import disturbed_share
from tuner.measurement.confirmation import (
    ALPHA,
    EARLY_ALPHA,
    FIRST_LOOK,
    LOOKS,
    Difference,
    Noise,
    difference,
    fallback_alphas,
    fit_rounds,
    interim_level,
    judge,
    shared_alpha,
)
from tuner.record.configuration import Configuration
from tuner.record.interval import Interval
from tuner.record.journal import ArmsChosen, EarlyRound
from tuner.record.noisiness import MOSTLY_DISTURBED, TOO_NOISY, is_too_noisy
from tuner.record.store import Store
from tuner.record.winner_class import WinnerClass
from tuner.space.catalogue import allowed_in, is_default
from tuner.study.candidates import (
    MAX_LAG_SE,
    challenger,
    known_score,
    lag_of_best,
    n_over_bounds,
    n_tried,
)
from tuner.study.claim import AHEAD, AHEAD_OF_EARLIER, ALONE, Claim, explain, of_misses, of_silence
from tuner.study.evaluation import Evaluation
from tuner.study.rounds import LogScores, Loss, LossInRounds, Rounds

_MANY = 10**6
"""Degrees of freedom of a quantity that is practically known."""


class Claims:
    """Verdicts over all rounds, or over the first `n_rounds`.

    Between looks nothing is decided. is_interim: at a look before the last one of its extent, which
    has a stricter level. settled: what earlier extents decided, and of what stays so. An arm that
    had an early verdict and is not confirmed again keeps that one.
    why_unjustified: says which costly settings of a configuration are not shown to be needed, by
    the search and by its rounds.
    unmeasured: names a class's recommendations that were never launched.
    """

    def __init__(
        self,
        store: Store,
        evaluation: Evaluation,
        finalists: dict[WinnerClass, Configuration],
        chosen: ArmsChosen | None,
        n_rounds: int | None = None,
        *,
        is_interim: bool = False,
        settled: Mapping[WinnerClass, Claim] = MappingProxyType({}),
        why_unjustified: Callable[[Configuration, LossInRounds], str] = lambda _c, _loss: "",
        unmeasured: Callable[[WinnerClass], Sequence[str]] = lambda _: (),
    ) -> None:
        self._evaluation = evaluation
        self.objective = evaluation.objective
        self._why_unjustified = why_unjustified
        self._unmeasured = unmeasured
        self._finalists = finalists
        self.best_baseline = chosen.best_baseline if chosen else None
        self._is_before_confirmation = chosen is None
        rounds = store.all(EarlyRound)
        early = (rounds[-1].arm,) if len(rounds) >= FIRST_LOOK else ()
        none_chosen = () if early else (*finalists.values(),)
        self._arms_chosen = chosen.arms if chosen else none_chosen
        self.arms = tuple(dict.fromkeys([*self._arms_chosen, *early]))
        """The arms of the confirmation, in their order, and that of the early verdict."""
        self._others = [c for c in self.arms if c not in finalists.values()]
        self._disturbed = disturbed_share(store.launches.values())
        self.rounds = Rounds(store, self.objective, n_rounds)
        self.default = self._default()
        self.noise = self._noise()
        self._is_interim = is_interim
        last_level = chosen.level if chosen else ALPHA
        self._alpha = interim_level(last_level) if is_interim else last_level
        self._settled = settled
        self._levels = self._finalists_levels()

    def _finalists_levels(self) -> dict[Configuration, float]:
        """Return the level at which each finalist is tested.

        In the order of the arms, which was fixed before the first round.
        """
        finalists = [c for c in self._finalists.values() if not is_default(c)]
        tested = [
            c for c in self._arms_chosen if c in finalists and not self._has_early_rounds_alone(c)
        ]
        if self._is_interim:
            return dict.fromkeys(tested, self._alpha)
        found = [(c, self.differences(c)) for c in tested]
        p_values = [self._difference(c, d).p_value() if len(d) > 1 else 1.0 for c, d in found]
        return dict(zip(tested, fallback_alphas(p_values, self._alpha), strict=True))

    def _difference(self, configuration: Configuration, differences: list[float]) -> Difference:
        return difference(differences, self._noise(configuration))

    def _default(self) -> Configuration:
        """Return the default at the batch at which it is fastest in these rounds; else so far.

        Best is compared with best; choosing by the very data that is compared can only flatter
        the default.
        """
        arms, table = self._table(self.rounds.log_scores)
        # batches that took part in different rounds: the machine may have drifted in between
        effects = dict(zip(arms, fit_rounds(table).effects, strict=True))
        defaults = (self._evaluation.at_batch(Configuration(), b) for b in self._evaluation.batches)
        known = {
            c: effect
            for c in defaults
            if not self._evaluation.row(c).over_bound
            if (effect := effects.get(c)) is not None
        }
        if known:
            return max(known, key=known.__getitem__)
        searched = self._evaluation.default_at_best()
        return searched[0] if searched else Configuration()

    def differences(self, configuration: Configuration) -> list[float]:
        """Return the arm's log ratios to the default, one per round, each at its best batch."""
        return self.rounds.series(configuration).against(self.rounds.series(self.default))

    def _noise(self, configuration: Configuration | None = None) -> Noise:
        """Estimate the noise from the rounds; without rounds, from the launches of the search.

        configuration: use only the rounds until it was decided. Later ones must not change its
        claim.
        """
        rounds = self.rounds.log_scores
        if configuration is not None:
            took_part = [i for i, values in enumerate(rounds) if configuration in values]
            rounds = rounds[: took_part[-1] + 1] if took_part else []
        _, table = self._table(rounds)
        return fit_rounds(table).noise or Noise(self._evaluation.estimates.launch_sd, _MANY)

    @staticmethod
    def _table(rounds: Sequence[LogScores]) -> tuple[list[Configuration], list[list[float | None]]]:
        """Return the arms of the rounds, and the score of each in every round."""
        arms = list(dict.fromkeys(c for values in rounds for c in values))
        return arms, [[values.get(c) for c in arms] for values in rounds]

    def noise_floor(self, winner_class: WinnerClass) -> float:
        """Return the noise floor for the number of rounds behind the claim of a class."""
        said_of = self.claim(winner_class).configuration
        return self._noise(said_of).floor(max(len(self.differences(said_of)), LOOKS[0]))

    # ---------------------------------------------------------------- verdicts

    def claim(self, winner_class: WinnerClass) -> Claim:
        """Return the claim of a class's finalist, or of an arm that the rounds show to be faster.

        A baseline replaces the finalist if it alone proved faster. Any other arm does if the same
        rounds show that it is surely faster than the finalist. All its settings must have been
        observed, and its costly ones must be needed, because it was never tried without the others.
        Another class's finalist may replace one that was left out, or whose costly settings the
        rounds do not prove.
        """
        found = (
            self._settled[winner_class]
            if self._stays(winner_class)
            else self._of_finalist(winner_class)
        )
        is_any = (
            found.verdict == "faster" or found.is_unjustified or self._is_left_out(winner_class)
        )
        among = [c for c in self.arms if c != found.configuration] if is_any else self._others
        allowed = [
            self.claim_of(winner_class, other)
            for other in among
            if allowed_in(winner_class, other) and not self._evaluation.row(other).unobservable
            if not self._evaluation.row(other).ship_fault
        ]
        faster = [
            claim
            for claim in allowed
            if claim.verdict == "faster"
            if found.verdict != "faster" or self.is_ahead(claim.configuration, found.configuration)
            if not self.why_unjustified(claim.configuration)
        ]
        best = max(faster, key=self._standing, default=found)
        if best is found or self._is_left_out(winner_class):
            return self._with_all_measured(winner_class, best)
        why = AHEAD if found.verdict == "faster" else ALONE
        if found is self._settled.get(winner_class):
            why = AHEAD_OF_EARLIER
        return msgspec.structs.replace(best, reason=f"{best.reason}, {why}")

    def _of_finalist(self, winner_class: WinnerClass) -> Claim:
        """Say what holds for a class's finalist: faster only with no unproven costly setting."""
        claim = self.claim_of(winner_class, self._finalists[winner_class])
        if claim.verdict != "faster" or not (why := self.why_unjustified(claim.configuration)):
            return claim
        return msgspec.structs.replace(
            claim, verdict="ambiguous", reason=f"it is faster, but {why}", is_unjustified=True
        )

    def why_unjustified(self, configuration: Configuration) -> str:
        """Say which costly settings nothing shows to be needed, rounds included; empty if none."""
        return self._why_unjustified(configuration, self.loss_without)

    def loss_without(self, full: Configuration, shorter: Configuration) -> Loss | None:
        """Return the loss without some settings, from the rounds.

        If the shorter configuration was in no round, its lead over the default comes from the
        search. None before a first look, and if it was never measured.
        """
        pairs = self.rounds.series(full).against(self.rounds.series(shorter))
        if len(pairs) >= FIRST_LOOK:
            return Loss(self._difference(full, pairs), is_paired=True)
        own, default = self.differences(full), self._evaluation.default_at_best()
        score = known_score(self._evaluation, shorter)
        if len(own) < FIRST_LOOK or score is None or default is None:
            return None
        lead = self._difference(full, own)
        error = math.hypot(lead.error, self._evaluation.noise(shorter, default[0]))
        loss = lead.mean - (score - default[1])
        return Loss(Difference(loss, error, lead.freedom), is_paired=False)

    def _stays(self, winner_class: WinnerClass) -> bool:
        """Tell whether what earlier extents decided of a class holds.

        A winner does, until another arm is surely faster than it; that the default is to be kept,
        until another finalist has had its rounds.
        """
        if (settled := self._settled.get(winner_class)) is None:
            return False
        finalist = self._finalists[winner_class]
        is_other = not is_default(finalist) and finalist != settled.configuration
        is_tested = is_other and len(self.differences(finalist)) >= LOOKS[0]
        return settled.verdict == "faster" or not is_tested

    def _with_all_measured(self, winner_class: WinnerClass, claim: Claim) -> Claim:
        """Take it back that the default is to be kept while a recommendation was never launched."""
        if claim.verdict != "keep_default" or not (lacking := self._unmeasured(winner_class)):
            return claim
        why = f"but there was no time for what is recommended: {', '.join(lacking)}"
        return msgspec.structs.replace(claim, verdict="ambiguous", reason=f"{claim.reason}, {why}")

    def _standing(self, claim: Claim) -> tuple[float, float]:
        """Return the values by which faster arms are ranked; rates if the default is late."""
        known = self.rounds.series(claim.configuration).known()
        return claim.speedup.low if claim.speedup else 0.0, statistics.fmean(known)

    def claim_of(self, winner_class: WinnerClass, configuration: Configuration) -> Claim:
        """Say what holds for an arm by itself, as one of a class."""
        if is_default(configuration):
            return self._nothing_better(winner_class, configuration)
        if configuration == self._finalists[winner_class] and self._is_left_out(winner_class):
            not_yet, never = "it is not confirmed yet", "there was no time to confirm it as well"
            why = not_yet if self._is_before_confirmation else never
            return Claim(configuration, "ambiguous", why)
        if self.objective.slo is not None and (found := self._of_misses(configuration)):
            return found
        differences = self.differences(configuration)
        n = len(differences)
        failures = self.rounds.n_failures(configuration)
        if failures:
            reason = f"it failed in {failures} of {failures + n} rounds"
            return Claim(configuration, "ambiguous", reason, n)
        if self._evaluation.row(configuration).has_failed:
            return Claim(configuration, "ambiguous", "it failed when it was launched again", n)
        if why := self._evaluation.row(configuration).over_bound:
            return Claim(configuration, "ambiguous", why, n)
        if n < LOOKS[0]:
            reason = f"{n} of the {LOOKS[0]} rounds that a claim needs fitted into the budget"
            return Claim(configuration, "ambiguous", reason, n)
        speedup = self._interval(configuration, differences)
        noise = self._noise(configuration)
        floor = noise.floor(n)
        verdict = judge(speedup, floor)
        reason = explain(verdict, floor)
        if verdict == "ambiguous" and is_too_noisy(
            floor, noise.launch_sd, is_served=self.objective.is_of_trials
        ):
            reason = TOO_NOISY
        at_reference = self.rounds.series(
            self._evaluation.at_batch(configuration, self._evaluation.reference_batch)
        )
        pairs = at_reference.against(self.rounds.series(Configuration()))
        gains = self.rounds.series(configuration).against(at_reference)
        return Claim(
            configuration=configuration,
            verdict=verdict,
            reason=reason,
            n_rounds=n,
            speedup=speedup,
            at_reference_batch=self._interval(configuration, pairs) if len(pairs) > 1 else None,
            batch_gain=math.exp(statistics.fmean(gains)) if gains else None,
            value=self.rounds.value(configuration),
            rate=self.rounds.rate(configuration),
            disturbed=self._disturbed_behind(configuration),
        )

    def _of_misses(self, configuration: Configuration) -> Claim | None:
        """Return the claim if a server's bound was missed in a round; None if it never was."""
        met = self.rounds.n_met(configuration)
        if self._evaluation.default_is_silent:
            found = of_silence(configuration, met)
        else:
            found = of_misses(configuration, met, self.rounds.n_met(self.default))
        if found is None or found.verdict != "faster":
            return found
        value, rate = self.rounds.value(configuration), self.rounds.rate(configuration)
        disturbed = self._disturbed_behind(configuration)
        return msgspec.structs.replace(found, value=value, rate=rate, disturbed=disturbed)

    def _misses(self, configuration: Configuration) -> bool:
        """Tell whether an arm missed a server's bound in a round: the others make no ratio."""
        met, n = self.rounds.n_met(configuration)
        return self.objective.slo is not None and met < n

    def _disturbed_behind(self, configuration: Configuration) -> float:
        records = [
            arms[c]
            for arms in self.rounds.launches
            for c in (configuration, self.default)
            if c in arms
        ]
        return disturbed_share(records)

    def _nothing_better(self, winner_class: WinnerClass, default: Configuration) -> Claim:
        """Return the claim of a class in which the search found nothing, or tried nothing."""
        n = n_tried(self._evaluation, winner_class)
        if n == 0 and (n_over := n_over_bounds(self._evaluation, winner_class)):
            asked = ", ".join(bound.asked for bound in self.objective.bounds)
            reason = f"all of the {n_over} configurations tried exceed {asked}; the default stays"
            return Claim(default, "ambiguous", reason)
        if n == 0:
            reason = "nothing but the default was tried: no time, or the options rule it out"
            if self._evaluation.default_is_late:
                reason += "; even its single requests take longer than the latency bound"
            return Claim(default, "ambiguous", reason)
        best = challenger(self._evaluation, winner_class)
        if best is not None and (refusal := self._evaluation.row(best).ship_fault):
            return Claim(default, "ambiguous", f"{self._presented(best)}, but {refusal}")
        if best is not None and (why := self.why_unjustified(best)):
            return Claim(default, "ambiguous", f"{self._presented(best)}, but {why}")
        if best is not None and self._evaluation.row(best).unobservable:
            reason = f"{self._presented(best)}, which could not be proved"
            return Claim(default, "ambiguous", reason)
        lag = lag_of_best(self._evaluation, winner_class)
        scatter = MAX_LAG_SE * math.sqrt(2) * self.noise.launch_sd
        tried = (
            "the one other configuration tried did not come"
            if n == 1
            else f"none of the {n} other configurations tried came"
        )
        reason = f"{tried} within the noise of the default in the search"
        if self.objective.searched_by:
            reason += f", by {self.objective.searched_by}"
        if self._misses(self.default):
            met, n_rounds = self.rounds.n_met(self.default)
            reason += f", which itself kept within the bound in {met} of {n_rounds} rounds"
            return Claim(default, "ambiguous", reason)
        if best is not None:
            reason += f" when the finalists were named; after more launches {best.label()} does"
            return Claim(default, "ambiguous", reason)
        if self._disturbed > MOSTLY_DISTURBED:
            reason += f", but {self._disturbed:.0%} of the slices were disturbed"
            return Claim(default, "ambiguous", reason)
        if lag is not None and lag < scatter:
            if is_too_noisy(
                self.noise.floor(LOOKS[0]),
                self.noise.launch_sd,
                is_served=self.objective.is_of_trials,
            ):
                return Claim(default, "ambiguous", f"{reason}, but {TOO_NOISY}")
            reason += f", but launches scatter by {self.noise.launch_sd:.1%} in the confirmation"
            return Claim(default, "ambiguous", reason)
        return Claim(default, "keep_default", reason)

    def _presented(self, challenger: Configuration) -> str:
        """Name a class's challenger; one that is behind the default is called no candidate."""
        ratio = self._evaluation.ratio(challenger)
        is_behind = ratio is not None and ratio < 1
        what = "configuration nearest to the default" if is_behind else "best candidate"
        return f"the {what} is {challenger.label()}"

    def _is_left_out(self, winner_class: WinnerClass) -> bool:
        finalist = self._finalists[winner_class]
        is_arm = is_default(finalist) or finalist in self.arms or bool(self.differences(finalist))
        return not is_arm and self._evaluation.may_win(finalist)

    def left_out(self, winner_class: WinnerClass) -> Configuration | None:
        """Return a class's finalist if there was no time for it, and another won; else None."""
        finalist = self._finalists[winner_class]
        is_left_out = not self._stays(winner_class) and self._is_left_out(winner_class)
        return finalist if is_left_out else None

    def open_arms(self) -> list[Configuration]:
        """Return the finalists about which nothing is decided yet."""
        found = [
            self._of_finalist(winner_class)
            for winner_class in WinnerClass
            if self._is_open(winner_class)
        ]
        return list(
            dict.fromkeys(
                claim.configuration
                for claim in found
                if self._evaluation.may_win(claim.configuration)
                if not self.rounds.n_failures(claim.configuration)
            )
        )

    def _is_open(self, winner_class: WinnerClass) -> bool:
        """Tell whether further rounds may change a class's claim."""
        finalist, settled = self._finalists[winner_class], self._settled.get(winner_class)
        if is_default(finalist) or (settled is not None and settled.configuration == finalist):
            return False
        own = self._of_finalist(winner_class)
        if own.is_unjustified:  # until the rounds show it, or something without its costs ships
            return self.claim(winner_class).verdict != "faster"
        if own.verdict != "faster" or settled is None or settled.verdict != "faster":
            return own.verdict == "ambiguous"
        lead = self.lead(finalist, settled.configuration)
        return lead is None or lead.low <= 1 < lead.high

    def rivals(self, arms: Collection[Configuration]) -> list[Configuration]:
        """Return the earlier winners that arms have to beat, and that take part in the rounds."""
        found = [
            settled.configuration
            for winner_class, settled in self._settled.items()
            if settled.verdict == "faster" and self._finalists[winner_class] in arms
        ]
        return [c for c in dict.fromkeys(found) if c in self.arms and c not in arms]

    def against_default(self, configuration: Configuration) -> Interval | None:
        """Return an arm's interval against the default; None if it took part in too few rounds."""
        if is_default(configuration) or self._misses(configuration) or self._misses(self.default):
            return None
        differences = self.differences(configuration)
        return self._interval(configuration, differences) if len(differences) >= LOOKS[0] else None

    def _interval(self, configuration: Configuration, differences: list[float]) -> Interval:
        """Return an arm's interval: a finalist's at its level, else simultaneous with the rest.

        Of each of the two families any arm is called `faster` that is not in at most 2.5 %: one
        bound of two.
        """
        return self._difference(configuration, differences).interval(self.level(configuration))

    def level(self, configuration: Configuration) -> float:
        """Return the two-sided level of an arm's interval."""
        if self._has_early_rounds_alone(configuration):
            return EARLY_ALPHA
        level = self._levels.get(configuration)
        return shared_alpha(len(self._others), self._alpha) if level is None else level

    def _has_early_rounds_alone(self, configuration: Configuration) -> bool:
        n_early, rounds = self.rounds.n_early, self.rounds.log_scores
        is_early = any(configuration in earlier for earlier in rounds[:n_early])
        return is_early and not any(configuration in later for later in rounds[n_early:])

    def lead(self, configuration: Configuration, other: Configuration) -> Interval | None:
        """Return an arm's interval against another, together with all arms' over all finalists."""
        n_finalists = len(set(self._finalists.values()))
        return self.against(configuration, other, (len(self.arms) - 1) * n_finalists)

    def is_ahead(self, configuration: Configuration, other: Configuration) -> bool:
        """Tell whether an arm is surely faster than another."""
        lead = self.lead(configuration, other)
        return lead is not None and lead.low > 1

    def against(
        self, configuration: Configuration, other: Configuration, n_intervals: int = 1
    ) -> Interval | None:
        """Return the interval of one arm against another, over their common rounds.

        It is one of several that hold simultaneously. None if there are too few rounds.
        """
        if self._misses(configuration) or self._misses(other):
            return None
        pairs = self.rounds.series(configuration).against(self.rounds.series(other))
        enough = len(pairs) >= LOOKS[0]
        found = self._difference(configuration, pairs) if enough else None
        return found.interval(shared_alpha(n_intervals, self._alpha)) if found else None
