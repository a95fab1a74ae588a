"""Verify a recommendation on its target: rounds of the default and the recommendation.

The unit is that of a study: a round of one new launch of each, slices interleaved
(measurement/bench.py). At least four rounds are made, until they scatter little enough to
distinguish the claimed gain from a part of it (study/claimed_gain.py), or until the time is up.
With fewer rounds, the scatter of launches is taken from the study, which the recommendation
carries.
"""

from __future__ import annotations

import math
import secrets
import statistics
import tempfile
from pathlib import Path

import msgspec

from tuner.errors import NothingMeasured, UsageError
from tuner.host.identity import Host
from tuner.launchers.asking import Deadline
from tuner.launchers.describe import make_reference
from tuner.launchers.memory import RESIDENT_SHARE
from tuner.launchers.testbed import Testbed
from tuner.measurement.bench import bench_on
from tuner.measurement.confirmation import ALPHA, FIRST_LOOK, LOOKS, t_interval
from tuner.measurement.estimates import log_scores_of_rounds, round_log_scores
from tuner.measurement.interference_gate import WAITING_SHARE
from tuner.measurement.replication import Scatter
from tuner.measurement.server_trials import is_conclusive
from tuner.record.configuration import Configuration, Value
from tuner.record.events import Listener, PhaseBegins, RoundEnds, TimeLeft
from tuner.record.launch import LaunchRecord, Purpose
from tuner.record.objective import Objective
from tuner.record.outcome import Ending, Outcome
from tuner.record.recommendation import Recommendation
from tuner.record.store import Store
from tuner.record.workload import ModelFacts, Workload
from tuner.space.differences import Difference, differences
from tuner.space.knobs_of.launch import BATCH
from tuner.space.launching import gpu_of, plan_launch
from tuner.space.placing import plans_here
from tuner.study.claimed_gain import Gain, gain_of, is_precise
from tuner.study.verification import (
    CAN_PASS,
    Conclusion,
    InTime,
    Shown,
    Verification,
    conclude,
    is_busy,
    of_a_server,
    unmeasured,
)

QUICK_S = 60.0
"""Seconds of `verify --quick`."""
_UNKNOWN = Scatter(0.02, 0.01)
"""The scatter of launches and slices if the recommendation does not state it."""
_AT_THE_END_S = 0.1
"""With no more left than this, a launch that timed out did so at our limit."""


def verify(
    recommendation: Recommendation,
    workload: Workload,
    facts: ModelFacts,
    host: Host,
    seconds: float,
    listen: Listener,
    at_least: float | None,
    testbed: Testbed,
) -> Verification:
    """Measure the default and the recommendation again, for at most `seconds`.

    A launch that has not ended by then is stopped. at_least: the share of the claimed gain that
    must be there. Raises NothingMeasured if the default cannot be measured.
    """
    began_s = testbed.clock.now_s()
    found = differences(recommendation, host)
    with tempfile.TemporaryDirectory(prefix="tune-framework-") as folder:
        with Store(Path(folder) / "study", is_kept=False) as store:
            store.used_s = lambda: testbed.clock.now_s() - began_s
            trial = _Trial(
                recommendation,
                workload,
                facts,
                host,
                seconds,
                store,
                listen,
                found,
                at_least,
                testbed,
            )
            try:
                trial.run()
            finally:
                trial.bench.close()
            return conclude(recommendation, trial.shown(), found, store.used_s())


def refused_here(recommendation: Recommendation, host: Host) -> Verification | None:
    """Return the verdict if a recommendation cannot be applied on this host; None if it can.

    Raises UsageError if the placements are not those of the settings, which alone are measured.
    """
    settings = _settings_of(recommendation)
    try:
        meant, given = plan_launch(settings, host), plans_here(recommendation, settings, host)
    except UsageError as error:
        reason = f"it cannot be applied here: {error}"
        found = differences(recommendation, host)
        return unmeasured(recommendation, Conclusion.REFUTED, reason, found)
    if meant != given:
        raise UsageError(
            "its [[placements]] are not what its settings mean on this host, and only those are "
            "measured: place the program by launch.* settings, or remove the placements"
        )
    return None


def nothing_to_prove(recommendation: Recommendation, host: Host) -> Verification:
    """Return the verdict on a recommendation without settings.

    "Keep the default" was found out, and holds; an undecided study proves nothing.
    """
    found = differences(recommendation, host)
    if recommendation.claim.verdict == "keep_default":
        reason = "nothing is recommended (keep_default): the default stays as it is"
        return unmeasured(recommendation, Conclusion.CONFIRMED, reason, found)
    if recommendation.is_expected:
        reason = f"nothing is to be measured ({recommendation.nothing_set}): tune to find out"
        return unmeasured(recommendation, Conclusion.INCONCLUSIVE, reason, found)
    reason = "nothing was claimed: the study did not decide; tune again with a larger --budget"
    return unmeasured(recommendation, Conclusion.INCONCLUSIVE, reason, found)


def _settings_of(recommendation: Recommendation) -> Configuration:
    return Configuration.of({s.knob: s.value for s in recommendation.settings})


