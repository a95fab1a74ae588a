"""Prove a recommendation again where it is to be deployed: the default against it, interleaved.

The unit is the study's own: a round of one fresh launch of each, slices interleaved
(measurement/bench.py), looked at after 4, 6, 9, 12 and 18 rounds with the error rate kept. Where
the time ends before the first look, the rounds that there are say what they can, by what launches
differed by in the study, which the recommendation carries.
"""

from __future__ import annotations

import math
import tempfile
import time
from enum import StrEnum
from pathlib import Path

import msgspec
import numpy as np
from scipy.special import stdtrit

from tuner.deploy.differences import Difference, differences
from tuner.errors import NothingMeasured, UsageError
from tuner.host.identity import Host
from tuner.measurement.bench import Bench
from tuner.measurement.confirmation import ALPHA, LOOKS, speedup_interval
from tuner.measurement.describe import make_reference
from tuner.measurement.estimates import round_values
from tuner.measurement.memory import RESIDENT_SHARE
from tuner.measurement.quiet import WAITING_SHARE
from tuner.measurement.replication import Scatter
from tuner.record.configuration import Configuration, Value
from tuner.record.events import Listener, PhaseBegins, RoundEnds, TimeLeft
from tuner.record.launch import LaunchRecord, Purpose, ReadBack
from tuner.record.outcome import Outcome
from tuner.record.recommendation import Recommendation
from tuner.record.result import Interval
from tuner.record.store import Store
from tuner.record.workload import ModelFacts, Workload
from tuner.space.catalogue import BATCH
from tuner.space.launching import plan_launch

QUICK_S = 60.0
_UNKNOWN = Scatter(0.02, 0.01)
"""What launches and slices scatter by where the recommendation does not say."""


class Verdict(StrEnum):
    """What came of it; each has an exit code."""

    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    INCONCLUSIVE = "inconclusive"


EXIT_CODES = {Verdict.CONFIRMED: 0, Verdict.REFUTED: 4, Verdict.INCONCLUSIVE: 5}


class Verification(msgspec.Struct, frozen=True):
    """What was found on this host."""

    verdict: Verdict
    reason: str
    claimed: Interval | None
    speedup: Interval | None
    n_rounds: int
    seconds: float
    differences: list[Difference]
    read_back: list[ReadBack]
    not_in_force: list[str]
    ratios: list[float] = []
    """Of each round: the recommendation's rate over the default's."""


def verify(
    recommendation: Recommendation,
    workload: Workload,
    facts: ModelFacts,
    host: Host,
    seconds: float,
    listen: Listener,
) -> Verification:
    """Measure the default and the recommendation again, for so many seconds at the most.

    One round is made in any case. Raises NothingMeasured where the default cannot be measured.
    """
    began = time.monotonic()
    found = differences(recommendation, host)
    settings = Configuration.of({s.knob: s.value for s in recommendation.settings})
    try:
        plan_launch(settings, host)
    except UsageError as error:
        return unmeasured(
            recommendation, Verdict.REFUTED, f"it cannot be applied here: {error}", found
        )
    with tempfile.TemporaryDirectory(prefix="tune-framework-") as folder:
        with Store(Path(folder) / "study", is_kept=False) as store:
            store.used_s = lambda: time.monotonic() - began
            trial = _Trial(recommendation, workload, facts, host, seconds, store, listen, found)
            try:
                trial.run()
            finally:
                trial.bench.close()
            return trial.outcome()


def nothing_to_prove(recommendation: Recommendation, host: Host) -> Verification:
    """Return what is to be said of a recommendation without settings: the default stays."""
    verdict = recommendation.claim.verdict
    reason = f"nothing is recommended ({verdict}): the default stays as it is"
    found = differences(recommendation, host)
    return unmeasured(recommendation, Verdict.CONFIRMED, reason, found)


