"""Searches replayed on tables, and what is said of them."""

import functools
import itertools
import json
import math
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

from benchmarks.deck import Deck
from benchmarks.guided import expected_on, is_asked
from benchmarks.rivals import RIVALS, rival_on
from benchmarks.score import (
    Run,
    Step,
    Truth,
    Window,
    expected_seconds,
    oracle_pulls,
    replay_scores,
    window,
)
from benchmarks.table import Cut, Table, Taken, write_table
from benchmarks.tabled import TabledSpace, earlier_on, start_of, study_of, study_on
from tests.benchmarks.tables import BEST, CHOICES, recorded
from tests.command import HANGS_S
from tests.wants import needs, require
from tuner.record.configuration import Configuration, Value
from tuner.record.journal import PhaseDone, WarningNoted
from tuner.search.sampler import UNGUIDED
from tuner.search.transfer import Earlier, Transfer
from tuner.study.baselines import measure_baselines
from tuner.study.explore import explore
from tuner.study.planner import Planner

ROOT = Path(__file__).parents[2]
BEST_ROW = Configuration.of(BEST)
WORST_ROW = Configuration.of({"env.OMP_NUM_THREADS": 1})


TABLE = recorded()
"""Read only: what is found on it once is taken from here."""


@functools.cache
def alone(seed: int) -> Run:
    return study_on(TABLE, Deck(TABLE, 0.0, seed), 1200.0, seed)


@functools.cache
def told() -> Earlier:
    """What an earlier study of the table tells."""
    return earlier_on(TABLE, Deck(TABLE, 0.0, 7), 1200.0, 7)


@pytest.mark.parametrize("seed", range(3))
def test_a_study_finds_the_best_of_a_table_and_tries_nothing_twice(seed: int) -> None:
    table, run = TABLE, alone(seed)
    assert run.steps[-1].row == BEST_ROW
    assert run.n_duplicates == 0
    assert run.seconds <= run.total_s <= 1.2 * 1200.0
    assert len(run.pulls) <= len(table.launches)
    assert [step.at_s for step in run.steps] == sorted(step.at_s for step in run.steps)


def test_a_study_of_a_table_that_crashes_recommends_what_works() -> None:
    table = recorded(failing="mimalloc")
    run = study_on(table, Deck(table, 0.0, 0), 1200.0, 0)
    assert run.steps[-1].row == Configuration.of({**BEST, "launch.allocator": "tcmalloc"})


def test_a_study_pays_for_what_it_launches() -> None:
    run = alone(0)
    launched = sum(run.pulls.values()) * (3.0 + 3 * 0.5)
    assert run.seconds > launched


def test_a_space_that_starts_elsewhere_is_the_same_space() -> None:
    table = recorded()
    start = ("tcmalloc", 2, "ACTIVE", "bf16")
    space = TabledSpace(table, start)
    assert space.row(Configuration()) == table.same_as[start]
    assert {space.row(c) for c in space.configurations()} == set(table.launches)
    for configuration in space.configurations():
        assert space.contains(configuration)
        assert space.of(space.row(configuration)) == configuration
        around = space.adjacent(configuration)
        assert configuration not in around
        assert all(space.contains(c) for c in around)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n == "gp" else n for n in RIVALS]
)
def test_every_rival_runs_within_its_time(name: str) -> None:
    peers = {"smac": "smac", "kt-vndx": "kernel_tuner", "kt-genetic": "kernel_tuner"}
    if name in peers:
        require(peers[name])
    table = recorded(failing="jemalloc")
    longest_s = max(launch.total_s for ls in table.launches.values() for launch in ls)
    run = rival_on(name, table, 0.0, 120.0, 3, most=20)
    assert run.steps
    assert 0 < run.seconds <= 120.0 + longest_s
    truth = Truth(table)
    assert all(truth.of[step.row] is not None for step in run.steps)
    assert truth.regret(run) < 0.4


def test_random_search_launches_nothing_twice_and_the_grid_does() -> None:
    table = recorded()
    randomly = rival_on("random", table, 0.0, 1e6, 0)
    assert (randomly.n_launches, randomly.n_duplicates) == (len(table.launches), 0)
    grid = rival_on("grid", table, 0.0, 1e6, 0)
    n_combinations = math.prod(len(values) for values in CHOICES.values())
    assert grid.n_launches == n_combinations
    assert grid.n_duplicates == n_combinations - len(table.launches)


def test_five_repeats_pay_five_times() -> None:
    table = recorded()
    run = rival_on("five-repeats", table, 0.0, 1e6, 0)
    assert run.n_launches == 5 * len(table.launches)
    assert run.n_duplicates == 0
    assert run.steps[-1].row == BEST_ROW


# ---------------------------------------------------------------- the figures, worked out by hand


