"""What rounds allow to say, from rounds that are written by hand."""

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest

from tuner.measurement.confirmation import (
    EARLY_ALPHA,
    FIRST_LOOK,
    LOOKS,
    fallback_alphas,
    look_level,
    t_interval,
)
from tuner.measurement.queueing import with_sustained
from tuner.record.configuration import Configuration
from tuner.record.journal import ArmsChosen, EarlyRound, RoundDone, TrialNoted
from tuner.record.launch import (
    Interference,
    LaunchRecord,
    LaunchRequest,
    Prepared,
    Purpose,
    ReadBack,
    Slice,
    packed,
)
from tuner.record.load import Batching, Slo
from tuner.record.objective import Objective
from tuner.record.outcome import Ending, Outcome
from tuner.record.result import Verdict
from tuner.record.serving import Served
from tuner.record.store import Store
from tuner.record.winner_class import WinnerClass
from tuner.study.claim import Claim, explain, of_misses, of_silence
from tuner.study.claims import Claims
from tuner.study.evaluation import Evaluation
from tuner.study.rounds import LossInRounds

DEFAULT = Configuration()
DEFAULT_16 = Configuration.of({"workload.batch": 16})
TUNED = Configuration.of({"fake.layout": "packed"})
TUNED_16 = Configuration.of({"fake.layout": "packed", "workload.batch": 16})


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path) as opened:
        yield opened


def add_round(store: Store, number: int, rates: dict[Configuration, float | None]) -> None:
    store.add(RoundDone(number, add_launches(store, number, rates)))


def add_early_rounds(store: Store, gain: float) -> None:
    for number in range(1, FIRST_LOOK + 1):
        noise = 0.03 * (number % 2)
        launches = add_launches(store, number, {DEFAULT: noise, TUNED: gain})
        store.add(EarlyRound(TUNED, launches))


def add_launches(
    store: Store, number: int, rates: dict[Configuration, float | None]
) -> tuple[int, ...]:
    ids = []
    for configuration, log_rate in rates.items():
        id = store.next_launch_id()
        request = LaunchRequest(id, configuration, 4, Purpose.CONFIRM, round=number)
        record = LaunchRecord(request, ending=Ending(Outcome.MEASURED))
        if log_rate is None:
            record.ending = Ending(Outcome.CRASHED, "it crashed")
        else:
            record.slices = [
                Slice(id * 10 + k, 1, 1, math.exp(-log_rate), float(k)) for k in range(4)
            ]
        store.launches[id] = record
        ids.append(id)
    return tuple(ids)


def claims(
    store: Store,
    tuned: Configuration = TUNED,
    n_rounds: int | None = None,
    chosen: ArmsChosen | None = None,
    why_unjustified: Callable[[Configuration, LossInRounds], str] = lambda _c, _loss: "",
    reduced: Configuration | None = None,
    unmeasured: Sequence[str] = (),
) -> Claims:
    finalists = {
        WinnerClass.NO_CODE: DEFAULT,
        WinnerClass.SAME_PRECISION: tuned,
        WinnerClass.REDUCED_PRECISION: reduced or tuned,
    }
    evaluation = Evaluation(store, 4, (4, 16))
    return Claims(
        store,
        evaluation,
        finalists,
        chosen,
        n_rounds,
        is_interim=n_rounds is not None,
        why_unjustified=why_unjustified,
        unmeasured=lambda _: unmeasured,
    )


def rounds(store: Store, gain: float, n: int, noise: float = 0.02, seed: int = 0) -> None:
    random = np.random.default_rng(seed)
    for number in range(1, n + 1):
        machine = random.normal(0, 0.3)  # how fast the machine is in this round
        add_round(
            store,
            number,
            {
                DEFAULT: machine + random.normal(0, noise),
                TUNED: machine + gain + random.normal(0, noise),
            },
        )


def test_a_clear_gain_is_faster_however_the_machine_swings(store: Store) -> None:
    rounds(store, gain=0.5, n=4)
    claim = claims(store).claim(WinnerClass.SAME_PRECISION)
    assert claim.verdict == "faster"
    assert claim.speedup is not None
    assert claim.speedup.low < math.exp(0.5) < claim.speedup.high
    assert claim.n_rounds == 4
    assert claims(store).open_arms() == []


def test_no_gain_is_never_called_one(store: Store) -> None:
    rounds(store, gain=0.0, n=18)
    assert claims(store).claim(WinnerClass.SAME_PRECISION).verdict != "faster"


def test_fewer_rounds_than_a_claim_needs_decide_nothing(store: Store) -> None:
    rounds(store, gain=1.0, n=3)
    claim = claims(store).claim(WinnerClass.SAME_PRECISION)
    assert claim.verdict == "ambiguous"
    assert claim.speedup is None
    assert "3 of the 4 rounds" in claim.reason


