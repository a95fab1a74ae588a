"""What a verification may say, from what its rounds showed."""

from typing import Any

import msgspec
import pytest

from tests.deploy.recommendations import recommendation
from tuner.cli.verify import line
from tuner.host.identity import probe
from tuner.record.configuration import Configuration, Value
from tuner.record.interval import Interval
from tuner.record.launch import (
    Evidence,
    Interference,
    LaunchRecord,
    LaunchRequest,
    Purpose,
    ReadBack,
    Slice,
)
from tuner.record.load import Slo
from tuner.record.outcome import Ending, Outcome
from tuner.record.recommendation import Recommendation
from tuner.space.differences import Difference
from tuner.study.claimed_gain import Gain
from tuner.study.verification import (
    EXIT_CODES,
    Conclusion,
    InTime,
    Shown,
    Verification,
    against_claim,
    conclude,
    unmeasured,
)
from tuner.study.verify import nothing_to_prove

SETTINGS: dict[str, Value] = {
    "fake.layout": "packed",
    "env.MY_MODE": "fast",
    "workload.batch": 16,
}
ELSEWHERE = [Difference("processor, model", "Another", "This", matters=True)]


def gain(point: float, low: float, high: float, **more: Any) -> Gain:
    return Gain(Interval(point, low, high, 0.95), **more)


AS_CLAIMED = Interval(1.0, 0.9, 1.1, 0.95)
"""The share of the claimed gain that is there."""
FASTER = gain(1.5, 1.45, 1.55, share=AS_CLAIMED)
LESS = gain(1.1, 1.05, 1.15, share=Interval(0.2, 0.1, 0.3, 0.95), is_less=True)
CONFIRMED = "faster than the default, as claimed: 100% of the claimed gain (90% - 110%)"


def read_back(knob: str, evidence: Evidence = "effective", observed: Value | None = None) -> Any:
    value = SETTINGS[knob]
    return ReadBack(knob, value, value if observed is None else observed, evidence, "")


IN_FORCE = [read_back("fake.layout"), read_back("env.MY_MODE", "environment_only")]
UNSEEN = "not observable here: env.MY_MODE"


def launches(n_disturbed: int) -> list[LaunchRecord]:
    """Return the launch of a round, of whose four slices some were disturbed."""
    dirty = Interference(foreign=0.4, dirty=("others used 40 % of the CPUs",))
    request = LaunchRequest(1, Configuration(), 4, Purpose.CONFIRM)
    slices = [
        Slice(k, 4, 3, 0.3, float(k), dirty if k < n_disturbed else Interference())
        for k in range(4)
    ]
    return [LaunchRecord(request, slices=slices)]


@pytest.fixture(scope="module")
def claimed() -> Recommendation:
    """Claimed: 1.4 to 1.6 times the default's 100 items per second."""
    found = recommendation(SETTINGS, probe(), "fake")
    claim = msgspec.structs.replace(found.claim, default_rate=100.0)
    return msgspec.structs.replace(found, claim=claim)


def concluded(
    recommendation: Recommendation, found: list[Difference] | None = None, **parts: Any
) -> Verification:
    shown: dict[str, Any] = {
        "gain": FASTER,
        "ratios": [1.5] * 4,
        "default_value": 100.0,
        "launches": launches(0),
        "read_backs": [IN_FORCE],
        **parts,
    }
    return conclude(recommendation, Shown(**shown), found or [], 1.0)


def test_confirmed_is_what_was_read_back_in_force(claimed: Recommendation) -> None:
    found = concluded(claimed)
    assert found.verdict is Conclusion.CONFIRMED
    assert found.reason == f"{CONFIRMED}; {UNSEEN}"
    seen = concluded(claimed, read_backs=[[IN_FORCE[0], read_back("env.MY_MODE", "accepted")]])
    assert seen.reason == CONFIRMED


@pytest.mark.parametrize("lacking", [0, 1, 2])
def test_what_one_round_lacked_is_not_in_force(claimed: Recommendation, lacking: int) -> None:
    odd = [read_back("fake.layout", observed="plain"), IN_FORCE[1]]
    found = concluded(claimed, read_backs=[odd if k == lacking else IN_FORCE for k in range(3)])
    assert (found.verdict, found.not_in_force) == (Conclusion.REFUTED, ["fake.layout"])
    assert found.read_back == odd


