"""Which settings cost too much to ship unproven: floors, accepted costs, bounds, and batches."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.study.fake_studies import made_up_study
from tests.study.studies import carried_out, new_study
from tests.study.test_minimise import (
    BLOCKED,
    DEFAULT,
    FULL,
    MIB,
    PRICED,
    SHORTER,
    Priced,
    add,
    add_priced,
    minimised,
    only_in_shares,
    search,
    tell,
    winner_of,
)
from tuner.measurement.confirmation import FIRST_LOOK, LOOKS
from tuner.record.configuration import Configuration
from tuner.record.journal import (
    ArmsChosen,
    EarlyRound,
    Extended,
    FinalistNamed,
    Phase,
    PhaseDone,
    RoundDone,
    WarningNoted,
)
from tuner.record.launch import Purpose, Share
from tuner.record.objective import THROUGHPUT, Bound, Objective
from tuner.record.outcome import Ending, Outcome
from tuner.record.store import Store
from tuner.record.winner_class import WinnerClass
from tuner.space.knobs_of.launch import BATCH
from tuner.study.ablation import (
    awaits_rounds,
    seems_necessary,
    unjustified_costs,
    why_unjustified,
)
from tuner.study.confirm import choose_arms, confirm, make_claims
from tuner.study.minimise import minimise, why_not
from tuner.study.resource_costs import CostRule, ResourceCost, resource_costs_of
from tuner.study.settled import settled
from tuner.study.steps import ArmsWanted, Launch, Round, Step
from tuner.study.study import Study

GIB = 2**30
COMPILED = SHORTER.with_value("fake.compile", "fast")
IN_BOUND = Objective.of("throughput", [Bound("memory", 8.0 * GIB, "--max-memory 8G")])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "study") as opened:
        yield opened


def accepting(*costs: Any) -> Objective:
    return Objective.of("throughput", accepted_costs=costs)


def compiled(
    store: Store,
    folder: Path,
    memory_gib: int,
    mib: int = 423,
    objective: Objective = THROUGHPUT,
) -> Study:
    """Minimise, with no time to launch, a compiled winner that takes 28 % more memory."""
    for configuration, rate, more in (
        (DEFAULT, 1.0, 1.0),
        (BLOCKED, 1.1, 1.0),
        (COMPILED, 1.2, 543 / 423),
    ):
        tell(store, add(store, configuration, rate, memory_bytes=round(mib * more * MIB)))
    study = new_study(store, folder, 1.0, Priced, memory_gib=memory_gib, objective=objective)
    carried_out(study, minimise(study))
    return study


@pytest.mark.parametrize(
    ("memory_gib", "mib", "ships"), [(20, 423, True), (2, 423, False), (20, 4230, False)]
)
def test_a_compilers_memory_needs_a_proof_only_above_a_hundredth_of_the_hosts(
    store: Store, tmp_path: Path, memory_gib: int, mib: int, ships: bool
) -> None:
    study = compiled(store, tmp_path, memory_gib, mib)
    assert (winner_of(study) == COMPILED) is ships
    warned = [note.text for note in store.all(WarningNoted) if "not recommended" in note.text]
    assert bool(warned) is not ships


@pytest.mark.parametrize(
    ("objective", "ships"),
    [
        (accepting("memory"), True),
        (accepting("memory", "latency"), True),
        (accepting("latency"), False),
        (IN_BOUND, True),
    ],
)
def test_memory_that_the_user_accepts_or_bounds_needs_no_proof(
    store: Store, tmp_path: Path, objective: Objective, ships: bool
) -> None:
    assert (winner_of(compiled(store, tmp_path, 2, 423, objective)) == COMPILED) is ships


def test_the_refusal_names_the_figures_and_what_to_do(store: Store, tmp_path: Path) -> None:
    study = compiled(store, tmp_path, 2)
    tell(store, add(store, SHORTER, 1.1, memory_bytes=423 * MIB))
    study.evaluation.refresh()
    assert not why_not(study, COMPILED)  # its rounds may yet show it
    assert why_unjustified(study, COMPILED) == (
        "fake.compile raises memory from 423 MiB to 543 MiB (+28%), and there was no time to prove "
        "that it is needed; --accept-cost memory accepts it (a new study), and --extend has the "
        "time"
    )


@pytest.mark.parametrize(
    ("without_s", "with_s", "accepted", "is_costly"),
    [
        (0.010, 0.0115, (), True),
        (0.010, 0.0109, (), False),  # 9 %
        (0.002, 0.0029, (), False),  # 0.9 ms
        (0.002, 0.0031, (), True),
        (0.002, 0.0031, ("latency",), False),
        (0.002, 0.0031, ("memory",), True),
    ],
)
def test_latency_is_costly_above_a_tenth_and_a_millisecond(
    without_s: float, with_s: float, accepted: tuple[str, ...], is_costly: bool
) -> None:
    full, less = ResourceCost(None, math.log(with_s)), ResourceCost(None, math.log(without_s))
    found = CostRule(accepting(*accepted), 16.0 * GIB).costly(full, full.increases_over(less))
    assert bool(found) is is_costly
    assert all(increase.in_words().startswith("latency from ") for increase in found)


def test_a_cards_memory_is_held_against_the_card_and_no_bound_of_the_hosts() -> None:
    full, less = (ResourceCost(math.log(gib * GIB), None, 80 * GIB) for gib in (20, 10))
    (found,) = CostRule(IN_BOUND, 4096.0 * GIB).costly(full, full.increases_over(less))
    assert found.in_words() == "memory from 10.0 GiB to 20.0 GiB (+100%)"


def batched(store: Store, configuration: Configuration, gain: float, mib: int = 300) -> None:
    """Write a trial of a configuration at batch 16; it is the finalist of every class."""
    rate = PRICED[configuration] + gain
    tell(store, add(store, configuration.with_value(BATCH, 16), rate, memory_bytes=mib * MIB))


@pytest.mark.parametrize(("mib", "is_proven"), [(115, True), (300, False)])
def test_a_larger_batch_needs_a_proof_for_its_memory_alone(
    store: Store, tmp_path: Path, mib: int, is_proven: bool
) -> None:
    """A call takes three times as long, and nobody waits for it; 15 MiB of 2 GiB are no cost."""
    search(store, DEFAULT, SHORTER)
    batched(store, SHORTER, 0.3, mib)
    study = minimised(store, tmp_path)
    assert winner_of(study).get(BATCH) == 16
    assert (not unjustified_costs(study, winner_of(study))) is is_proven


@pytest.mark.parametrize(("gain", "is_proven"), [(0.5, True), (0.0, False)])
def test_the_default_tells_of_a_batch_that_one_launch_of_the_finalist_speaks_for(
    store: Store, tmp_path: Path, gain: float, is_proven: bool
) -> None:
    search(store, DEFAULT, SHORTER)
    batched(store, DEFAULT, gain)
    batched(store, SHORTER, 0.5)
    study = minimised(store, tmp_path)
    assert winner_of(study).get(BATCH) == 16
    assert (not unjustified_costs(study, winner_of(study))) is is_proven


@pytest.mark.parametrize(("gain", "shipped"), [(0.5, 16), (0.0, None)])
def test_the_default_tells_of_a_batch_at_which_alone_a_winner_was_measured(
    store: Store, tmp_path: Path, gain: float, shipped: int | None
) -> None:
    search(store, DEFAULT, BLOCKED)
    batched(store, DEFAULT, gain)
    batched(store, SHORTER, gain)
    assert winner_of(minimised(store, tmp_path)).get(BATCH) == shipped


def test_the_price_of_a_call_is_each_instances_own(store: Store) -> None:
    """Two instances with calls of 3 s each: the team answers more often, and later."""
    record = add(store, FULL, 1.0, memory_bytes=MIB)
    shares = (Share(2, 6.0), Share(2, 6.0))
    record.slices = [msgspec.structs.replace(record.slices[0], calls=4, seconds=6.0, shares=shares)]
    resource_cost = resource_costs_of(store.launches.values())[FULL]
    assert resource_cost.call == pytest.approx(math.log(3.0))
    assert resource_cost.memory == pytest.approx(math.log(MIB))


def test_what_the_classes_leave_proves_the_largest_gain_first(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No class's share holds a launch, and what is left holds those of one finalist alone."""
    reduced = FULL.with_value("fake.precision", "bf16")
    for configuration in (reduced, reduced.without("fake.streams")):
        monkeypatch.setitem(PRICED, configuration, 1.8)
    search(store, DEFAULT, BLOCKED, log_score=0.3)
    for configuration in (FULL, reduced):
        add_priced(store, configuration, log_score=0.3)
        tell(store, add_priced(store, configuration, log_score=0.3))
    for winner_class in (WinnerClass.SAME_PRECISION, WinnerClass.NO_CODE):
        store.add(FinalistNamed(Phase.RACE, winner_class, FULL))
    n_searched = len(store.launches)
    beyond = only_in_shares(monkeypatch, len(WinnerClass))

    def refuses(step: Step[Any]) -> bool:
        return not isinstance(step, Launch) or step.share is None or beyond(step)

    study = minimised(store, tmp_path, budget_s=3000.0, log_score=0.3, refuses=refuses)
    launched = [r.request.configuration for r in store.launches.values()][n_searched:]
    assert launched == [reduced.without("fake.streams")]
    assert study.candidates.finalists()[WinnerClass.REDUCED_PRECISION] == reduced
    assert winner_of(study) == BLOCKED