def test_the_default_as_finalist_is_kept_if_something_else_was_tried(store: Store) -> None:
    rounds(store, gain=0.5, n=4)
    nothing_tried = claims(store).claim(WinnerClass.NO_CODE)
    assert nothing_tried.verdict == "ambiguous"
    assert "nothing but the default was tried" in nothing_tried.reason
    other = Configuration.of({"env.FAKE_THREADS": 4})
    store.add(TrialNoted(0, other, "search", Ending(Outcome.MEASURED), (), 1.0))
    kept = claims(store).claim(WinnerClass.NO_CODE)
    assert kept.verdict == "keep_default"
    assert "the one other configuration tried did not come within" in kept.reason


def test_why_the_best_candidate_is_not_proved_stands_in_the_reason(store: Store) -> None:
    search(store, {DEFAULT: 1.0, TUNED: 1.5})
    raised = "a.b raises memory from 423 MiB to 543 MiB (+28%)"
    found = claims(store, tuned=DEFAULT, why_unjustified=lambda _c, _loss: raised)
    claim = found.claim(WinnerClass.SAME_PRECISION)
    assert claim.verdict == "ambiguous"
    assert claim.reason == f"the best candidate is {TUNED.label()}, but {raised}"


def test_a_default_is_not_kept_while_a_recommendation_was_never_launched(store: Store) -> None:
    rounds(store, gain=0.0, n=4)
    other = Configuration.of({"env.FAKE_THREADS": 4})
    store.add(TrialNoted(0, other, "search", Ending(Outcome.MEASURED), (), 1.0))
    open_yet = claims(store, unmeasured=["torch_compile_guide"]).claim(WinnerClass.NO_CODE)
    assert open_yet.verdict == "ambiguous"
    assert "no time for what is recommended: torch_compile_guide" in open_yet.reason
    assert claims(store).claim(WinnerClass.NO_CODE).verdict == "keep_default"


def test_nor_by_rounds_of_another_candidate_but_a_faster_one_stands(store: Store) -> None:
    rounds(store, gain=0.0, n=9, noise=0.001)
    assert claims(store).claim(WinnerClass.SAME_PRECISION).verdict == "keep_default"
    open_yet = claims(store, unmeasured=["a guide"]).claim(WinnerClass.SAME_PRECISION)
    assert open_yet.verdict == "ambiguous" and open_yet.speedup is not None
    assert "no time for what is recommended: a guide" in open_yet.reason


def test_what_is_faster_is_so_whatever_was_never_launched(store: Store) -> None:
    rounds(store, gain=0.5, n=4)
    assert (
        claims(store, unmeasured=["a guide"]).claim(WinnerClass.SAME_PRECISION).verdict == "faster"
    )


def search(store: Store, rates: dict[Configuration, float]) -> None:
    for number, (configuration, log_rate) in enumerate(rates.items()):
        request = LaunchRequest(store.next_launch_id(), configuration, 4, Purpose.SEARCH)
        slices = [Slice(100 * number + k, 1, 1, math.exp(-log_rate), float(k)) for k in range(4)]
        ending = Ending(Outcome.MEASURED)
        store.launches[request.id] = LaunchRecord(request, slices=slices, ending=ending)
        store.add(TrialNoted(number, configuration, "search", ending, (request.id,), log_rate))


def test_where_launches_scatter_widely_the_search_alone_keeps_no_default(store: Store) -> None:
    """The search thought that it knew: 10 % behind, with launches that seemed to differ by 2 %."""
    other = Configuration.of({"env.FAKE_THREADS": 4})
    search(store, {DEFAULT: 1.0, other: 0.9})
    assert claims(store).claim(WinnerClass.NO_CODE).verdict == "keep_default"
    rounds(store, gain=0.0, n=4, noise=0.1)
    unsure = claims(store).claim(WinnerClass.NO_CODE)
    assert unsure.verdict == "ambiguous"
    assert "scatter by" in unsure.reason


def test_what_more_launches_brought_near_the_default_is_not_said_to_be_worse(store: Store) -> None:
    """When the finalists were named it lagged behind; now it is within the noise."""
    other = Configuration.of({"env.FAKE_THREADS": 4})
    search(store, {DEFAULT: 1.0, other: 0.99})
    claim = claims(store).claim(WinnerClass.NO_CODE)
    assert claim.verdict == "ambiguous"
    assert "after more launches env.FAKE_THREADS=4 does" in claim.reason


def test_what_is_said_of_an_arm_that_left_does_not_change(store: Store) -> None:
    """A baseline leaves after the first look; quiet rounds of others say nothing more of it."""
    baseline = Configuration.of({"env.FAKE_THREADS": 4})
    random = np.random.default_rng(3)
    for number in range(1, 5):
        add_round(store, number, {c: random.normal(0, 0.1) for c in (DEFAULT, TUNED, baseline)})
    chosen = ArmsChosen((TUNED, baseline), baseline, at_reference=False, looks=LOOKS)
    first = claims(store, chosen=chosen).against_default(baseline)
    for number in range(5, 13):
        add_round(store, number, {c: random.normal(0, 0.001) for c in (DEFAULT, TUNED)})
    assert claims(store, chosen=chosen).against_default(baseline) == first


