"""Prove a recommendation again where it is to be deployed: the default against it, interleaved.

The unit is the study's own: a round of one fresh launch of each, slices interleaved
(measurement/bench.py), looked at after 4, 6, 9, 12 and 18 rounds with the error rate kept. Where
the time ends before the first look, the rounds that there are say what they can, by what launches
differed by in the study, which the recommendation carries.
"""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from pathlib import Path

import msgspec

from tuner.errors import NothingMeasured, UsageError
from tuner.host.identity import Host
from tuner.measurement.asking import Waiting
from tuner.measurement.confirmation import (
    ALPHA,
    LOOKS,
    Noise,
    early_interval,
    speedup_interval,
    t_interval,
)
from tuner.measurement.describe import make_reference
from tuner.measurement.estimates import round_worths
from tuner.measurement.launcher import bench_of_processes
from tuner.measurement.memory import RESIDENT_SHARE
from tuner.measurement.quiet import WAITING_SHARE
from tuner.measurement.replication import Scatter
from tuner.record.configuration import Configuration, Value
from tuner.record.events import Listener, PhaseBegins, RoundEnds, TimeLeft
from tuner.record.interval import Interval
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
from tuner.study.verification import (
    Conclusion,
    Shown,
    Verification,
    conclude,
    decide,
    is_busy,
    of_a_server,
    unmeasured,
)

QUICK_S = 60.0
_UNKNOWN = Scatter(0.02, 0.01)
"""What launches and slices scatter by where the recommendation does not say."""
_AT_THE_END_S = 0.1
"""With no more left than this, a launch that timed out did so at our limit."""


def verify(
    recommendation: Recommendation,
    workload: Workload,
    facts: ModelFacts,
    host: Host,
    seconds: float,
    listen: Listener,
) -> Verification:
    """Measure the default and the recommendation again, for `seconds` at the most.

    What has not ended by then is given up, preparation included. Raises NothingMeasured where the
    default cannot be measured, UsageError where the placements are not what the settings mean.
    """
    began = time.monotonic()
    found = differences(recommendation, host)
    if (refused := refused_here(recommendation, host)) is not None:
        return refused
    with tempfile.TemporaryDirectory(prefix="tune-framework-") as folder:
        with Store(Path(folder) / "study", is_kept=False) as store:
            store.used_s = lambda: time.monotonic() - began
            trial = _Trial(recommendation, workload, facts, host, seconds, store, listen, found)
            try:
                trial.run()
            finally:
                trial.bench.close()
            return conclude(recommendation, trial.shown(), found, store.used_s())