@pytest.mark.parametrize(
    ("seen", "missing"),
    [
        ([], ["fake.layout", "env.MY_MODE"]),
        (IN_FORCE[:1], ["env.MY_MODE"]),
        (IN_FORCE[1:], ["fake.layout"]),
        # what a program is told to do can be observed
        ([read_back("fake.layout", "environment_only"), IN_FORCE[1]], ["fake.layout"]),
        ([read_back("fake.layout", observed="plain"), IN_FORCE[1]], ["fake.layout"]),
    ],
)
def test_what_was_not_read_back_is_not_in_force(
    claimed: Recommendation, seen: list[ReadBack], missing: list[str]
) -> None:
    assert {s.knob for s in claimed.settings} == SETTINGS.keys()
    found = concluded(claimed, read_backs=[seen])
    assert (found.verdict, found.not_in_force) == (Conclusion.REFUTED, missing)
    assert found.reason == f"not in force here: {', '.join(missing)}"


def test_where_no_launch_got_so_far_nothing_is_said_of_the_settings(
    claimed: Recommendation,
) -> None:
    found = concluded(claimed, gain=None, ratios=[], default_value=None, read_backs=[],
                      launches=[], stopped="the time was up")  # fmt: skip
    assert (found.verdict, found.not_in_force) == (Conclusion.INCONCLUSIVE, [])
    assert found.reason == "the time was up: too few rounds for an interval: give it more time"


@pytest.mark.parametrize("rate", [66.0, 151.0])
@pytest.mark.parametrize("found", [FASTER, LESS])
def test_another_default_on_the_same_host_decides_nothing(
    claimed: Recommendation, rate: float, found: Gain
) -> None:
    here = concluded(claimed, default_value=rate, gain=found)
    assert here.verdict is Conclusion.INCONCLUSIVE
    said = f"the default is at {rate:.0f} items/s here, and was at 100 where it was confirmed"
    assert said in here.reason
    elsewhere = concluded(claimed, ELSEWHERE, default_value=rate, gain=found)
    assert elsewhere.verdict is against_claim(found, claimed.claim.speedup)[0]
    assert said in elsewhere.reason


def test_a_server_at_another_speed_of_its_host_is_not_refuted_by_a_smaller_gain(
    claimed: Recommendation,
) -> None:
    """What keeps within milliseconds is no ratio that stays whatever the host's speed is."""
    served = msgspec.structs.replace(claimed, slo=Slo(0.99, 0.1, "p99=100ms"))
    less, none = LESS, gain(0.9, 0.85, 0.99, share=AS_CLAIMED, is_less=True)

    def at(rate: float, half: float = 2.0) -> dict[str, Any]:
        return {"default_value": rate, "default_bounds": (rate - half, rate + half)}

    for rate, found, verdict in (
        (at(100.0), less, Conclusion.REFUTED),
        (at(85.0), less, Conclusion.INCONCLUSIVE),
        (at(115.0), less, Conclusion.INCONCLUSIVE),
        (at(85.0, half=20.0), less, Conclusion.REFUTED),  # it may be the same
        ({"default_value": 85.0}, less, Conclusion.REFUTED),
        (at(115.0), FASTER, Conclusion.CONFIRMED),
        (at(115.0), none, Conclusion.REFUTED),
    ):
        assert concluded(served, **rate, gain=found).verdict is verdict
    assert concluded(claimed, **at(85.0), gain=less).verdict is Conclusion.REFUTED
    late = [InTime(True, True)] + [InTime(True, False)] * 3
    missed = concluded(served, **at(85.0), gain=less, in_time=late)
    assert missed.verdict is Conclusion.REFUTED
    newer = [Difference("kernel", "6.1", "6.2", matters=False)]
    for differences, verdict in (
        (newer, Conclusion.INCONCLUSIVE), (ELSEWHERE, Conclusion.REFUTED),
    ):  # fmt: skip
        here = concluded(served, differences, **at(85.0), gain=less)
        assert here.verdict is verdict
    told = concluded(served, **at(85.0), gain=less).reason
    assert "the default is at 85 items/s here, and was at 100" in told
    assert "faster, but 1.10x here of the claimed 1.50x" in told