@pytest.mark.parametrize(("gain", "verdict"), [(0.5, "faster"), (0.0, "ambiguous")])
def test_a_finalist_that_was_left_out_costs_the_others_nothing(
    store: Store, gain: float, verdict: str
) -> None:
    """Its class ships another's winner, if it may; of itself nothing is said."""
    rounds(store, gain=gain, n=4)
    left_out = Configuration.of({"fake.precision": "bf16"})
    chosen = ArmsChosen((TUNED,), None, at_reference=False, looks=LOOKS)
    without, alone = claims(store, chosen=chosen, reduced=left_out), claims(store, chosen=chosen)
    assert without.claim(WinnerClass.SAME_PRECISION) == alone.claim(WinnerClass.SAME_PRECISION)
    claim = without.claim(WinnerClass.REDUCED_PRECISION)
    assert without.left_out(WinnerClass.REDUCED_PRECISION) == left_out
    assert without.left_out(WinnerClass.SAME_PRECISION) is None
    assert claim.verdict == verdict
    if verdict == "faster":
        assert claim == alone.claim(WinnerClass.REDUCED_PRECISION)
    else:
        assert claim.configuration == left_out
        assert claim.reason == "there was no time to confirm it as well"


def disturb(store: Store, n: int) -> None:
    """Write a launch of the search with so many disturbed slices."""
    request = LaunchRequest(store.next_launch_id(), DEFAULT, 4, Purpose.SEARCH)
    busy = Interference(dirty=("other processes used 50% of the CPU time",))
    store.launches[request.id] = LaunchRecord(
        request, slices=[Slice(9000 + k, 1, 1, 0.3, float(k), busy) for k in range(n)]
    )


def test_on_a_busy_host_the_search_alone_keeps_no_default(store: Store) -> None:
    rounds(store, gain=0.0, n=4)
    other = Configuration.of({"env.FAKE_THREADS": 4})
    store.add(TrialNoted(0, other, "search", Ending(Outcome.MEASURED), (), 1.0))
    assert claims(store).claim(WinnerClass.NO_CODE).verdict == "keep_default"
    disturb(store, 40)
    claim = claims(store).claim(WinnerClass.NO_CODE)
    assert claim.verdict == "ambiguous"
    assert "of the slices were disturbed" in claim.reason


def test_on_such_a_host_an_interval_still_decides(store: Store) -> None:
    rounds(store, gain=0.5, n=4)
    disturb(store, 40)
    assert claims(store).claim(WinnerClass.SAME_PRECISION).verdict == "faster"


BASELINE = Configuration.of({"launch.allocator": "jemalloc"})
CHOSEN = ArmsChosen((TUNED, BASELINE), BASELINE, False, LOOKS)


def baseline_rounds(store: Store, tuned: float, baseline: float, n: int = 9) -> None:
    random = np.random.default_rng(2)
    for number in range(1, n + 1):
        jitter = random.normal(0, 0.01, 3)
        rates = {DEFAULT: jitter[0], TUNED: tuned + jitter[1], BASELINE: baseline + jitter[2]}
        add_round(store, number, rates)


def test_a_baseline_that_proved_faster_is_not_passed_over_for_the_default(store: Store) -> None:
    baseline_rounds(store, tuned=0.0, baseline=0.2)
    found = claims(store, chosen=CHOSEN)
    for winner_class in (WinnerClass.SAME_PRECISION, WinnerClass.REDUCED_PRECISION):
        claim = found.claim(winner_class)
        assert (claim.verdict, claim.configuration) == ("faster", BASELINE)
        assert "own finalist did not reach" in claim.reason
    assert found.against_default(BASELINE) == found.claim(WinnerClass.SAME_PRECISION).speedup


def test_a_baseline_of_another_class_wins_nothing(store: Store) -> None:
    reduced = Configuration.of({"fake.precision": "bf16"})
    random = np.random.default_rng(2)
    for number in range(1, 7):
        jitter = random.normal(0, 0.01, 3)
        rates = {DEFAULT: jitter[0], TUNED: jitter[1], reduced: 0.3 + jitter[2]}
        add_round(store, number, rates)
    found = claims(store, chosen=ArmsChosen((TUNED, reduced), None, False, LOOKS))
    assert found.claim(WinnerClass.SAME_PRECISION).verdict != "faster"
    assert found.claim(WinnerClass.REDUCED_PRECISION).configuration == reduced


def test_a_baseline_with_a_setting_that_nothing_shows_wins_nothing(store: Store) -> None:
    baseline_rounds(store, tuned=0.0, baseline=0.2)
    echoed = ReadBack("launch.allocator", "jemalloc", None, "environment_only", "nothing shows it")
    for record in store.launches.values():
        if record.request.configuration == BASELINE:
            record.prepared = Prepared(0.1, 0.1, 0.5, True, 0, 0, (echoed,))
    assert claims(store, chosen=CHOSEN).claim(WinnerClass.SAME_PRECISION).verdict != "faster"


