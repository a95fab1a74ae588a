"""The rounds of a verification, on launches that are written down: failures, servers, arrivals."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from tests.deploy.recommendations import recommendation
from tests.space.spaces import workload
from tuner.errors import NothingMeasured
from tuner.host.identity import probe
from tuner.launchers.testbed import THIS_HOST
from tuner.record.configuration import Configuration
from tuner.record.launch import (
    Interference,
    LaunchRecord,
    LaunchRequest,
    Purpose,
    Slice,
    packed,
)
from tuner.record.load import Batching, Slo
from tuner.record.outcome import Ending, Outcome
from tuner.record.recommendation import Recommendation
from tuner.record.serving import Served
from tuner.record.workload import ModelFacts
from tuner.study import verify as verifying
from tuner.study.verification import Conclusion, Verification

DISTURBED = Interference(foreign=0.4, dirty=("stolen 30 %",))
CRASHED = Ending(Outcome.CRASHED, "Encountering a dict at the output of the tracer")
SLO = Slo(0.99, 0.1, "p99=100ms")
Launched = Callable[[bool, int], LaunchRecord]
"""Make a launch: of the default or not, the how manieth of its arm."""


def request(is_default: bool) -> LaunchRequest:
    settings: dict[str, Any] = {} if is_default else {"env.MY_MODE": "fast"}
    return LaunchRequest(1 + is_default, Configuration.of(settings), 4, Purpose.CONFIRM)


def offline(rate: float, is_default: bool, is_busy: bool) -> LaunchRecord:
    dirty = DISTURBED if is_busy else Interference()
    slices = [Slice(k, 4, 3, 12 / rate, float(k), dirty) for k in range(4)]
    return LaunchRecord(request(is_default), slices=slices, ending=Ending(Outcome.MEASURED))


def served(latency_s: float, is_default: bool, is_busy: bool, rates: list[float]) -> LaunchRecord:
    """Return a launch of a server that answers each request in so long, at every rate."""
    dirty = DISTURBED if is_busy else Interference()
    calls = packed([0.01] * 30)
    served = Served(Batching((1,)), 30, sustained=50.0)
    slices = [Slice(1, 1, 30, 0.3, 0.5, dirty, packed_calls=calls, served=served)]
    for rate in rates:
        answers = packed([latency_s] * 200)
        offered = Served(Batching((1,)), 200, offered=rate)
        slices.append(
            Slice(2, 1, 200, 200 / rate, 1.0, dirty, packed_calls=answers, served=offered)
        )
    return LaunchRecord(request(is_default), slices=slices, ending=Ending(Outcome.MEASURED))


class Scripted:
    """Stands in for a bench: launches end as the test says."""

    def __init__(self, launched: Launched) -> None:
        self._launched = launched
        self.rounds: list[tuple[int, int]] = []
        """Of each: its number, and how many arms it had."""
        self._n = {True: 0, False: 0}

    def measure_round(
        self, arms: list[Configuration], number: int, purpose: Purpose, **_: Any
    ) -> list[LaunchRecord]:
        if purpose is Purpose.CONFIRM:
            self.rounds.append((number, len(arms)))
        return [self._launch(arm.get("env.MY_MODE") is None) for arm in arms]

    def _launch(self, is_default: bool) -> LaunchRecord:
        self._n[is_default] += 1
        return self._launched(is_default, self._n[is_default])

    def close(self) -> None:
        """Nothing runs."""


@pytest.fixture
def verified(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Verification, Scripted]]:
    """Verify a recommendation on launches that are written down."""
    host, seeds = probe(), list[int]()

    def verify(launched: Launched, slo: Slo | None = None) -> tuple[Verification, Scripted]:
        bench = Scripted(launched)

        def made(*_: object, arrivals_seed: int, **__: object) -> Scripted:
            seeds.append(arrivals_seed)
            return bench

        monkeypatch.setattr(verifying, "bench_on", made)
        monkeypatch.setattr(verifying, "make_reference", lambda *_: None)
        shipped = of_host(recommendation({"env.MY_MODE": "fast"}, host, "fake"), slo)
        facts = cast(ModelFacts, SimpleNamespace(silence="", answers_with={}))
        found = verifying.verify(
            shipped, workload("fake"), facts, host, 60.0, lambda _: None, None, THIS_HOST
        )
        return found, bench

    verify.seeds = seeds  # type: ignore[attr-defined]
    return verify


def of_host(shipped: Recommendation, slo: Slo | None) -> Recommendation:
    """Have a recommendation tell the default's batch, that both fit, and what a server kept."""
    tuned = msgspec.structs.replace(shipped.workload, default_batch=4)
    claim = msgspec.structs.replace(
        shipped.claim, metric="throughput" if slo is None else "rate_within"
    )
    return msgspec.structs.replace(shipped, workload=tuned, claim=claim, slo=slo, memory_bytes=1)