def test_rates_are_written_plainly(claimed: Recommendation) -> None:
    claim = msgspec.structs.replace(claimed.claim, default_rate=5000.0)
    found = concluded(msgspec.structs.replace(claimed, claim=claim), default_value=123456.0)
    said = "the default is at 123,500 items/s here, and was at 5,000 where it was confirmed"
    assert said in found.reason


def test_a_default_that_is_much_the_same_is_not_spoken_of(claimed: Recommendation) -> None:
    unknown = msgspec.structs.replace(claimed.claim, default_rate=None)
    older = msgspec.structs.replace(claimed, claim=unknown)
    for found in (concluded(claimed, default_value=140.0), concluded(older, default_value=1.0)):
        assert (found.verdict, found.reason) == (
            Conclusion.CONFIRMED, f"{CONFIRMED}; {UNSEEN}",
        )  # fmt: skip


def test_a_busy_host_is_said_whatever_the_verdict(claimed: Recommendation) -> None:
    said = "the host is busy (75% of the slices were disturbed: others used 40 % of the CPUs)"
    decided = concluded(claimed, launches=launches(3))
    assert decided.verdict is Conclusion.CONFIRMED  # the rounds' own interval decides
    assert decided.reason == f"{CONFIRMED}, although {said}; {UNSEEN}"
    open_ = concluded(claimed, launches=launches(3), gain=None)
    assert open_.verdict is Conclusion.INCONCLUSIVE
    assert open_.reason.startswith(said)
    assert concluded(claimed, launches=launches(1)).disturbed == 0.25
    assert "busy" not in concluded(claimed, launches=launches(1)).reason


def test_a_failure_is_refuted_however_fast_it_was(claimed: Recommendation) -> None:
    failure = Ending(Outcome.WRONG_OUTPUT, "drift 0.3")
    for busy in (0, 3):
        found = concluded(claimed, failure=failure, default_value=10.0, launches=launches(busy))
        assert found.verdict is Conclusion.REFUTED
        assert found.reason == "the recommendation fails here (wrong_output: drift 0.3)"


def test_a_busy_host_refutes_by_what_its_load_cannot_do(claimed: Recommendation) -> None:
    late = Ending(Outcome.TIMED_OUT, "no slice in 20 s")
    for parts in ({"gain": LESS}, {"failure": late, "fails_alone": True}):
        assert concluded(claimed, **parts).verdict is Conclusion.REFUTED
        busy = concluded(claimed, **parts, launches=launches(3))
        assert busy.verdict is Conclusion.INCONCLUSIVE
        assert busy.reason.startswith("the host is busy (75% of the slices were disturbed")
        odd = [[read_back("fake.layout", observed="plain"), IN_FORCE[1]]]
        lacking = concluded(claimed, **parts, launches=launches(3), read_backs=odd)
        assert lacking.verdict is Conclusion.REFUTED
        assert lacking.reason == "not in force here: fake.layout"
    for undisturbed, verdict in ((LESS, Conclusion.REFUTED), (FASTER, Conclusion.INCONCLUSIVE)):
        found = concluded(claimed, gain=LESS, undisturbed=undisturbed, launches=launches(3))
        assert found.verdict is verdict


@pytest.mark.parametrize("n_disturbed", [0, 3])
@pytest.mark.parametrize(
    ("fails_alone", "verdict", "told"),
    [
        (True, Conclusion.REFUTED, "fails here, by itself as well (crashed: a dict at the output"),
        (False, Conclusion.INCONCLUSIVE, "and not when it was launched again by itself"),
        (None, Conclusion.INCONCLUSIVE, "there was no time to launch it again by itself"),
    ],
)
def test_a_crash_counts_if_it_happens_again_however_busy_the_host(
    claimed: Recommendation, n_disturbed: int, fails_alone: bool | None,
    verdict: Conclusion, told: str,
) -> None:  # fmt: skip
    found = concluded(
        claimed,
        gain=None,
        failure=Ending(Outcome.CRASHED, "a dict at the output of the tracer"),
        fails_alone=fails_alone,
        launches=launches(n_disturbed),
    )
    assert found.verdict is verdict
    assert told in found.reason