def test_a_baseline_with_a_costly_setting_that_is_not_shown_to_be_needed_wins_nothing(
    store: Store,
) -> None:
    baseline_rounds(store, tuned=0.0, baseline=0.2)
    found = claims(store, chosen=CHOSEN, why_unjustified=lambda c, _: "costly" * (c == BASELINE))
    assert found.claim(WinnerClass.SAME_PRECISION).configuration == TUNED
    assert found.claim(WinnerClass.SAME_PRECISION).verdict != "faster"


def test_where_a_baseline_is_not_surely_ahead_the_finalist_stays_the_winner(store: Store) -> None:
    baseline_rounds(store, tuned=0.2, baseline=0.205)
    claim = claims(store, chosen=CHOSEN).claim(WinnerClass.SAME_PRECISION)
    assert (claim.verdict, claim.configuration) == ("faster", TUNED)
    assert "finalist" not in claim.reason


def test_a_baseline_that_is_surely_faster_than_the_finalist_is_not_passed_over(
    store: Store,
) -> None:
    """Nobody is to be recommended what the report itself shows to be slower."""
    baseline_rounds(store, tuned=0.1, baseline=0.4)
    found = claims(store, chosen=CHOSEN)
    claim = found.claim(WinnerClass.SAME_PRECISION)
    assert (claim.verdict, claim.configuration) == ("faster", BASELINE)
    assert claim.reason.endswith("and it is surely faster than the class's own finalist")
    assert claim.speedup == found.against_default(BASELINE)
    lead = found.lead(BASELINE, TUNED)
    # later rounds without it do not move what was said of it
    for number in range(10, 14):
        add_round(store, number, {DEFAULT: 0.0, TUNED: 0.1 + 0.3 * (number % 2)})
    assert claims(store, chosen=CHOSEN).lead(BASELINE, TUNED) == lead
    # but not with a costly setting that nothing shows to be needed
    unjustified_costs = claims(
        store, chosen=CHOSEN, why_unjustified=lambda c, _: "costly" * (c == BASELINE)
    )
    assert unjustified_costs.claim(WinnerClass.SAME_PRECISION).configuration == TUNED
    assert unjustified_costs.is_ahead(BASELINE, TUNED)
    assert not unjustified_costs.is_ahead(TUNED, BASELINE)


def test_the_finalist_of_a_narrower_class_that_is_surely_faster_is_not_passed_over(
    store: Store,
) -> None:
    baseline_rounds(store, tuned=0.1, baseline=0.4)
    evaluation = Evaluation(store, 4, (4, 16))
    finalists = dict.fromkeys(WinnerClass, TUNED) | {WinnerClass.NO_CODE: BASELINE}
    found = Claims(store, evaluation, finalists, CHOSEN)
    for winner_class in WinnerClass:
        assert found.claim(winner_class).configuration == BASELINE
    reasons = {winner_class: found.claim(winner_class).reason for winner_class in WinnerClass}
    assert "class's own finalist" not in reasons[WinnerClass.NO_CODE]
    assert "class's own finalist" in reasons[WinnerClass.SAME_PRECISION]


def test_of_too_few_rounds_nothing_is_surely_ahead(store: Store) -> None:
    baseline_rounds(store, tuned=0.1, baseline=0.4, n=LOOKS[0] - 1)
    assert not claims(store, chosen=CHOSEN).is_ahead(BASELINE, TUNED)


def test_an_arm_that_failed_before_the_rounds_is_neither_claimed_nor_open(store: Store) -> None:
    crashed = LaunchRecord(LaunchRequest(store.next_launch_id(), TUNED, 4, Purpose.ABLATION))
    crashed.ending = Ending(Outcome.CRASHED, "it crashed")
    store.launches[crashed.request.id] = crashed
    rounds(store, gain=0.5, n=4)
    claim = claims(store).claim(WinnerClass.SAME_PRECISION)
    assert claim.verdict == "ambiguous"
    assert "failed when it was launched again" in claim.reason
    assert claims(store).open_arms() == []


def test_an_arm_that_fails_once_is_not_shipped(store: Store) -> None:
    rounds(store, gain=0.5, n=5)
    add_round(store, 6, {DEFAULT: 0.0, TUNED: None})
    claim = claims(store).claim(WinnerClass.SAME_PRECISION)
    assert claim.verdict == "ambiguous"
    assert "failed in 1 of 6 rounds" in claim.reason
    assert claims(store).open_arms() == []


def test_the_best_batch_of_the_default_is_the_denominator(store: Store) -> None:
    """At batch 16 both are twice as fast: the batch makes no speedup."""
    random = np.random.default_rng(1)
    for number in range(1, 5):
        jitter = random.normal(0, 0.005, 4)
        add_round(
            store,
            number,
            {
                DEFAULT: 0.0 + jitter[0],
                DEFAULT_16: 0.7 + jitter[1],
                TUNED: 0.3 + jitter[2],
                TUNED_16: 1.0 + jitter[3],
            },
        )
    found = claims(store, TUNED_16)
    claim = found.claim(WinnerClass.SAME_PRECISION)
    assert found.default == DEFAULT_16
    assert claim.speedup is not None
    assert claim.speedup.point == pytest.approx(math.exp(0.3), rel=0.02)
    assert claim.at_reference_batch is not None
    assert claim.at_reference_batch.point == pytest.approx(math.exp(0.3), rel=0.02)
    assert claim.batch_gain == pytest.approx(math.exp(0.7), rel=0.02)