@pytest.mark.parametrize("fits", [True, False])
def test_what_no_launch_was_made_without_is_left_to_the_rounds_if_they_have_time(
    store: Store, tmp_path: Path, fits: bool
) -> None:
    """Rounds of the finalist and of what it is without its costly setting are the better proof."""
    search(store, DEFAULT, BLOCKED, log_score=0.3)
    tell(store, add_priced(store, FULL, log_score=0.3))
    for winner_class in (WinnerClass.SAME_PRECISION, WinnerClass.NO_CODE):
        store.add(FinalistNamed(Phase.RACE, winner_class, FULL))
    asked: list[ArmsWanted] = []

    def refuses(step: Step[Any]) -> bool:
        if isinstance(step, ArmsWanted):
            asked.append(step)
        return isinstance(step, Launch)

    study = minimised(
        store, tmp_path, budget_s=3000.0 if fits else 30.0, log_score=0.3, refuses=refuses
    )
    assert {c for step in asked for leaner in step.leaner.values() for c in leaner} == {
        FULL.without("fake.streams")
    }
    assert winner_of(study) == (FULL if fits else BLOCKED)


def test_accepted_costs_are_kept_in_the_studys_objective(tmp_path: Path) -> None:
    asked = ("fake@seed=2,noise=0.003", "2s", "--accept-cost", "latency,memory")
    assert made_up_study(tmp_path, *asked)["objective"]["accepted_costs"] == ["memory", "latency"]


