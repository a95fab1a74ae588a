"""Studies that are replayed on noise: written by hand here, so that the truth is known."""

import math

import numpy as np
import pytest

from benchmarks.coverage import SETTING
from benchmarks.false_claims import claims_faster, share, summarise
from benchmarks.habits import one_run_each, ten_repeats
from benchmarks.replay import fake_plan, replay
from benchmarks.tape import RecordedLaunch, RecordedSlice, Recording, Tape

BUDGET_S = 600.0  # what the benchmarks give


def recording(launch_sd: float = 0.02, dirty: float = 0.0, n_rounds: int = 3) -> Recording:
    random = np.random.default_rng(0)
    rounds = []
    for number in range(n_rounds):
        drift = 0.1 * math.sin(number)
        levels = random.normal(drift, launch_sd, 6)
        rounds.append(
            tuple(
                RecordedLaunch(
                    fixed_s=4.0,
                    slice_s=0.4,
                    slices=tuple(
                        RecordedSlice(
                            at=100.0 * number + k,
                            rate=100 * math.exp(level + random.normal(0, 0.005)),
                            dirty=("others",) if random.random() < dirty else (),
                        )
                        for k in range(20)
                    ),
                )
                for level in levels
            )
        )
    return Recording("host", "2026-01-01", "model", "torch", dirty > 0, tuple(rounds))


@pytest.mark.parametrize("dirty", [0.0, 0.3])
def test_a_study_in_which_nothing_is_faster_claims_nothing(dirty: float) -> None:
    found = replay(fake_plan(), recording(launch_sd=0.003, dirty=dirty), {}, BUDGET_S, seed=1)
    assert found.n_trials > 5
    assert found.seconds < 1.2 * BUDGET_S
    assert not claims_faster(found)
    assert all(claim.truth == 1.0 for claim in found.claims.values())
    assert any(claim.point is not None for claim in found.claims.values())


def test_a_large_effect_is_found_and_held_by_the_interval() -> None:
    found = replay(fake_plan(), recording(), {SETTING: math.log(1.5)}, BUDGET_S, seed=2)
    claim = found.claims["same_precision"]
    assert claim.verdict == "faster"
    assert claim.truth == pytest.approx(1.5)
    assert claim.low is not None
    assert claim.high is not None
    assert claim.low < 1.5 < claim.high


def test_the_same_seed_is_the_same_study() -> None:
    plan, noise = fake_plan(), recording()
    assert replay(plan, noise, {}, 120.0, seed=3) == replay(plan, noise, {}, 120.0, seed=3)


def test_arms_of_a_round_are_launches_that_were_recorded_side_by_side() -> None:
    tape = Tape(recording(), 0)
    arms = [tape.side_by_side(1) for _ in range(6)]
    moments = {launch.slices[0].at for launch in arms}
    assert len(moments) == 1  # one recorded round
    assert len({id(launch) for launch in arms}) == 6
    more = tape.side_by_side(1)  # a seventh is of the next
    assert more.slices[0].at not in moments


def test_plain_habits_are_judged_on_the_same_noise() -> None:
    noise = recording(launch_sd=0.05)
    best = [one_run_each(noise, 0.0, seed) for seed in range(40)]
    assert sum(each.claims_faster for each in best) > 30
    repeats = [ten_repeats(noise, 0.0, seed) for seed in range(200)]
    assert 0 < sum(each.claims_faster for each in repeats) < 200
    assert sum(each.low <= each.truth <= each.high for each in repeats) < 100  # launches differ


def test_plain_habits_see_an_effect_that_is_larger_than_the_noise() -> None:
    noise, effect = recording(launch_sd=0.001), math.log(1.5)
    best = one_run_each(noise, effect, 1)
    assert best.truth == effect
    assert best.point == pytest.approx(effect, abs=0.3)  # drift of +-10 %, and the best of ten
    repeats = ten_repeats(noise, effect, 1)
    assert repeats.claims_faster
    assert repeats.low < repeats.point < repeats.high


def test_shares_carry_their_interval() -> None:
    found = share([True] + [False] * 19)
    assert found["share"] == pytest.approx(0.05)
    assert 0 < found["low"] < 0.05 < found["high"] < 0.3


def test_quiet_and_busy_recordings_are_told_apart_in_the_table() -> None:
    plan = fake_plan()
    noises = [recording(launch_sd=0.003), recording(launch_sd=0.003, dirty=0.2)]
    table = summarise([(noise, replay(plan, noise, {}, 120.0, 4)) for noise in noises])
    assert {name: row["best trial"]["of"] for name, row in table.items()} == {
        "all": 2,
        "quiet": 1,
        "busy": 1,
    }
    for way in ("one run each", "ten repeats", "best trial"):  # all are those of both kinds
        hits = {name: row[way]["share"] * row[way]["of"] for name, row in table.items()}
        assert hits["all"] == hits["quiet"] + hits["busy"]