def test_between_looks_only_the_last_look_counts(store: Store) -> None:
    rounds(store, gain=0.5, n=5)
    assert claims(store, n_rounds=4).claim(WinnerClass.SAME_PRECISION).n_rounds == 4


def test_the_noise_floor_rises_with_the_noise(store: Store) -> None:
    rounds(store, gain=0.5, n=4, noise=0.1)
    assert claims(store).noise_floor(WinnerClass.SAME_PRECISION) > 0.05
    assert claims(store).noise.launch_sd == pytest.approx(0.1, rel=0.7)


@pytest.mark.parametrize(
    ("noise", "reason"),
    [
        (1.5, "the host was too noisy for a verdict"),
        (
            0.2,
            "the interval does not decide it against a noise floor of 25.1%, nor against 10%",
        ),
    ],
)
def test_a_noise_floor_that_means_nothing_is_no_percentage(
    store: Store, noise: float, reason: str
) -> None:
    rounds(store, gain=0.0, n=6, noise=noise)
    claim = claims(store).claim(WinnerClass.SAME_PRECISION)
    assert claim.verdict == "ambiguous"
    assert claim.reason == reason


def test_where_the_search_found_nothing_in_too_much_noise_it_is_not_a_percentage_either(
    store: Store,
) -> None:
    other = Configuration.of({"env.FAKE_THREADS": 4})
    search(store, {DEFAULT: 1.0, other: 0.9})
    rounds(store, gain=0.0, n=4, noise=1.5)
    reason = claims(store).claim(WinnerClass.NO_CODE).reason
    assert reason.endswith("in the search, but the host was too noisy for a verdict")


@pytest.mark.parametrize(
    ("own", "verdict", "told"),
    [
        ((4, 4), "faster", "the default answers no request"),
        ((3, 4), "ambiguous", "kept within the bound in 3 of 4 rounds"),
        ((2, 2), "ambiguous", "a claim needs 4 rounds"),
    ],
)
def test_what_answers_where_the_default_does_not_is_claimed_without_a_ratio(
    own: tuple[int, int], verdict: str, told: str
) -> None:
    found = of_silence(TUNED, own)
    assert found is not None
    assert (found.verdict, found.speedup) == (verdict, None)
    assert told in found.reason
    assert of_silence(TUNED, (0, 0)) is None


OTHER = Configuration.of({"fake.streams": 2})
OTHER_CHOSEN = ArmsChosen((OTHER,), None, at_reference=False, looks=LOOKS)


def test_an_early_verdict_is_tested_at_its_own_level(store: Store) -> None:
    add_early_rounds(store, 0.5)
    claim = claims(store).claim(WinnerClass.SAME_PRECISION)
    assert (claim.verdict, claim.n_rounds) == ("faster", FIRST_LOOK)
    assert claim.speedup is not None
    differences = [0.5 - 0.03 * (number % 2) for number in range(1, FIRST_LOOK + 1)]
    _, low, _ = t_interval(differences, EARLY_ALPHA)
    assert claim.speedup.low == pytest.approx(math.exp(low))


def test_what_no_early_verdict_is_about_is_not_confirmed_yet(store: Store) -> None:
    add_early_rounds(store, 0.5)
    claim = claims(store, tuned=OTHER, reduced=TUNED).claim(WinnerClass.SAME_PRECISION)
    assert claim.configuration == TUNED  # it is allowed there, too, and faster
    low = Configuration.of({"fake.precision": "bf16"})
    claim = claims(store, tuned=TUNED, reduced=low).claim_of(WinnerClass.REDUCED_PRECISION, low)
    assert claim.reason == "it is not confirmed yet"


def test_an_early_winner_that_is_no_finalist_in_the_end_keeps_its_verdict(store: Store) -> None:
    add_early_rounds(store, 0.5)
    before = claims(store).claim(WinnerClass.SAME_PRECISION)
    for number in range(1, FIRST_LOOK + 1):
        add_round(store, number, {DEFAULT: 0.9 + 0.03 * (number % 2), OTHER: 0.9})
    claim = claims(store, tuned=OTHER, chosen=OTHER_CHOSEN).claim(WinnerClass.SAME_PRECISION)
    assert (claim.configuration, claim.verdict) == (TUNED, "faster")
    assert claim.speedup == before.speedup


def test_its_rounds_count_where_it_is_confirmed_again_and_its_level_is_spent(store: Store) -> None:
    add_early_rounds(store, 0.5)
    for number in range(1, FIRST_LOOK + 1):
        add_round(store, number, {DEFAULT: 0.03 * (number % 2), TUNED: 0.5})
    left = look_level(0, EARLY_ALPHA)
    chosen = ArmsChosen((TUNED,), None, at_reference=False, looks=LOOKS, level=left)
    claim = claims(store, chosen=chosen).claim(WinnerClass.SAME_PRECISION)
    assert claim.n_rounds == 2 * FIRST_LOOK
    assert claim.speedup is not None
    differences = [0.5 - 0.03 * (number % 2) for number in range(2 * FIRST_LOOK)]
    _, low, _ = t_interval(differences, left)
    assert claim.speedup.low == pytest.approx(math.exp(low))