def test_an_objective_without_accepted_costs_is_what_it_was() -> None:
    assert accepting().identity() == THROUGHPUT.identity()
    assert accepting("memory").identity() != accepting("latency").identity()


# ------------------------------------------------------------------------ rounds as the proof


def confirmed(
    store: Store, folder: Path, rates: dict[Configuration, float], shaky: float = 0.0
) -> Study:
    """Write rounds in which COMPILED is the finalist of every class that may have it.

    rates: log rates of the arms, COMPILED among them. shaky: by how much SHORTER's swing.
    """
    study = compiled(store, folder, 2)
    tell(store, add(store, SHORTER, 1.1, memory_bytes=423 * MIB))
    for winner_class in (WinnerClass.SAME_PRECISION, WinnerClass.REDUCED_PRECISION):
        store.add(FinalistNamed(Phase.MINIMISE, winner_class, COMPILED))
    others = tuple(c for c in rates if c not in (DEFAULT, COMPILED))
    store.add(ArmsChosen((COMPILED, *others), None, False, LOOKS))
    swing = {DEFAULT: 0.01, COMPILED: 0.0, SHORTER: shaky}
    for number in range(1, FIRST_LOOK + 1):
        sign = (-1) ** number
        launches = [
            add(store, c, 2 + rate + sign * swing[c], purpose=Purpose.CONFIRM).request.id
            for c, rate in ({DEFAULT: 0.0} | rates).items()
        ]
        store.add(RoundDone(number, tuple(launches)))
    study.evaluation.refresh()
    return study


def test_a_finalists_own_rounds_show_that_its_costly_setting_is_needed(
    store: Store, tmp_path: Path
) -> None:
    """Without it, the search saw a gain of 0.1; with it, the rounds see 0.4."""
    study = confirmed(store, tmp_path, {COMPILED: 0.4})
    assert list(unjustified_costs(study, COMPILED)) == ["fake.compile"]  # by the search alone
    claim = make_claims(study).claim(WinnerClass.SAME_PRECISION)
    assert (claim.verdict, claim.configuration) == ("faster", COMPILED)