def test_fewer_than_four_rounds_do_not_refute(claimed: Recommendation) -> None:
    for n, verdict in ((3, Conclusion.INCONCLUSIVE), (4, Conclusion.REFUTED)):
        found = concluded(claimed, gain=LESS, ratios=[1.1] * n)
        assert found.verdict is verdict
        assert "faster, but 1.10x here" in found.reason
    assert concluded(claimed, ratios=[1.5] * 3).verdict is Conclusion.CONFIRMED


IN_TIME, LATE = InTime(True, True), InTime(True, False)
BOTH_LATE, NOT_TOLD = InTime(False, False), InTime(True, None)
BUSY = InTime(True, False, is_busy=True)


@pytest.mark.parametrize(
    ("rounds", "verdict", "told"),
    [
        ([LATE], Conclusion.INCONCLUSIVE, "in 0 of 1 rounds, the default in 1 of 1"),
        ([LATE] * 3, Conclusion.INCONCLUSIVE, "in 0 of 3 rounds"),
        ([LATE] * 4, Conclusion.REFUTED, "in 0 of 4 rounds, the default in 4 of 4"),
        ([LATE, *[NOT_TOLD] * 3], Conclusion.INCONCLUSIVE, "in 0 of 1 rounds"),
        ([IN_TIME] * 4 + [LATE], Conclusion.INCONCLUSIVE, "in 4 of 5 rounds"),
        ([BUSY] * 5, Conclusion.INCONCLUSIVE, "in 0 of 5 rounds"),
        ([BUSY] + [LATE] * 4, Conclusion.REFUTED, "in 0 of 5 rounds"),
        ([BOTH_LATE] * 6, Conclusion.INCONCLUSIVE, "in 0 of 6 rounds, the default in 0 of 6"),
        ([IN_TIME] * 4 + [NOT_TOLD], Conclusion.CONFIRMED, "faster than the default, as claimed"),
    ],
)
def test_a_server_is_refuted_by_four_undisturbed_rounds_that_tell(
    claimed: Recommendation, rounds: list[InTime], verdict: Conclusion, told: str
) -> None:
    served = msgspec.structs.replace(claimed, slo=Slo(0.99, 0.1, "p99=100ms"))
    found = concluded(served, in_time=rounds)
    assert found.verdict is verdict
    assert told in found.reason


def test_where_the_default_was_always_late_a_server_is_held_to_the_bound_alone(
    claimed: Recommendation,
) -> None:
    late = msgspec.structs.replace(claimed.claim, default_meets_slo=False, speedup=None)
    served = msgspec.structs.replace(claimed, claim=late, slo=Slo(0.99, 0.1, "p99=100ms"))
    for rounds, verdict in (
        ([InTime(False, True)] * 4, Conclusion.CONFIRMED),
        ([InTime(False, True)] * 3, Conclusion.INCONCLUSIVE),
        ([BOTH_LATE] * 4, Conclusion.REFUTED),
    ):
        found = concluded(served, in_time=rounds, gain=None, at_least=0.9)
        assert found.verdict is verdict, rounds


@pytest.mark.parametrize(
    ("verdict", "code", "said"),
    [
        ("keep_default", 0, "nothing is recommended (keep_default)"),
        ("ambiguous", 5, "nothing was claimed: the study did not decide"),
    ],
)
def test_without_settings_it_says_what_the_study_found(verdict: Any, code: int, said: str) -> None:
    host = probe()
    kept = recommendation({}, host, "fake")
    hint = Interval(0.93, 0.81, 1.06, 0.95)
    claim = msgspec.structs.replace(kept.claim, verdict=verdict, speedup=hint)
    found = nothing_to_prove(msgspec.structs.replace(kept, claim=claim), host)
    assert EXIT_CODES[found.verdict] == code
    assert said in found.reason
    assert found.claimed is None
    assert "claimed 0.93x" not in line(found)


CLAIM = Interval(1.3, 1.25, 1.35, 0.95)