def test_the_default_is_at_its_best_batch_though_the_machine_is_faster_in_some_rounds(
    store: Store,
) -> None:
    for number in range(1, FIRST_LOOK + 1):
        launches = add_launches(store, number, {DEFAULT: 2.0, TUNED: 2.5})
        store.add(EarlyRound(TUNED, launches))
        add_round(store, number, {DEFAULT_16: 0.2, TUNED: 0.5})
    chosen = ArmsChosen((TUNED,), None, at_reference=False, looks=LOOKS)
    assert claims(store, chosen=chosen).default == DEFAULT_16


def test_no_look_has_a_larger_level_than_what_any_class_has_in_the_end(store: Store) -> None:
    rounds(store, gain=0.3, n=4)
    for n_before in range(4):
        level = look_level(n_before)
        chosen = ArmsChosen((TUNED,), None, at_reference=False, looks=LOOKS, level=level)
        interim = claims(store, chosen=chosen, n_rounds=4)
        assert interim.level(TUNED) < min(fallback_alphas([1.0, 1.0, 1.0], level))


def test_an_early_winner_without_later_rounds_keeps_its_level_as_a_finalist(store: Store) -> None:
    add_early_rounds(store, 0.5)
    chosen = ArmsChosen((OTHER, TUNED), None, at_reference=False, looks=LOOKS)
    assert claims(store, chosen=chosen).level(TUNED) == EARLY_ALPHA


def test_what_was_compared_before_is_shown_though_there_was_no_time_to_go_on(store: Store) -> None:
    rounds(store, gain=0.5, n=4)
    claim = claims(store, chosen=OTHER_CHOSEN).claim(WinnerClass.SAME_PRECISION)
    assert (claim.configuration, claim.n_rounds) == (TUNED, 4)
    assert claim.speedup is not None


def gone_on(
    store: Store, before: Configuration, finalist: Configuration, gains: tuple[float, float]
) -> tuple[Claim, Claim]:
    """Return a claim of a study's first extent, and what holds after its next.

    before, finalist: of the class, in each of them. gains: of TUNED and of BASELINE.
    """
    baseline_rounds(store, *gains)
    evaluation = Evaluation(store, 4, (4, 16))
    earlier = Claims(
        store, evaluation, dict.fromkeys(WinnerClass, before), CHOSEN, 4, is_interim=False
    )
    decided = earlier.claim_of(WinnerClass.SAME_PRECISION, before)
    assert decided.verdict != "ambiguous"
    finalists = dict.fromkeys(WinnerClass, finalist)
    settled = {WinnerClass.SAME_PRECISION: decided}
    later = Claims(store, evaluation, finalists, CHOSEN, settled=settled)
    return decided, later.claim(WinnerClass.SAME_PRECISION)


def test_a_winner_stays_until_another_arm_is_surely_faster(store: Store) -> None:
    decided, later = gone_on(store, TUNED, BASELINE, (0.3, 0.305))
    assert later == decided


def test_a_winner_gives_way_to_what_is_surely_faster(store: Store) -> None:
    _, later = gone_on(store, TUNED, BASELINE, (0.1, 0.4))
    assert later.configuration == BASELINE
    assert "than what was confirmed before" in later.reason


def test_that_the_default_is_kept_holds_for_the_finalist_that_was_tested(store: Store) -> None:
    decided, later = gone_on(store, TUNED, TUNED, (-0.2, 0.0))
    assert decided.verdict == "keep_default"
    assert later == decided


def test_another_finalist_that_has_its_rounds_decides_anew(store: Store) -> None:
    _, later = gone_on(store, TUNED, BASELINE, (-0.2, 0.4))
    assert (later.verdict, later.configuration) == ("faster", BASELINE)


def test_a_last_look_after_another_has_a_stricter_level(store: Store) -> None:
    rounds(store, gain=0.3, n=9)
    widths = []
    for n_before in (0, 1):
        chosen = ArmsChosen((TUNED,), None, False, LOOKS, level=look_level(n_before))
        speedup = claims(store, chosen=chosen).claim(WinnerClass.SAME_PRECISION).speedup
        assert speedup is not None
        widths.append(math.log(speedup.high / speedup.low))
    assert widths[1] > 1.2 * widths[0]


def test_leads_of_all_arms_over_all_finalists_hold_together(store: Store) -> None:
    """One other arm, and two finalists: the default and what was tuned."""
    baseline_rounds(store, tuned=0.1, baseline=0.4)
    found = claims(store, chosen=CHOSEN)
    assert found.lead(BASELINE, TUNED) == found.against(BASELINE, TUNED, n_intervals=2)
    alone = found.against(BASELINE, TUNED)
    lead = found.lead(BASELINE, TUNED)
    assert alone is not None and lead is not None
    assert lead.point == alone.point
    assert lead.low < alone.low < alone.high < lead.high