def test_a_finalist_that_gains_no_more_than_without_its_costly_setting_does_not_ship(
    store: Store, tmp_path: Path
) -> None:
    """The rounds show a gain of 0.12, the search 0.2: its launch was a lucky one."""
    study = confirmed(store, tmp_path, {COMPILED: 0.12})
    claims = make_claims(study)
    claim = claims.claim(WinnerClass.SAME_PRECISION)
    assert (claim.verdict, claim.is_unjustified) == ("ambiguous", True)
    assert claim.reason.startswith("it is faster, but fake.compile raises memory from 423 MiB")
    assert COMPILED in claims.open_arms()  # further rounds may show it
    assert claim.speedup is not None
    assert claim.speedup.low > 1


def test_what_is_left_without_the_costly_setting_takes_the_finalists_place(
    store: Store, tmp_path: Path
) -> None:
    study = confirmed(store, tmp_path, {COMPILED: 0.2, SHORTER: 0.195})
    claim = make_claims(study).claim(WinnerClass.SAME_PRECISION)
    assert (claim.verdict, claim.configuration) == ("faster", SHORTER)


def test_rounds_of_both_outweigh_what_the_search_has_seen(store: Store, tmp_path: Path) -> None:
    """Two launches of the search say that it is needed."""
    study = confirmed(store, tmp_path, {COMPILED: 0.2, SHORTER: 0.195})
    add(store, COMPILED, 1.21, memory_bytes=543 * MIB)
    study.evaluation.refresh()
    assert not unjustified_costs(study, COMPILED)
    assert make_claims(study).claim(WinnerClass.SAME_PRECISION).configuration == SHORTER


def test_later_launches_of_the_search_do_not_undo_an_earlier_verdict(
    store: Store, tmp_path: Path
) -> None:
    """Launches of an extension without the costly setting are as fast."""
    study = confirmed(store, tmp_path, {COMPILED: 0.4})
    store.add(PhaseDone(Phase.CONFIRM, "decided after 4 rounds"))
    store.add(Extended(300.0))
    for _ in range(3):
        tell(store, add(store, SHORTER, 2.5, memory_bytes=423 * MIB))
    study.evaluation.refresh()
    assert list(unjustified_costs(study, COMPILED)) == ["fake.compile"]
    assert settled(study)[WinnerClass.SAME_PRECISION].configuration == COMPILED
    claim = make_claims(study).claim(WinnerClass.SAME_PRECISION)
    assert (claim.verdict, claim.configuration) == ("faster", COMPILED)


def test_a_crash_after_the_verdict_undoes_it_in_an_extension_too(
    store: Store, tmp_path: Path
) -> None:
    study = confirmed(store, tmp_path, {COMPILED: 0.4})
    store.add(PhaseDone(Phase.CONFIRM, "decided after 4 rounds"))
    add(store, COMPILED, 1.5).ending = Ending(Outcome.CRASHED, "it crashed")
    store.add(Extended(300.0))
    study.evaluation.refresh()
    assert WinnerClass.SAME_PRECISION not in settled(study)
    assert make_claims(study).claim(WinnerClass.SAME_PRECISION).verdict != "faster"


@pytest.mark.parametrize(("budget_s", "is_arm"), [(160.0, True), (110.0, False)])
def test_the_confirmation_has_the_finalist_without_its_costly_setting_as_an_arm(
    store: Store, tmp_path: Path, budget_s: float, is_arm: bool
) -> None:
    """Four rounds of three arms take 120 s and a reserve; it comes before any baseline."""
    compiled(store, tmp_path, 2)
    tell(store, add(store, SHORTER, 1.1, memory_bytes=423 * MIB))
    for winner_class in WinnerClass:
        store.add(FinalistNamed(Phase.MINIMISE, winner_class, COMPILED))
    study = new_study(store, tmp_path, budget_s, Priced, memory_gib=2)
    arms = carried_out(study, choose_arms(study)).arms
    assert arms == ((COMPILED, SHORTER) if is_arm else (COMPILED,))