def share(point: float, low: float, high: float, **more: Any) -> Gain:
    """Return what rounds say of a claim of 1.30x that show a share of its gain."""
    here = [1 + 0.3 * each for each in (point, low, high)]
    return gain(*here, share=Interval(point, low, high, 0.95), **more)


@pytest.mark.parametrize(
    ("found", "at_least", "verdict", "reason"),
    [
        (share(1.0, 0.9, 1.1), None, Conclusion.CONFIRMED, "as claimed: 100% of the claimed gain"),
        (share(0.8, 0.3, 1.2), None, Conclusion.CONFIRMED,
         "not surely by less than claimed: 80% of the claimed gain (30% - 120%)"),
        (share(0.5, 0.3, 0.7, is_less=True), None, Conclusion.REFUTED,
         "faster, but 1.15x here of the claimed 1.30x, 50% of the claimed gain (30% - 70%)"),
        (share(0.1, -0.1, 0.3, is_less=True), None, Conclusion.REFUTED, "it gains less than"),
        (share(0.0, -0.1, 0.0, is_less=True), None, Conclusion.REFUTED, "it is no faster"),
        (share(1.5, 1.2, 1.8, is_more=True), None, Conclusion.CONFIRMED,
         "by more than was claimed, so that it may pay to tune here"),
        (share(0.5, -0.1, 1.3), None, Conclusion.INCONCLUSIVE, "the interval contains 1"),
        (None, None, Conclusion.INCONCLUSIVE, "too few rounds"),
        (share(1.0, 0.9, 1.1), 0.9, Conclusion.CONFIRMED, "by 100% of the claimed gain"),
        (share(1.0, 0.8, 1.2), 0.9, Conclusion.INCONCLUSIVE,
         "do not show whether by at least 90% of the claimed gain: 100% of the"),
        (share(0.5, 0.3, 0.7, is_less=True), 0.9, Conclusion.REFUTED,
         "of the claimed 1.30x, 50% of the claimed gain (30% - 70%), at least 90% is asked for"),
        (share(0.6, 0.5, 0.7, is_less=True), 0.5, Conclusion.CONFIRMED, "faster than the default"),
        (share(0.6, 0.4, 0.8, is_less=True), 0.5, Conclusion.INCONCLUSIVE,
         "(40% - 80%); give it more time"),
        (share(1.3, 0.4, 9.0, is_limited_by_claim=True), 0.5, Conclusion.INCONCLUSIVE,
         "the claim itself is no more certain than that: more time does not help"),
        (share(0.2, -0.2, 0.7, is_less=True), 0.9, Conclusion.REFUTED, "it gains less than"),
        (None, 0.9, Conclusion.INCONCLUSIVE, "too few rounds"),
    ],
)  # fmt: skip
def test_what_is_there_of_the_claimed_gain_decides(
    found: Gain | None, at_least: float | None, verdict: Conclusion, reason: str
) -> None:
    said = against_claim(found, CLAIM, at_least)
    assert said[0] is verdict
    assert reason in said[1]


def test_without_a_claimed_gain_it_is_faster_or_not() -> None:
    for at_least in (None, 0.9):
        assert against_claim(gain(1.2, 1.1, 1.3), None, at_least)[0] is Conclusion.CONFIRMED
        assert against_claim(gain(0.9, 0.8, 1.0), None, at_least)[0] is Conclusion.REFUTED


def test_the_share_that_was_asked_for_is_told_with_what_was_found(claimed: Recommendation) -> None:
    found = concluded(claimed, at_least=0.8)
    assert (found.share, found.at_least) == (AS_CLAIMED, 0.8)


def test_a_verdict_that_needed_no_measuring_has_no_figures(claimed: Recommendation) -> None:
    found = unmeasured(claimed, Conclusion.REFUTED, "the allocator is not here", ELSEWHERE)
    assert found == Verification(
        verdict=Conclusion.REFUTED,
        reason="the allocator is not here",
        claimed=claimed.claim.speedup,
        speedup=None,
        n_rounds=0,
        seconds=0.0,
        differences=ELSEWHERE,
        read_back=[],
        not_in_force=[],
        ratios=[],
        default_value=None,
        claimed_default_value=None,
        unit="",
        disturbed=0.0,
        share=None,
        at_least=None,
    )