@pytest.mark.parametrize(
    ("own", "default", "verdict", "told"),
    [
        ((3, 4), (4, 4), "ambiguous", "it kept within the bound in 3 of 4 rounds"),
        (
            (4, 4), (0, 4), "faster",
            "it kept within the bound in all of 4 rounds, and the default kept within the bound in "
            "0 of 4 rounds",
        ),
        (
            (4, 4), (3, 4), "ambiguous",
            "the default kept within the bound in 3 of 4 rounds: there is no speedup",
        ),
        (
            (3, 3), (0, 3), "ambiguous",
            "the default kept within the bound in 0 of 3 rounds: there is no speedup",
        ),
    ],
)  # fmt: skip
def test_what_missed_a_bound_has_no_ratio(
    own: tuple[int, int], default: tuple[int, int], verdict: str, told: str
) -> None:
    found = of_misses(TUNED, own, default)
    assert found is not None
    assert (found.verdict, found.reason, found.speedup) == (verdict, told, None)
    assert found.n_rounds == own[0]
    assert of_misses(TUNED, (4, 4), (4, 4)) is None


@pytest.mark.parametrize(
    ("verdict", "floor", "told"),
    [
        (
            "faster", 0.02,
            "the interval is above 1 and the point above the noise floor of 2.0%",
        ),
        (
            "faster", 0.6,
            "the interval is above 1 and the point above the noise floor that these few rounds "
            "allow",
        ),
        ("keep_default", 0.02, "the interval leaves no room for more than the noise floor of 2.0%"),
        ("keep_default", 0.2, "the interval leaves no room for more than 10%"),
        ("ambiguous", 0.02, "the interval does not decide it against a noise floor of 2.0%"),
        (
            "ambiguous", 0.2,
            "the interval does not decide it against a noise floor of 20.0%, nor against 10%",
        ),
    ],
)  # fmt: skip
def test_a_reason_names_the_floor_that_decides(verdict: Verdict, floor: float, told: str) -> None:
    assert explain(verdict, floor) == told


SLO = Slo(0.99, 0.1, "--slo p99=100ms")
SERVED = msgspec.structs.replace(Objective.of("rate_within"), slo=SLO)


def served_rounds(store: Store, rates: dict[Configuration, float], n_late: int = 0) -> None:
    """Write four rounds of servers; in so many of them the default is late at every rate."""
    for number in range(1, 5):
        ids = []
        for configuration, rate in rates.items():
            id = store.next_launch_id()
            request = LaunchRequest(id, configuration, 1, Purpose.CONFIRM, round=number, slo=SLO)
            is_late = configuration == DEFAULT and number <= n_late
            slices = [timed(10 * id, rate * (1 + 0.01 * (number % 2)))]
            if is_late:
                slices.append(late(10 * id + 1))
            ending = Ending(Outcome.MEASURED)
            store.launches[id] = LaunchRecord(request, slices=slices, ending=ending)
            ids.append(id)
        store.add(RoundDone(number, tuple(ids)))


def timed(index: int, sustained: float) -> Slice:
    """Return batches of a server that were timed in turn, and the rate expected of them."""
    served = Served(Batching((1,)), 30, sustained=sustained)
    return Slice(index, 1, 30, 0.03, 0.5, packed_calls=packed([0.001] * 30), served=served)


def late(index: int) -> Slice:
    """Return a trial at a rate that is low, and yet every request takes too long."""
    served = Served(Batching((1,)), 200, offered=0.5)
    return Slice(index, 1, 200, 400.0, 1.0, packed_calls=packed([0.5] * 200), served=served)


def served_claims(store: Store) -> Claims:
    evaluation = Evaluation(store, 1, (1,), SERVED)
    return Claims(store, evaluation, dict.fromkeys(WinnerClass, TUNED), CHOSEN)


def test_servers_that_keep_within_the_bound_are_compared_by_their_rates(store: Store) -> None:
    served_rounds(store, {DEFAULT: 50.0, TUNED: 80.0})
    found = served_claims(store)
    claim = found.claim(WinnerClass.SAME_PRECISION)
    assert claim.verdict == "faster"
    assert claim.speedup is not None and claim.speedup.point == pytest.approx(1.6)
    assert claim.value is not None and claim.value.point == pytest.approx(80.4, abs=0.01)
    assert found.against_default(TUNED) == claim.speedup


@pytest.mark.parametrize(
    ("n_late", "verdict", "told"),
    [
        (4, "faster", "it kept within the bound in all of 4 rounds, and the default kept within"),
        (1, "ambiguous", "the default kept within the bound in 3 of 4 rounds: there is no speedup"),
    ],
)
def test_beside_a_default_that_is_late_a_rate_is_told_and_no_ratio(
    store: Store, n_late: int, verdict: str, told: str
) -> None:
    served_rounds(store, {DEFAULT: 50.0, TUNED: 80.0}, n_late)
    found = served_claims(store)
    claim = found.claim(WinnerClass.SAME_PRECISION)
    assert (claim.verdict, claim.speedup) == (verdict, None)
    assert claim.reason.startswith(told)
    assert (claim.value is not None) is (verdict == "faster")
    assert found.against_default(TUNED) is None
    assert found.lead(TUNED, DEFAULT) is None


