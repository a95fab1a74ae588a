"""Runs to a target: after how many steps it was reached, and the file that keeps them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tuner.errors import UsageError
from tuner.record.time_to_target import RUNS, StoredRun, Target, TrainingRun, add_run, read_runs

TARGET = Target("accuracy", 0.8, every=10, most_steps=100)


def run(*qualities: float) -> TrainingRun:
    evaluations = tuple((10 * i, q) for i, q in enumerate(qualities))
    return TrainingRun(TARGET, evaluations, 0.01, 0.5)


def stored(seed: int) -> StoredRun:
    return StoredRun(
        seed, "m", "torch", "cpu", 32, {"torch.autocast": "bf16"}, "", "", run(0.1, 0.9), 3.0
    )


def test_the_crossing_is_interpolated() -> None:
    assert run(0.1, 0.6, 0.9).steps_to_target() == pytest.approx(10 + 10 * 2 / 3)
    assert run(0.1, 0.8).steps_to_target() == 10
    assert run(0.85).steps_to_target() == 0
    assert run(0.1, 0.7, 0.6, 0.9).steps_to_target() == pytest.approx(20 + 10 * 2 / 3)


def test_what_was_not_reached_is_infinite() -> None:
    assert run(0.1, 0.5, 0.79).steps_to_target() == math.inf
    assert run().steps_to_target() == math.inf


def test_runs_are_read_as_they_were_added(tmp_path: Path) -> None:
    assert read_runs(tmp_path) == []
    for seed in range(3):
        add_run(tmp_path, stored(seed))
    assert read_runs(tmp_path) == [stored(0), stored(1), stored(2)]


def test_a_line_that_was_cut_off_is_left_out_and_replaced(tmp_path: Path) -> None:
    add_run(tmp_path, stored(0))
    path = tmp_path / RUNS
    path.write_bytes(path.read_bytes() + b'{"seed":1,"bat')
    assert read_runs(tmp_path) == [stored(0)]
    add_run(tmp_path, stored(2))
    assert read_runs(tmp_path) == [stored(0), stored(2)]


def test_another_damaged_line_is_refused(tmp_path: Path) -> None:
    add_run(tmp_path, stored(0))
    path = tmp_path / RUNS
    path.write_bytes(b"nonsense\n" + path.read_bytes())
    with pytest.raises(UsageError, match=f"{RUNS} is damaged"):
        read_runs(tmp_path)