def refused_here(recommendation: Recommendation, host: Host) -> Verification | None:
    """Return the verdict on what cannot be applied on this host; None if it can.

    Raises UsageError where the placements are not those of the settings, which alone are measured.
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
    """Return what is to be said of a recommendation without settings.

    That the default stays was found out, and holds; that nothing was decided proves nothing.
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
    ) -> None:
        self._recommendation = recommendation
        self._workload = workload
        self._facts = facts
        self._seconds = seconds
        self._store = store
        self._listen = listen
        objective = Objective.of(recommendation.claim.metric, recommendation.bounds)
        self._objective = msgspec.structs.replace(objective, slo=recommendation.slo)
        self.bench = bench_of_processes(
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
        self._defaults: list[float] = []
        self._ratios: list[float] = []
        self._kept: list[tuple[bool, bool]] = []
        """Of a server, round by round: whether the default and the recommendation were in time."""
        self._records: list[tuple[LaunchRecord, LaunchRecord]] = []
        self._interval: Interval | None = None
        self._failure: Ending | None = None
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
            Waiting(self._left_s(), self._listen, is_strict=True),
            gpu_of(workload.device, self._host),
            self._facts.answers_with,
        )
        round_s = 0.0
        if not self._fits:  # a launch by itself first: what it takes says whether two may be beside
            for arm in self._arms:
                self.bench.measure_round([arm], 1, Purpose.ANCHOR, noise=_UNKNOWN, seconds=1.0)
        while not self._failure and not self._stopped and self._n_rounds() < LOOKS[-1]:
            if self._n_rounds() > 1 and self._left_s() < round_s:
                break  # one alone says nothing, so that a second is begun in any case
            before_s = self._store.used_s()
            self._round(self._n_rounds() + 1)
            round_s = self._store.used_s() - before_s
            if self._n_rounds() in LOOKS and self._is_decided():
                break

    def _round(self, number: int) -> None:
        claim = self._recommendation.claim
        noise = _UNKNOWN if claim.launch_sd is None else Scatter(claim.launch_sd, claim.launch_sd)
        silent = [] if self._silent is None else [self._silent]
        records = silent + self.bench.measure_round(
            self._arms[len(silent) :], number, Purpose.CONFIRM, noise=noise,
            seconds=max(1.0, self._left_s() / max(1, LOOKS[0] - number + 1)), checks=number == 1,
        )  # fmt: skip
        default, tuned = round_worths(records, self._objective)
        self._records.append((records[0], records[1]))
        if self._facts.silence and _is(records[0], Outcome.TIMED_OUT):
            self._silent = records[0]
            if not _was_measured(records[1]):
                self._note_failure(records[1])
                return
            self._kept.append((False, tuned is not None))
            self._listen(TimeLeft(self._left_s()))
            return
        if self._objective.slo is not None and all(map(_was_measured, records)):
            self._kept.append((default is not None, tuned is not None))
            if default is None or tuned is None:
                self._listen(TimeLeft(self._left_s()))
                return
        if default is None or tuned is None:
            self._note_failure(records[0] if default is None else records[1])
            return
        self._defaults.append(default)
        self._ratios.append(tuned - default)
        self._interval = self._interval_now()
        self._listen(TimeLeft(self._left_s()))
        if self._interval is not None:
            i = self._interval
            is_early = len(self._ratios) < LOOKS[0]
            self._listen(RoundEnds(number, {"recommended": (i.point, i.low, i.high)}, is_early))

    def _note_failure(self, failed: LaunchRecord) -> None:
        """End the rounds: by the recommendation's fault, or for want of time or of a default."""
        is_default = failed.request.configuration == self._arms[0]
        if _is(failed, Outcome.TIMED_OUT) and self._left_s() <= _AT_THE_END_S:
            self._stopped = "the time was up"  # our limit, not its own
        elif is_default and not self._ratios:
            raise NothingMeasured(f"the default could not be measured here: {_why(failed)}")
        elif is_default:
            self._stopped = f"the default failed ({_why(failed)})"
        else:
            self._failure = failed.ending or Ending(Outcome.INTERRUPTED, _why(failed))

    def _interval_now(self) -> Interval | None:
        """Return the ratio with its interval; None of too few rounds of unknown scatter."""
        n, claim = len(self._ratios), self._recommendation.claim
        if n >= LOOKS[0]:
            return speedup_interval(self._ratios, ALPHA)
        is_elsewhere = any(each.matters for each in self._differences)
        if is_elsewhere or not claim.launch_sd or not claim.launch_freedom:
            return None  # how much launches differ by here is not known yet
        if is_busy(self._launches()):
            return None  # nor how much they do beside what disturbs them
        return early_interval(self._ratios, Noise(claim.launch_sd, claim.launch_freedom))

    def _n_rounds(self) -> int:
        return max(len(self._ratios), len(self._kept))

    def _is_decided(self) -> bool:
        if of_a_server(self._recommendation.claim, self._kept) is not None:
            return True
        claimed = self._recommendation.claim.speedup
        verdict, _ = decide(self._interval, self._undisturbed(), claimed, self._launches())
        return verdict is not Conclusion.INCONCLUSIVE

    def _undisturbed(self) -> Interval | None:
        """Return the ratio by the rounds that were not mostly disturbed; None where too few are."""
        pairs = zip(self._ratios, self._records, strict=False)  # a round that failed has no ratio
        ratios = [ratio for ratio, pair in pairs if not is_busy(pair)]
        return speedup_interval(ratios, ALPHA) if len(ratios) >= LOOKS[0] else None

    def _launches(self) -> list[LaunchRecord]:
        return [record for pair in self._records for record in pair]

    def _default_bounds(self) -> tuple[float, float] | None:
        if len(self._defaults) < 2:
            return None
        _, low, high = t_interval(self._defaults, ALPHA)
        bounds = sorted(map(self._objective.value, (low, high)))
        return bounds[0], bounds[1]

    def shown(self) -> Shown:
        """Return what the rounds showed."""
        prepared = [tuned.prepared for _, tuned in self._records if tuned.prepared is not None]
        return Shown(
            interval=self._interval,
            ratios=[math.exp(ratio) for ratio in self._ratios],
            default_value=(
                self._objective.value(statistics.median(self._defaults)) if self._defaults else None
            ),
            default_bounds=self._default_bounds(),
            launches=self._launches(),
            read_backs=[list(each.read_back) for each in prepared],
            undisturbed=self._undisturbed(),
            failure=self._failure,
            stopped=self._stopped,
            kept=self._kept,
        )


def _fits(recommendation: Recommendation, host: Host) -> bool:
    """Tell whether both may be resident together, by what the study saw; False if it did not."""
    used = recommendation.memory_bytes
    return used is not None and 2 * used <= RESIDENT_SHARE * host.limits.memory_bytes


def _was_measured(record: LaunchRecord) -> bool:
    return _is(record, Outcome.MEASURED) and bool(record.slices)


def _is(record: LaunchRecord, outcome: Outcome) -> bool:
    return record.ending is not None and record.ending.outcome is outcome


def _why(record: LaunchRecord) -> str:
    ending = record.ending
    return "it did not end" if ending is None else f"{ending.outcome}: {ending.reason}"