def test_the_score_is_one_for_the_best_at_once_and_zero_for_what_random_does() -> None:
    truth = Truth(recorded(sd=0.0))
    times = tuple(float(t) for t in range(10))
    half_way = (truth.median + truth.best) / 2
    seen = Window(times, (half_way,) * 10, 0.5, 5.0)
    at_once = Run((Step(0.0, BEST_ROW),), 10.0, 1)
    half = Run((Step(4.5, BEST_ROW),), 10.0, 1)
    nothing = Run((), 10.0, 0)
    scores = replay_scores(truth, [at_once, half, nothing], seen)
    assert scores[0] == pytest.approx(1.0)
    assert scores[2] == pytest.approx(-1.0)  # the median is as far below as the best is above
    assert scores[1] == pytest.approx(0.0)  # half of the time there, half of it at the median


def test_seconds_count_until_the_recommendation_stays_good() -> None:
    truth = Truth(recorded(sd=0.0))
    wavering = Run((Step(1.0, BEST_ROW), Step(2.0, WORST_ROW), Step(7.0, BEST_ROW)), 10.0, 3)
    never = Run((Step(1.0, WORST_ROW),), 15.0, 1, total_s=20.0)
    assert truth.settles_s(wavering, 0.05) == 7.0
    assert truth.settles_s(never, 0.05) is None
    assert expected_seconds(truth, [wavering], 0.05) == 7.0
    assert expected_seconds(truth, [wavering, never], 0.05) == 27.0
    assert expected_seconds(truth, [never], 0.05) == math.inf
    assert truth.regret(wavering) == 0.0


def test_the_window_lies_where_random_search_is_on_its_way() -> None:
    table = recorded()
    truth = Truth(table)
    runs = [rival_on("random", table, 0.0, 1e6, seed) for seed in range(100)]
    seen = window(truth, runs)
    way = truth.best - truth.median
    assert seen.random[0] == pytest.approx(truth.median + 0.5 * way, abs=0.05 * way)
    assert seen.random[-1] == pytest.approx(truth.median + 0.95 * way, abs=0.05 * way)
    assert 1 < seen.n_evaluations < 10
    assert seen.times[0] < seen.times[-1] < max(run.seconds for run in runs)
    assert np.all(np.diff(seen.times) > 0)


def test_an_oracle_needs_one_launch_each_where_all_is_clear_and_more_where_it_is_close() -> None:
    assert oracle_pulls([0.0, -0.5, -0.6], [0.01] * 3) == pytest.approx(3.0)
    # two arms, equal: each n with slack = 1.64 sqrt(2 s^2 / n), by symmetry the cheapest
    sd, slack = 0.05, 0.02
    n = 2 * (1.64 * sd / slack) ** 2
    assert oracle_pulls([0.0, 0.0], [sd] * 2, slack) == pytest.approx(2 * n, rel=0.01)


