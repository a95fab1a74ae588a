"""What the confirmation's rounds measured for each arm. Claims are made in claims.py."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import msgspec

from tuner.measurement.confirmation import ArmSeries, Difference, plain_interval
from tuner.measurement.estimates import log_scores_of_rounds
from tuner.measurement.server_rate import Trial
from tuner.measurement.server_trials import fit_of_launches, is_conclusive, log_rates_of_launches
from tuner.record.configuration import Configuration
from tuner.record.interval import Interval
from tuner.record.journal import EarlyRound, NeighbourRound, RoundDone, ValidationNoted
from tuner.record.launch import LaunchRecord
from tuner.record.objective import THROUGHPUT, Objective, offered_of
from tuner.record.store import Store

LogScores = dict[Configuration, float | None]
"""Of the arms of a round; None of one that failed."""


class Loss(msgspec.Struct, frozen=True):
    """The loss of score without some settings, measured in rounds."""

    difference: Difference
    is_paired: bool
    """Whether both took part in the rounds; else only the configuration did."""


LossInRounds = Callable[[Configuration, Configuration], Loss | None]
"""Returns the loss of the first configuration without some settings, which is the second one; None
if the rounds do not show it."""


class Rounds:
    """The complete rounds of a confirmation, or the first `n_rounds` of them.

    Before these stand the rounds of an early verdict: an arm that is compared in both has all.
    """

    def __init__(self, store: Store, objective: Objective, n_rounds: int | None = None) -> None:
        self._objective = objective
        self._told: dict[Configuration, list[Trial]] = defaultdict(list)
        """What LoadGen counted."""
        for noted in store.all(ValidationNoted):
            if (word := noted.validation.told) is not None:
                self._told[noted.configuration].append(
                    Trial(word.scheduled_rate, word.n_requests, word.n_over)
                )
        self.launches: list[dict[Configuration, LaunchRecord]] = []
        """Round by round, each arm's launch."""
        early = [done.launches for done in store.all(EarlyRound)]
        self.n_early = len(early)
        later = [done.launches for done in store.all(RoundDone)[:n_rounds]]
        for launched in (*early, *later):
            records = [store.launches[i] for i in launched]
            self.launches.append({record.request.configuration: record for record in records})
        self.beside_neighbour = [
            {(record := store.launches[i]).request.configuration: record for i in done.launches}
            for done in store.all(NeighbourRound)
        ]
        """The same of rounds after the verdict, which no claim rests on."""
        self.log_scores = self._log_scores(objective)
        """Round by round."""

    def _log_scores(self, objective: Objective, *, only_clean: bool = False) -> list[LogScores]:
        rounds = [list(arms.values()) for arms in self.launches]
        return log_scores_of_rounds(rounds, objective, only_clean=only_clean)

    def series(self, configuration: Configuration) -> ArmSeries:
        """Return an arm's score per round."""
        return ArmSeries(tuple(log_scores.get(configuration) for log_scores in self.log_scores))

    def n_failures(self, configuration: Configuration) -> int:
        """Return in how many rounds the arm's launch failed."""
        return sum(
            configuration in log_scores and log_scores[configuration] is None
            for log_scores in self.log_scores
        )

    def n_met(self, configuration: Configuration) -> tuple[int, int]:
        """Return in how many rounds an arm had a score, and in how many it was conclusive."""
        measured = [
            log_scores[configuration]
            for log_scores, arms in zip(self.log_scores, self.launches, strict=True)
            if configuration in arms and arms[configuration].was_measured
            if is_conclusive(arms[configuration], self._objective)
        ]
        return sum(log_score is not None for log_score in measured), len(measured)

    def value(self, configuration: Configuration) -> Interval | None:
        """Return an arm's value in the objective's unit, with its plain 95 % interval over rounds.

        None of fewer than two rounds. Of a server, LoadGen's requests count as well.
        """
        found = _interval(self.log_scores, configuration)
        if found is not None and self._told.get(configuration):
            found = self._with_loadgen(configuration) or found
        return None if found is None else self._objective.in_unit(found)

    def _with_loadgen(self, configuration: Configuration) -> Interval | None:
        """Return the interval by the rounds' launches and by those that LoadGen asked.

        None if together they show a rate below all that were tried, or if the rate rests on
        simulations of the trials: LoadGen's arrivals are not known.
        """
        slo = self._objective.slo
        assert slo is not None
        records = [arms[configuration] for arms in self.launches if configuration in arms]
        measured = [r for r in records if r.was_measured and offered_of(r.slices)]
        if not measured:
            return None
        if fit_of_launches(measured, slo).log_scale is not None:
            return None
        log_rates = log_rates_of_launches(measured, slo, self._told[configuration])
        known = [each for each in log_rates if each is not None]
        return plain_interval(known) if known else None

    def value_undisturbed(self, configuration: Configuration) -> Interval | None:
        """Return the same of the undisturbed slices alone, where all calls count; else None."""
        if not self._objective.is_of_calls:
            return None
        found = _interval(self._log_scores(self._objective, only_clean=True), configuration)
        return None if found is None else self._objective.in_unit(found)

    def rate(self, configuration: Configuration) -> Interval | None:
        """Return an arm's items per second, whatever the objective."""
        if self._objective.is_rate:
            return self.value(configuration)
        return _interval(self._log_scores(THROUGHPUT), configuration)


def _interval(rounds: list[LogScores], configuration: Configuration) -> Interval | None:
    known = [
        log_score
        for log_scores in rounds
        if (log_score := log_scores.get(configuration)) is not None
    ]
    return plain_interval(known) if len(known) > 1 else None