class _Trial:
    """Rounds of the default and the recommendation."""

    def __init__(
        self,
        recommendation: Recommendation,
        workload: Workload,
        facts: ModelFacts,
        host: Host,
        seconds: float,
        store: Store,
        listen: Listener,
        differences: list[Difference],
        at_least: float | None,
        testbed: Testbed,
    ) -> None:
        self._at_least = at_least
        self._testbed = testbed
        self._recommendation = recommendation
        self._workload = workload
        self._facts = facts
        self._seconds = seconds
        self._store = store
        self._listen = listen
        objective = Objective.of(recommendation.claim.metric, recommendation.bounds)
        self._objective = msgspec.structs.replace(objective, slo=recommendation.slo)
        self.bench = bench_on(
            testbed,
            store,
            host,
            workload,
            facts,
            self._objective,
            listen,
            session=1,
            seed=0,
            seconds_left=self._left_s,
            waiting_s=WAITING_SHARE * seconds,
            is_cut=True,
            # not those of the study: the same arrivals again would repeat their luck
            arrivals_seed=secrets.randbits(31),
        )
        wanted = recommendation.workload
        settings = _settings_of(recommendation).as_dict()
        assert wanted.default_batch is not None
        self._arms = [
            self._arm({}, wanted.default_batch),
            self._arm(settings, wanted.batch),
        ]
        self._fits = _fits(recommendation, host)
        self._host = host
        self._differences = differences
        self._stopped = ""
        self._in_time: list[InTime] = []
        self._records: list[tuple[LaunchRecord, LaunchRecord]] = []
        """Of every round, in the order of the arms."""
        self._failure: Ending | None = None
        self._fails_alone: bool | None = None
        self._silent: LaunchRecord | None = None
        """Of a default that answers no request: it is not waited for again in every round."""

    def _arm(self, settings: dict[str, Value], batch: int) -> Configuration:
        """Return a configuration at a batch; unset is the model's own reference batch."""
        others = {knob: value for knob, value in settings.items() if knob != BATCH}
        is_reference = batch == self._workload.card.reference_batch
        return Configuration.of(others if is_reference else {**others, BATCH: batch})

    def _left_s(self) -> float:
        return self._seconds - self._store.used_s()

    def run(self) -> None:
        """Take rounds until it is decided, or the time is up."""
        self._listen(PhaseBegins("verify", "the default and the recommendation, round by round"))
        self._listen(TimeLeft(self._left_s()))
        workload = self._workload
        make_reference(
            workload.model,
            workload.framework,
            workload.seed,
            self._store.reference_path,
            workload.card.n_reference_inputs(),
            Deadline(self._left_s(), self._listen, is_strict=True),
            gpu_of(workload.device, self._host),
            secrets.randbits(56),  # what the study's sample left out may be wrong
            self._facts.answers_with,
            self._testbed,
            workload.mode,
        )
        round_s = 0.0
        if not self._fits:  # a launch by itself first: what it takes says whether two may be beside
            for arm in self._arms:
                self.bench.measure_round([arm], 1, Purpose.ANCHOR, noise=_UNKNOWN, seconds=1.0)
        while not self._failure and not self._stopped and len(self._records) < LOOKS[-1]:
            if len(self._records) > 1 and self._left_s() < round_s:
                break  # one alone says nothing, so that a second is begun in any case
            before_s = self._store.used_s()
            self._round(len(self._records))
            round_s = self._store.used_s() - before_s
            if self._is_enough():
                break

    def _measure(self, arms: list[Configuration], n_before: int) -> list[LaunchRecord]:
        claim = self._recommendation.claim
        noise = _UNKNOWN if claim.launch_sd is None else Scatter(claim.launch_sd, claim.launch_sd)
        return self.bench.measure_round(
            arms, 1 + n_before, Purpose.CONFIRM, noise=noise,
            seconds=max(1.0, self._left_s() / max(1, FIRST_LOOK - n_before)), checks=n_before == 0,
        )  # fmt: skip

    def _round(self, n_before: int) -> None:
        """Measure both arms; n_before: rounds that were made."""
        silent = [] if self._silent is None else [self._silent]
        records = silent + self._measure(self._arms[len(silent) :], n_before)
        pair = records[0], records[1]
        self._records.append(pair)
        default, tuned = self._log_scores()[-1]
        self._listen(TimeLeft(self._left_s()))
        if self._facts.silence and _is(pair[0], Outcome.TIMED_OUT):
            self._silent = pair[0]
        if self._objective.slo is not None:
            kept = self._kept(pair[0]) if self._silent is None else False
            self._in_time.append(InTime(kept, self._kept(pair[1]), is_busy(pair)))
        if default is None or tuned is None:
            failed = [r for r in pair if r is not self._silent and not _was_measured(r)]
            if failed:
                self._note_failure(failed[0], n_before)
            return
        if (gain := self._gain()) is not None:
            i = gain.speedup
            is_early = len(self._ratios()) < FIRST_LOOK
            number, speedups = n_before + 1, {"recommended": (i.point, i.low, i.high)}
            self._listen(RoundEnds(number, speedups, is_early))

    def _log_scores(self) -> list[tuple[float | None, float | None]]:
        """Return the log values of the default and of the recommendation, round by round."""
        found = log_scores_of_rounds(self._records, self._objective)
        return [(each[self._arms[0]], each[self._arms[1]]) for each in found]

    def _defaults(self) -> list[float]:
        """Return the log values of the default, of rounds in which both were measured."""
        both = self._log_scores()
        return [default for default, tuned in both if default is not None and tuned is not None]

    def _ratios(self, *, undisturbed: bool = False) -> list[float]:
        """Return the log speedups of the rounds in which both arms were measured.

        undisturbed: without rounds that were mostly disturbed.
        """
        return [
            tuned - default
            for (default, tuned), pair in zip(self._log_scores(), self._records, strict=True)
            if default is not None and tuned is not None and not (undisturbed and is_busy(pair))
        ]

    def _kept(self, record: LaunchRecord) -> bool | None:
        """Return whether a launch kept within the latency bound; None if it does not tell."""
        if not _was_measured(record) or not is_conclusive(record, self._objective):
            return None
        return round_log_scores([record], self._objective) != [None]

    def _note_failure(self, failed: LaunchRecord, n_before: int) -> None:
        """End the rounds: by the recommendation's fault, or for want of time or of a default."""
        is_default = failed.request.configuration == self._arms[0]
        if self._ran_out(failed):
            self._stopped = "the time was up"  # our limit, not its own
        elif is_default and not self._ratios():
            raise NothingMeasured(f"the default could not be measured here: {_why(failed)}")
        elif is_default:
            self._stopped = f"the default failed ({_why(failed)})"
        else:
            self._failure = failed.ending or Ending(Outcome.INTERRUPTED, _why(failed))
            if self._failure.outcome in CAN_PASS:
                self._launch_alone(n_before)

    def _launch_alone(self, n_before: int) -> None:
        """Launch a failed recommendation once more, alone."""
        (again,) = self._measure([self._arms[1]], n_before)
        if self._ran_out(again):
            return
        self._fails_alone = not _was_measured(again)
        if self._fails_alone and again.ending is not None:
            self._failure = again.ending

    def _ran_out(self, record: LaunchRecord) -> bool:
        return _is(record, Outcome.TIMED_OUT) and self._left_s() <= _AT_THE_END_S

    def _gain(self) -> Gain | None:
        """Return the speedup of the rounds; None if they are too few."""
        # as in the confirmation, a server needs four rounds; and elsewhere, or beside what disturbs
        # them, it is not known yet how much launches differ
        is_scatter_known = not (
            self._objective.slo is not None
            or any(each.matters for each in self._differences)
            or is_busy(self._launches())
        )
        claim = self._recommendation.claim
        return gain_of(self._ratios(), claim, is_scatter_known=is_scatter_known)

    def _undisturbed_gain(self) -> Gain | None:
        return gain_of(self._ratios(undisturbed=True), self._recommendation.claim)

    def _is_enough(self) -> bool:
        """Tell whether there are enough rounds."""
        claim = self._recommendation.claim
        if len(self._records) < FIRST_LOOK:
            return False
        if (missed := of_a_server(claim, self._in_time)) is not None:
            return missed[0] is not Conclusion.INCONCLUSIVE
        ratios = self._ratios(undisturbed=is_busy(self._launches()))
        return is_precise(ratios, claim, self._at_least)

    def _launches(self) -> list[LaunchRecord]:
        return [record for pair in self._records for record in pair]

    def _default_bounds(self) -> tuple[float, float] | None:
        defaults = self._defaults()
        if len(defaults) < 2:
            return None
        _, low, high = t_interval(defaults, ALPHA)
        bounds = sorted(map(self._objective.value, (low, high)))
        return bounds[0], bounds[1]

    def shown(self) -> Shown:
        """Return what the rounds showed."""
        defaults = self._defaults()
        prepared = [tuned.prepared for _, tuned in self._records if tuned.prepared is not None]
        return Shown(
            gain=self._gain(),
            ratios=[math.exp(ratio) for ratio in self._ratios()],
            default_value=(
                self._objective.value(statistics.median(defaults)) if defaults else None
            ),
            default_bounds=self._default_bounds(),
            launches=self._launches(),
            read_backs=[list(each.read_back) for each in prepared],
            undisturbed=self._undisturbed_gain(),
            failure=self._failure,
            fails_alone=self._fails_alone,
            stopped=self._stopped,
            in_time=self._in_time,
            at_least=self._at_least,
        )


def _fits(recommendation: Recommendation, host: Host) -> bool:
    """Tell whether both fit into memory together, by the study's figures; False if unknown."""
    used = recommendation.memory_bytes
    return used is not None and 2 * used <= RESIDENT_SHARE * host.limits.memory_bytes


def _was_measured(record: LaunchRecord) -> bool:
    return _is(record, Outcome.MEASURED) and bool(record.slices)


def _is(record: LaunchRecord, outcome: Outcome) -> bool:
    return record.ending is not None and record.ending.outcome is outcome


def _why(record: LaunchRecord) -> str:
    ending = record.ending
    return "it did not end" if ending is None else f"{ending.outcome}: {ending.reason}"