def test_further_rounds_hold_what_is_left_without_the_costly_setting(
    store: Store, tmp_path: Path
) -> None:
    """The gain is decided after the first look, and the need for the setting is not."""
    study = confirmed(store, tmp_path, {COMPILED: 0.3, SHORTER: 0.15}, shaky=0.3)
    launched = []

    def refuses(step: Step[Any]) -> bool:
        if isinstance(step, Round):
            launched.append(step.arms)
        return True

    carried_out(study, confirm(study), refuses)
    (arms,) = launched
    assert {COMPILED, SHORTER} <= set(arms)


@pytest.mark.parametrize(("rate", "finalist"), [(1.4, COMPILED), (1.35, SHORTER)])
def test_what_there_was_no_time_to_tell_from_noise_is_left_to_the_rounds_if_it_may_gain_a_tenth(
    store: Store, tmp_path: Path, rate: float, finalist: Configuration
) -> None:
    """Launches of the default differ by 10 %; with the costly setting the gain is 10 or 5 % larger.

    Rounds are worth it for the first; the second is as little as what makes a setting costly.
    """
    tell(store, add(store, DEFAULT, 1.0, memory_bytes=423 * MIB))
    add(store, DEFAULT, 1.1, memory_bytes=423 * MIB)
    tell(store, add(store, SHORTER, 1.3, memory_bytes=423 * MIB))
    tell(store, add(store, COMPILED, rate, memory_bytes=543 * MIB))
    study = new_study(store, tmp_path, 1.0, Priced, memory_gib=2)
    carried_out(study, minimise(study))
    assert not seems_necessary(study, COMPILED, SHORTER)
    assert winner_of(study) == finalist
    assert awaits_rounds(study, COMPILED) is (finalist == COMPILED)


@pytest.mark.parametrize(("budget_s", "has_leaner"), [(230.0, True), (160.0, False)])
def test_the_finalist_of_another_class_comes_before_what_is_left_without_a_costly_setting(
    store: Store, tmp_path: Path, budget_s: float, has_leaner: bool
) -> None:
    """Four rounds of four arms take 160 s and a reserve."""
    compiled(store, tmp_path, 2)
    tell(store, add(store, SHORTER, 1.1, memory_bytes=423 * MIB))
    reduced = SHORTER.with_value("fake.precision", "bf16")
    tell(store, add(store, reduced, 1.6, memory_bytes=423 * MIB))
    for winner_class in WinnerClass:
        is_reduced = winner_class is WinnerClass.REDUCED_PRECISION
        finalist = reduced if is_reduced else COMPILED
        store.add(FinalistNamed(Phase.MINIMISE, winner_class, finalist))
    study = new_study(store, tmp_path, budget_s, Priced, memory_gib=2)
    arms = carried_out(study, choose_arms(study)).arms
    assert set(arms) == {COMPILED, reduced, *([SHORTER] if has_leaner else [])}


def test_an_early_verdict_is_not_undone_by_costs_that_later_launches_show(
    store: Store, tmp_path: Path
) -> None:
    """Its setting seems cheap until it is launched without, which is as fast."""
    tell(store, add(store, DEFAULT, 0.0, memory_bytes=423 * MIB))
    tell(store, add(store, COMPILED, 0.4, memory_bytes=480 * MIB))
    for number in range(1, FIRST_LOOK + 1):
        sign = (-1) ** number
        launches = [
            add(store, c, rate, purpose=Purpose.CONFIRM, memory_bytes=mib * MIB).request.id
            for c, rate, mib in ((DEFAULT, 0.01 * sign, 423), (COMPILED, 0.4, 480))
        ]
        store.add(EarlyRound(COMPILED, tuple(launches)))
    study = new_study(store, tmp_path, 100.0, Priced, memory_gib=2)
    before = make_claims(study).claim(WinnerClass.SAME_PRECISION)
    assert (before.verdict, before.configuration) == ("faster", COMPILED)
    for _ in range(3):
        tell(store, add(store, SHORTER, 0.4, memory_bytes=423 * MIB))
    study.evaluation.refresh()
    assert list(unjustified_costs(study, COMPILED)) == ["fake.compile"]
    store.add(ArmsChosen((SHORTER,), None, False, LOOKS))
    claim = make_claims(study).claim(WinnerClass.SAME_PRECISION)
    assert (claim.verdict, claim.configuration) == ("faster", COMPILED)
