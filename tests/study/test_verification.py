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
from tuner.study.verification import (
    EXIT_CODES,
    Conclusion,
    Shown,
    Verification,
    against_claim,
    conclude,
)
from tuner.study.verify import nothing_to_prove

SETTINGS: dict[str, Value] = {
    "fake.layout": "packed",
    "env.MY_MODE": "fast",
    "workload.batch": 16,
}
ELSEWHERE = [Difference("processor, model", "Another", "This", matters=True)]
FASTER = Interval(1.5, 1.45, 1.55, 0.95)


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
        "interval": FASTER,
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
    assert found.reason == f"faster than the default, as claimed; {UNSEEN}"
    seen = concluded(claimed, read_backs=[[IN_FORCE[0], read_back("env.MY_MODE", "accepted")]])
    assert seen.reason == "faster than the default, as claimed"


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
    found = concluded(claimed, interval=None, ratios=[], default_value=None, read_backs=[],
                      launches=[], stopped="the time was up")  # fmt: skip
    assert (found.verdict, found.not_in_force) == (Conclusion.INCONCLUSIVE, [])
    assert found.reason == "the time was up: too few rounds for an interval: give it more time"


@pytest.mark.parametrize("rate", [66.0, 151.0])
@pytest.mark.parametrize("interval", [FASTER, Interval(1.1, 1.05, 1.15, 0.95)])
def test_another_default_on_the_same_host_decides_nothing(
    claimed: Recommendation, rate: float, interval: Interval
) -> None:
    here = concluded(claimed, default_value=rate, interval=interval)
    assert here.verdict is Conclusion.INCONCLUSIVE
    said = f"the default is at {rate:.0f} items/s here, and was at 100 where it was confirmed"
    assert said in here.reason
    elsewhere = concluded(claimed, ELSEWHERE, default_value=rate, interval=interval)
    assert elsewhere.verdict is against_claim(interval, claimed.claim.speedup)[0]
    assert said in elsewhere.reason


def test_a_server_at_another_speed_of_its_host_is_not_refuted_by_a_smaller_gain(
    claimed: Recommendation,
) -> None:
    """What keeps within milliseconds is no ratio that stays whatever the host's speed is."""
    served = msgspec.structs.replace(claimed, slo=Slo(0.99, 0.1, "p99=100ms"))
    less, none = Interval(1.2, 1.15, 1.3, 0.95), Interval(0.9, 0.85, 0.99, 0.95)

    def at(rate: float, half: float = 2.0) -> dict[str, Any]:
        return {"default_value": rate, "default_bounds": (rate - half, rate + half)}

    for rate, interval, verdict in (
        (at(100.0), less, Conclusion.REFUTED),
        (at(85.0), less, Conclusion.INCONCLUSIVE),
        (at(115.0), less, Conclusion.INCONCLUSIVE),
        (at(85.0, half=20.0), less, Conclusion.REFUTED),  # it may be the same
        ({"default_value": 85.0}, less, Conclusion.REFUTED),
        (at(115.0), FASTER, Conclusion.CONFIRMED),
        (at(115.0), none, Conclusion.REFUTED),
    ):
        assert concluded(served, **rate, interval=interval).verdict is verdict
    assert concluded(claimed, **at(85.0), interval=less).verdict is Conclusion.REFUTED
    late = [(True, True)] * 3 + [(True, False)]
    missed = concluded(served, **at(85.0), interval=less, kept=late)
    assert missed.verdict is Conclusion.REFUTED
    newer = [Difference("kernel", "6.1", "6.2", matters=False)]
    for differences, verdict in (
        (newer, Conclusion.INCONCLUSIVE), (ELSEWHERE, Conclusion.REFUTED),
    ):  # fmt: skip
        here = concluded(served, differences, **at(85.0), interval=less)
        assert here.verdict is verdict
    found = concluded(served, **at(85.0), interval=less)
    assert "the default is at 85 items/s here, and was at 100" in found.reason
    assert "gains less here than was claimed" in found.reason


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
            Conclusion.CONFIRMED, f"faster than the default, as claimed; {UNSEEN}",
        )  # fmt: skip


def test_a_busy_host_is_said_whatever_the_verdict(claimed: Recommendation) -> None:
    said = "the host is busy (75% of the slices were disturbed: others used 40 % of the CPUs)"
    decided = concluded(claimed, launches=launches(3))
    assert decided.verdict is Conclusion.CONFIRMED  # the rounds' own interval decides
    assert decided.reason == f"faster than the default, as claimed, although {said}; {UNSEEN}"
    open_ = concluded(claimed, launches=launches(3), interval=None)
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
    slow, late = Interval(1.1, 1.05, 1.15, 0.95), Ending(Outcome.TIMED_OUT, "no slice in 20 s")
    for parts in ({"interval": slow}, {"failure": late}):
        assert concluded(claimed, **parts).verdict is Conclusion.REFUTED
        busy = concluded(claimed, **parts, launches=launches(3))
        assert busy.verdict is Conclusion.INCONCLUSIVE
        assert busy.reason.startswith("the host is busy (75% of the slices were disturbed")
        odd = [[read_back("fake.layout", observed="plain"), IN_FORCE[1]]]
        lacking = concluded(claimed, **parts, launches=launches(3), read_backs=odd)
        assert lacking.verdict is Conclusion.REFUTED
        assert lacking.reason == "not in force here: fake.layout"
    for undisturbed, verdict in ((slow, Conclusion.REFUTED), (FASTER, Conclusion.INCONCLUSIVE)):
        found = concluded(claimed, interval=slow, undisturbed=undisturbed, launches=launches(3))
        assert found.verdict is verdict


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


def interval(point: float, low: float, high: float) -> Interval:
    return Interval(point, low, high, 0.95)


@pytest.mark.parametrize(
    ("found", "claimed", "verdict"),
    [
        (interval(1.5, 1.4, 1.6), interval(1.55, 1.5, 1.7), Conclusion.CONFIRMED),
        (interval(1.2, 1.1, 1.3), interval(1.55, 1.5, 1.7), Conclusion.REFUTED),
        (interval(2.0, 1.9, 2.1), interval(1.55, 1.5, 1.7), Conclusion.CONFIRMED),
        (interval(1.2, 0.9, 1.6), interval(1.55, 1.5, 1.7), Conclusion.INCONCLUSIVE),
        (interval(0.9, 0.8, 1.0), None, Conclusion.REFUTED),
        (None, interval(1.55, 1.5, 1.7), Conclusion.INCONCLUSIVE),
    ],
)
def test_an_interval_confirms_where_it_is_above_one_and_not_below_the_claim(
    found: Interval | None, claimed: Interval | None, verdict: Conclusion
) -> None:
    assert against_claim(found, claimed)[0] is verdict


def test_more_than_was_claimed_is_confirmed_and_worth_tuning_for() -> None:
    verdict, reason = against_claim(interval(5.0, 4.49, 5.57), interval(2.07, 1.79, 2.4))
    assert verdict is Conclusion.CONFIRMED
    assert "by more than was claimed, so that it may pay to tune here" in reason