def test_a_default_that_is_late_when_idle_is_told_of_where_nothing_else_was_tried(
    store: Store,
) -> None:
    request = LaunchRequest(store.next_launch_id(), DEFAULT, 1, Purpose.BASELINE, slo=SLO)
    slow = msgspec.structs.replace(timed(0, 50.0), packed_calls=packed([0.2] * 30))
    slices = [with_sustained(slow, SLO)]
    ending = Ending(Outcome.MEASURED)
    store.launches[request.id] = LaunchRecord(request, slices=slices, ending=ending)
    evaluation = Evaluation(store, 1, (1,), SERVED)
    assert evaluation.default_is_late
    found = Claims(store, evaluation, dict.fromkeys(WinnerClass, DEFAULT), None)
    claim = found.claim(WinnerClass.SAME_PRECISION)
    assert (claim.configuration, claim.verdict) == (DEFAULT, "ambiguous")
    assert claim.reason == (
        "nothing but the default was tried: no time, or the options rule it out; even its single "
        "requests take longer than the latency bound"
    )


def test_the_best_candidate_with_a_setting_that_nothing_shows_is_named(store: Store) -> None:
    search(store, {DEFAULT: 1.0, TUNED: 1.5})
    echoed = ReadBack("fake.layout", "packed", None, "environment_only", "nothing shows it")
    for record in store.launches.values():
        if record.request.configuration == TUNED:
            record.prepared = Prepared(0.1, 0.1, 0.5, True, 0, 0, (echoed,))
    claim = claims(store, tuned=DEFAULT).claim(WinnerClass.SAME_PRECISION)
    assert (claim.configuration, claim.verdict) == (DEFAULT, "ambiguous")
    assert claim.reason == f"the best candidate is {TUNED.label()}, which could not be proved"


def test_one_that_is_behind_the_default_is_no_candidate(store: Store) -> None:
    search(store, {DEFAULT: 1.0, TUNED: 0.99})
    claim = claims(store, tuned=DEFAULT, why_unjustified=lambda _c, _loss: "x").claim(
        WinnerClass.SAME_PRECISION
    )
    nearest = f"the configuration nearest to the default is {TUNED.label()}"
    assert claim.reason == f"{nearest}, but x"


@pytest.mark.parametrize(
    ("n", "told"),
    [
        (1, "the one other configuration tried did not come within the noise of the default in "),
        (3, "none of the 3 other configurations tried came within the noise of the default in "),
    ],
)
def test_how_many_were_tried_and_by_what_is_told(store: Store, n: int, told: str) -> None:
    tried = {Configuration.of({"env.FAKE_THREADS": k}): 0.5 for k in range(2, n + 2)}
    search(store, {DEFAULT: 1.0, **tried})
    claim = claims(store).claim(WinnerClass.NO_CODE)
    assert (claim.verdict, claim.reason) == ("keep_default", f"{told}the search")
    latency = Evaluation(store, 4, (4,), Objective.of("latency_p90"))
    finalists = dict.fromkeys(WinnerClass, DEFAULT)
    reason = Claims(store, latency, finalists, None).claim(WinnerClass.NO_CODE).reason
    assert reason.startswith(f"{told}the search, by the mean time of a call")


def test_a_claim_tells_what_the_batch_and_what_the_settings_gain(store: Store) -> None:
    for number in range(1, 5):
        jitter = 0.002 * (number % 2)
        rates: dict[Configuration, float | None] = {
            DEFAULT: 0.0, DEFAULT_16: 0.1, TUNED: 0.3 + jitter, TUNED_16: 0.5 + jitter,
        }  # fmt: skip
        add_round(store, number, rates)
    claim = claims(store, tuned=TUNED_16).claim_of(WinnerClass.SAME_PRECISION, TUNED_16)
    assert claim.speedup is not None and claim.at_reference_batch is not None
    assert claim.speedup.point == pytest.approx(math.exp(0.4), rel=0.01)  # best against best
    assert claim.at_reference_batch.point == pytest.approx(math.exp(0.3), rel=0.01)
    assert claim.batch_gain == pytest.approx(math.exp(0.2), rel=0.01)
    assert claim.value is not None and claim.value == claim.rate
    assert claim.value.point == pytest.approx(math.exp(0.5), rel=0.01)


def test_a_claim_tells_how_much_of_its_own_rounds_was_disturbed(store: Store) -> None:
    rounds(store, gain=0.5, n=4)
    busy = Interference(dirty=("other processes used 50% of the CPU time",))
    for record in store.launches.values():
        if record.request.configuration == TUNED and record.request.round == 1:
            record.slices = [msgspec.structs.replace(s, interference=busy) for s in record.slices]
    disturb(store, 40)  # in the search
    assert claims(store).claim(WinnerClass.SAME_PRECISION).disturbed == pytest.approx(1 / 8)