@pytest.mark.slow
def test_one_command_compares_them(tmp_path: Path) -> None:
    write_table(tmp_path / "written.json.gz", recorded())
    ran = subprocess.run(
        [sys.executable, "benchmarks/search.py", "--tables", tmp_path / "written.json.gz",
         "--seeds", "3", "--only", "tune-framework,random,tpe", "--json", tmp_path / "out.json"],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    found = {f["search"]: f for f in json.loads((tmp_path / "out.json").read_text())["figures"]}
    assert set(found) == {"tune-framework", "random", "tpe"}
    own = found["tune-framework"]
    assert own["duplicates"] == 0
    assert own["oracle"] >= 1.0
    assert own["regret_worst"] < 0.02
    assert own["score_interval"][0] <= own["score"] <= own["score_interval"][1]
    for name in found:
        assert name in ran.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--tables", "nowhere.json"], "there is no such file"),
        (["--tables", "x", "--only", "nobody"], "--only nobody"),
    ],
)
def test_bad_input_of_the_command_is_said(arguments: list[str], said: str) -> None:
    ran = subprocess.run(
        [sys.executable, "benchmarks/search.py", *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=HANGS_S, check=False,
    )  # fmt: skip
    assert ran.returncode == 2
    assert said in ran.stderr
    assert "Traceback" not in ran.stderr


def test_what_is_left_of_a_small_space_is_measured_though_little_is_expected() -> None:
    table = recorded()
    small = dict(itertools.islice(table.same_as.items(), 12))
    rows = set(small.values())
    assert table.recording is not None
    few = Table(
        table.name,
        {
            knob: tuple(dict.fromkeys(values))
            for knob, values in zip(table.knobs, zip(*small, strict=True), strict=True)
        },
        small,
        {c: launches for c, launches in table.launches.items() if c in rows},
        msgspec.structs.replace(table.recording, baselines={}),
    )
    run = study_on(few, Deck(few, 0.0, 0), 1200.0, 0)
    assert set(run.pulls) == rows
    assert run.why.startswith("reduced_precision: exhausted")


def test_a_study_that_learns_from_another_of_the_same_space_finds_the_best_at_once() -> None:
    earlier = told()
    assert earlier.log_ratios[Configuration()] == 0.0
    run = study_on(TABLE, Deck(TABLE, 0.0, 1), 1200.0, 1, [earlier])

    def found_at_s(run: Run) -> float:
        return next(step.at_s for step in run.steps if step.row == BEST_ROW)

    assert found_at_s(run) < found_at_s(alone(1))


@needs("torch")
@pytest.mark.slow
def test_rules_of_other_families_say_what_they_expect_on_a_table(tmp_path: Path) -> None:
    table = recorded()
    assert table.recording is not None
    table.recording.model, table.recording.framework = "ncf", "torch"
    recordings = ROOT / "reports" / "studies"
    (expected,) = expected_on(table, recordings, 1)
    space = TabledSpace(table, start_of(table, 0))
    told = Transfer(space, [expected])
    assert told.n_configurations > 1
    # other families alone: without them there is nothing to say
    own = tmp_path / "studies"
    own.mkdir()
    for path in recordings.glob("*.json"):
        if json.loads(path.read_text())["family"] == "recommendation":
            (own / path.name).write_bytes(path.read_bytes())
    assert expected_on(table, own, 1) == []
    assert is_asked(table)
    table.recording.objective = "p99"
    assert not is_asked(table)


def test_settings_that_this_table_does_not_have_say_nothing() -> None:
    table, found = TABLE, told()
    best = max(found.log_ratios, key=lambda c: found.log_ratios[c])
    elsewhere = Configuration.of({**best.as_dict(), "launch.cores_per_instance": 1})
    other = Earlier("other", {Configuration(): 0.0, elsewhere: 1.0})
    run = study_on(table, Deck(table, 0.0, 1), 1200.0, 1, [other])
    assert run.steps == alone(1).steps


@needs("kernel_tuner")
def test_kernel_tuner_takes_settings_of_numbers_and_text() -> None:
    choices: dict[str, tuple[Value, ...]] = {
        "launch.cores_per_instance": ("share", 1, 2), "launch.instances": (1, 2, 4, 8),
    }  # fmt: skip
    rows = {
        values: Configuration.of(dict(zip(choices, values, strict=True)))
        for values in itertools.product(*choices.values())
    }
    launches = {  # equally fast are those that differ in the cores alone
        c: [Taken(0, 0.0, 1.0, (Cut(0.0, 100.0 + int(v[1])),), 0.1)] for v, c in rows.items()
    }
    table = Table("mixed", choices, rows, launches)
    for seed in range(5):
        run = rival_on("kt-vndx", table, 0.0, 1000.0, seed)
        assert run.steps[-1].row.get("launch.instances") == 8


def test_a_baseline_is_not_launched_at_a_batch_at_which_the_default_fails() -> None:
    one = Taken(0, 0.0, 3.0, (Cut(3.0, 100.0), Cut(4.0, 100.0), Cut(5.0, 100.0)), 0.5, 0.2)
    too_large = Taken(0, 0.0, 3.0, outcome="out_of_memory", reason="64 items")
    choices: dict[str, tuple[Value, ...]] = {
        "launch.allocator": ("glibc", "tcmalloc"), "workload.batch": (4, 8, 64),
    }  # fmt: skip
    rows = {
        values: Configuration.of(
            {k: v for (k, c), v in zip(choices.items(), values, strict=True) if v != c[0]}
        )
        for values in itertools.product(*choices.values())
    }
    launches = {c: [too_large if 64 in v else one] for v, c in rows.items()}
    table = Table("batches", choices, rows, launches, recorded().recording)
    with study_of(table, Deck(table, 0.0, 0), 1200.0, 0) as study:
        Planner(study).run([measure_baselines])
        tried = [trial.configuration for trial in study.evaluation.trials()]
        warnings = [note.text for note in study.store.all(WarningNoted)]
    assert warnings == ["the default fails at batch 64: no baseline was measured there"]
    assert set(tried) == {c for v, c in rows.items() if v != ("tcmalloc", 64)}


def test_the_surrogates_word_alone_settles_nothing() -> None:
    choices: dict[str, tuple[Value, ...]] = {f"env.K{k}": (0, 1, 2) for k in range(6)}
    rows = {
        values: Configuration.of(dict(zip(choices, values, strict=True)))
        for values in itertools.product(*choices.values())
    }
    launches = {
        c: [Taken(0, 0.0, 1.0, (Cut(0.0, math.exp(sum(map(float, v)) / 10)),), 0.1)]
        for v, c in rows.items()
    }
    table = Table("easy", choices, rows, launches)
    with study_of(table, Deck(table, 0.0, 0), 100_000.0, 0) as study:
        Planner(study).run([measure_baselines, explore])
        why = study.store.all(PhaseDone)[-1].reason
        sources = [trial.source for trial in study.evaluation.trials()]
    assert "settled" in why
    assert len(sources) < len(rows) / 2
    assert 1 / 3 <= sum(source in UNGUIDED for source in sources) / len(sources) < 1 / 2


def test_a_study_that_was_told_nonsense_finds_the_best_all_the_same() -> None:
    table, found = TABLE, told()
    nonsense = Earlier("nonsense", {c: -ratio for c, ratio in found.log_ratios.items()})
    run = study_on(table, Deck(table, 0.0, 1), 1200.0, 1, [nonsense])
    assert run.steps[-1].row == BEST_ROW