@pytest.mark.parametrize("is_busy", [False, True])
def test_what_crashes_again_by_itself_is_refuted_however_busy_the_host(
    verified: Callable[..., tuple[Verification, Scripted]], is_busy: bool
) -> None:
    def launched(is_default: bool, nth: int) -> LaunchRecord:
        if is_default:
            return offline(100.0, is_default, is_busy)
        return LaunchRecord(request(is_default), ending=CRASHED)

    found, bench = verified(launched)
    assert found.verdict is Conclusion.REFUTED
    assert "by itself as well (crashed: Encountering a dict" in found.reason
    assert [n_arms for _, n_arms in bench.rounds] == [2, 1]


def test_what_crashes_once_and_not_again_decides_nothing(
    verified: Callable[..., tuple[Verification, Scripted]],
) -> None:
    def launched(is_default: bool, nth: int) -> LaunchRecord:
        if not is_default and nth == 3:
            return LaunchRecord(request(is_default), ending=CRASHED)
        return offline(100.0 if is_default else 150.0, is_default, is_busy=False)

    found, bench = verified(launched)
    assert found.verdict is Conclusion.INCONCLUSIVE
    assert "failed once" in found.reason
    assert [n_arms for _, n_arms in bench.rounds] == [2, 2, 2, 1]


def test_wrong_outputs_are_not_asked_for_twice(
    verified: Callable[..., tuple[Verification, Scripted]],
) -> None:
    def launched(is_default: bool, nth: int) -> LaunchRecord:
        wrong = Ending(Outcome.WRONG_OUTPUT, "drift 0.3")
        return (
            offline(100.0, is_default, is_busy=True)
            if is_default
            else LaunchRecord(request(is_default), ending=wrong)
        )

    found, bench = verified(launched)
    assert found.verdict is Conclusion.REFUTED
    assert len(bench.rounds) == 1


def test_a_server_that_ends_before_the_lowest_rates_is_not_refuted(
    verified: Callable[..., tuple[Verification, Scripted]],
) -> None:
    """As in one hurried round of an audit: three trials, all slow, at 0.59 of what was expected."""

    def launched(is_default: bool, nth: int) -> LaunchRecord:
        latency_s = 0.05 if is_default else 0.5
        return served(latency_s, is_default, True, [50.0, 38.0, 29.5])

    found, _ = verified(launched, slo=SLO)
    assert found.verdict is Conclusion.INCONCLUSIVE
    assert "no launch of the recommendation shows whether it keeps within" in found.reason


@pytest.mark.parametrize(("is_busy", "verdict"), [(False, Conclusion.REFUTED),
                                                  (True, Conclusion.INCONCLUSIVE)])  # fmt: skip
def test_a_server_that_is_late_at_every_rate_is_refuted_after_four_undisturbed_rounds(
    verified: Callable[..., tuple[Verification, Scripted]], is_busy: bool, verdict: Conclusion
) -> None:
    def launched(is_default: bool, nth: int) -> LaunchRecord:
        latency_s = 0.05 if is_default else 0.5
        return served(latency_s, is_default, is_busy, [50.0, 25.0, 12.0, 5.0])

    found, bench = verified(launched, slo=SLO)
    assert found.verdict is verdict
    assert "kept within the latency bound in 0 of" in found.reason
    assert (len(bench.rounds) == 4) == (verdict is Conclusion.REFUTED)


def test_a_server_gets_other_arrivals_than_in_its_study_and_each_time(
    verified: Callable[..., tuple[Verification, Scripted]],
) -> None:
    for _ in range(2):
        verified(lambda is_default, _: offline(100.0, is_default, is_busy=False))
    assert len(set(verified.seeds)) == 2  # type: ignore[attr-defined]


def test_what_gives_no_slice_while_time_is_left_has_failed(
    verified: Callable[..., tuple[Verification, Scripted]],
) -> None:
    late = Ending(Outcome.TIMED_OUT, "no slice in 20 s")

    def launched(is_default: bool, nth: int) -> LaunchRecord:
        if is_default:
            return offline(100.0, is_default, is_busy=False)
        return LaunchRecord(request(is_default), ending=late)

    found, bench = verified(launched)
    assert found.verdict is Conclusion.REFUTED
    assert "by itself as well (timed_out: no slice in 20 s)" in found.reason
    assert [n_arms for _, n_arms in bench.rounds] == [2, 1]


def test_a_default_that_fails_later_ends_the_rounds_and_is_no_fault_of_the_other(
    verified: Callable[..., tuple[Verification, Scripted]],
) -> None:
    def launched(is_default: bool, nth: int) -> LaunchRecord:
        if is_default and nth == 2:
            return LaunchRecord(request(is_default), ending=CRASHED)
        return offline(100.0 if is_default else 150.0, is_default, is_busy=False)

    found, bench = verified(launched)
    assert found.verdict is Conclusion.INCONCLUSIVE
    assert found.reason.startswith("the default failed (crashed: Encountering a dict")
    assert (found.n_rounds, len(bench.rounds)) == (1, 2)
    with pytest.raises(NothingMeasured, match="the default could not be measured here: crashed: "):
        verified(lambda is_default, _: LaunchRecord(request(is_default), ending=CRASHED))