def unmeasured(
    recommendation: Recommendation, verdict: Verdict, reason: str, found: list[Difference]
) -> Verification:
    """Return a verdict that needs no measuring."""
    return Verification(verdict, reason, recommendation.claim.speedup, None, 0, 0.0, found, [], [])


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
        self._seconds = seconds
        self._store = store
        self._listen = listen
        self.bench = Bench(
            store,
            host,
            workload,
            facts,
            listen,
            session=1,
            seed=0,
            seconds_left=self._left_s,
            waiting_s=WAITING_SHARE * seconds,
        )
        wanted = recommendation.workload
        settings = {s.knob: s.value for s in recommendation.settings}
        assert wanted.default_batch is not None
        self._arms = [
            self._arm({}, wanted.default_batch),
            self._arm(settings, wanted.batch),
        ]
        self._fits = _fits(recommendation, host)
        self._differences = differences
        self._ran_out = False
        self._ratios: list[float] = []
        self._records: list[LaunchRecord] = []
        self._interval: Interval | None = None
        self._failure = ""

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
            max(workload.card.n_check_inputs(changes_numerics=c) for c in (False, True)),
        )
        round_s = 0.0
        if not self._fits:  # a launch by itself first: what it takes says whether two may be beside
            for arm in self._arms:
                self.bench.measure_round([arm], 1, Purpose.ANCHOR, noise=_UNKNOWN, seconds=1.0)
        while not self._failure and not self._ran_out and len(self._ratios) < LOOKS[-1]:
            if self._ratios and self._left_s() < round_s:
                break
            before_s = self._store.used_s()
            self._round(len(self._ratios) + 1)
            round_s = self._store.used_s() - before_s
            if len(self._ratios) in LOOKS and self._is_decided():
                break

    def _round(self, number: int) -> None:
        claim = self._recommendation.claim
        noise = _UNKNOWN if claim.launch_sd is None else Scatter(claim.launch_sd, claim.launch_sd)
        records = self.bench.measure_round(
            self._arms, number, Purpose.CONFIRM, noise=noise,
            seconds=max(1.0, self._left_s() / max(1, LOOKS[0] - number + 1)), checks=number == 1,
        )  # fmt: skip
        default, tuned = round_values(records)
        self._records.append(records[1])
        if default is None or tuned is None:
            self._note_failure(records[0] if default is None else records[1])
            return
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
        if _is(failed, Outcome.TIMED_OUT) and self._left_s() <= 0:
            self._ran_out = True  # our limit, not its own
        elif is_default and not self._ratios:
            raise NothingMeasured(f"the default could not be measured here: {_why(failed)}")
        elif is_default:
            self._ran_out = True
        else:
            self._failure = _why(failed)

    def _interval_now(self) -> Interval | None:
        """Return the ratio with its interval; None of too few rounds of unknown scatter."""
        n, claim = len(self._ratios), self._recommendation.claim
        if n >= LOOKS[0]:
            return speedup_interval(self._ratios, ALPHA)
        is_elsewhere = any(each.matters for each in self._differences)
        if is_elsewhere or not claim.launch_sd or not claim.launch_freedom:
            return None  # how much launches differ by here is not known yet
        return early_interval(self._ratios, claim.launch_sd, claim.launch_freedom)

    def _is_decided(self) -> bool:
        return judge(self._interval, self._recommendation.claim.speedup)[0] != Verdict.INCONCLUSIVE

    def outcome(self) -> Verification:
        """Say what came of it."""
        prepared = [r.prepared for r in self._records if r.prepared is not None]
        read_back = list(prepared[-1].read_back) if prepared else []
        not_in_force = [item.knob for item in read_back if not item.in_force]
        claimed = self._recommendation.claim.speedup
        verdict, reason = judge(self._interval, claimed)
        if not_in_force:
            verdict, reason = Verdict.REFUTED, f"not in force here: {', '.join(not_in_force)}"
        if self._failure:
            verdict, reason = Verdict.REFUTED, f"the recommendation fails here ({self._failure})"
        return Verification(
            verdict, reason, claimed, self._interval, len(self._ratios),
            round(self._store.used_s(), 1), self._differences, read_back, not_in_force,
            [math.exp(ratio) for ratio in self._ratios],
        )  # fmt: skip


def _fits(recommendation: Recommendation, host: Host) -> bool:
    """Tell whether both may be resident together, by what the study saw; False if it did not."""
    used = recommendation.memory_bytes
    return used is not None and 2 * used <= RESIDENT_SHARE * host.limits.memory_bytes


def _is(record: LaunchRecord, outcome: Outcome) -> bool:
    return record.ending is not None and record.ending.outcome is outcome


def _why(record: LaunchRecord) -> str:
    ending = record.ending
    return "it did not end" if ending is None else f"{ending.outcome}: {ending.reason}"


def early_interval(differences: list[float], launch_sd: float, freedom: int) -> Interval:
    """Return the interval of few rounds, by what launches differed by in the study on this host.

    Pooled with what the rounds themselves scatter by, from the second on: a noisier hour makes it
    wider.
    """
    n, mean = len(differences), float(np.mean(differences))
    squares = 2 * launch_sd**2 * freedom
    if n > 1:
        squares += float(np.var(differences, ddof=1)) * (n - 1)
    freedom += n - 1
    half = float(-stdtrit(freedom, ALPHA / 2)) * math.sqrt(squares / freedom / n)
    low, high = math.exp(mean - half), math.exp(min(mean + half, 700.0))
    return Interval(math.exp(mean), low, high, 1 - ALPHA)


def judge(found: Interval | None, claimed: Interval | None) -> tuple[Verdict, str]:
    """Say whether an interval confirms what was claimed: above 1, and overlapping the claim."""
    if found is None:
        return Verdict.INCONCLUSIVE, "too few rounds for an interval: give it more time"
    if claimed is not None and found.high < claimed.low:
        return Verdict.REFUTED, "it gains less here than was claimed"
    if found.low > 1:
        if claimed is not None and found.low > claimed.high:
            return Verdict.REFUTED, "it gains more here than was claimed: tune again on this host"
        return Verdict.CONFIRMED, "faster than the default, as claimed"
    if found.high <= 1:
        return Verdict.REFUTED, "it is no faster than the default here"
    return Verdict.INCONCLUSIVE, "the interval holds 1: give it more time, or a quieter host"
