"""Tables: written and read again, in the format of Kernel Tuner, and its own files."""

import gzip
import json
import math
from pathlib import Path

import pytest

from benchmarks.deck import Deck, truth_of
from benchmarks.table import FAILED, read_table, write_table
from benchmarks.tails import Tails
from tests.benchmarks.tables import BEST, CHOICES, level, recorded
from tests.wants import needs
from tuner.record.configuration import Configuration

FOREIGN = {
    "device_name": "a card",
    "kernel_name": "a kernel",
    "tune_params_keys": ["block", "unroll"],
    "tune_params": {"block": [32, 64], "unroll": [0, 1]},
    "cache": {
        f"{block},{unroll}": {
            "block": block,
            "unroll": unroll,
            "time": time,
            "compile_time": 2000.0,
            "verification_time": 0,
            "benchmark_time": 600.0,
        }
        for (block, unroll), time in {
            (32, 0): 4.0,
            (32, 1): 2.0,
            (64, 1): "RuntimeFailedConfig",
        }.items()
    },
}


def test_what_was_recorded_is_read_as_it_was_written(tmp_path: Path) -> None:
    table = recorded(failing="jemalloc")
    write_table(tmp_path / "t.json.gz", table)
    again = read_table(tmp_path / "t.json.gz")
    assert again.launches == table.launches
    assert again.same_as == table.same_as
    assert again.recording == table.recording
    write_table(tmp_path / "u.json.gz", again)
    assert (tmp_path / "u.json.gz").read_bytes() == (tmp_path / "t.json.gz").read_bytes()


def test_every_combination_is_there_as_kernel_tuner_wants_it(tmp_path: Path) -> None:
    write_table(tmp_path / "t.json.gz", recorded(failing="jemalloc"))
    data = json.loads(gzip.decompress((tmp_path / "t.json.gz").read_bytes()))
    keys = data["tune_params_keys"]
    assert len(data["cache"]) == math.prod(len(values) for values in data["tune_params"].values())
    for key, entry in data["cache"].items():
        assert key == ",".join(str(entry[k]) for k in keys)
        assert entry["compile_time"] > 0
        is_failing = entry["launch.allocator"] == "jemalloc"
        assert (entry["time"] == FAILED) is is_failing
        assert len(entry["times"]) == (0 if is_failing else 4)
    dead = data["cache"]["glibc,1,ACTIVE,fp32"]
    assert dead["same_as"] == "glibc,1,unset,fp32"
    fastest = min(
        (e for e in data["cache"].values() if e["time"] != FAILED), key=lambda e: e["time"]
    )
    assert fastest["time"] == pytest.approx(1000 * math.exp(-level(BEST)), rel=0.01)


@needs("kernel_tuner")
def test_kernel_tuner_simulates_on_it(tmp_path: Path) -> None:
    import kernel_tuner

    table = recorded()
    write_table(tmp_path / "t.json.gz", table)
    plain = tmp_path / "t.json"
    plain.write_bytes(gzip.decompress((tmp_path / "t.json.gz").read_bytes()))
    results, _ = kernel_tuner.tune_kernel(
        "written", "", "4", [], {k: list(v) for k, v in CHOICES.items()}, cache=str(plain),
        simulation_mode=True, strategy="brute_force", lang="C", quiet=True,
        block_size_names=["env.OMP_NUM_THREADS"],
    )  # fmt: skip
    best = min(results, key=lambda r: r["time"])
    assert {k: best[k] for k in BEST} == BEST


@pytest.mark.parametrize("packed", [False, True])
def test_kernel_tuners_own_files_are_read(tmp_path: Path, packed: bool) -> None:
    raw = json.dumps(FOREIGN).encode()
    path = tmp_path / ("a.json.gz" if packed else "a.json")
    path.write_bytes(gzip.compress(raw) if packed else raw)
    table = read_table(path)
    assert table.name == "a"
    assert table.choices == {"env.block": (32, 64), "env.unroll": (0, 1)}
    assert len(table.launches) == 3
    good = Configuration.of({"env.block": 32, "env.unroll": 1})
    bad = Configuration.of({"env.block": 64, "env.unroll": 1})
    (launch,) = table.launches[good]
    assert launch.total_s == pytest.approx(2.6)
    assert launch.level == pytest.approx(math.log(1000 / 2.0))
    assert table.truth()[bad] is None
    assert table.launches[bad][0].outcome == "crashed"


def test_launches_are_dealt_at_random_and_each_comes_again() -> None:
    table = recorded()
    deck = Deck(table, 0.0, 1)
    dealt = [deck.deal(Configuration()).taken for _ in range(60)]
    assert {d.at_s for d in dealt} == {t.at_s for t in table.launches[Configuration()]}
    assert dealt[0] in dealt[1:]
    again = Deck(table, 0.0, 1)
    assert [again.deal(Configuration()).taken for _ in range(60)] == dealt


def test_noise_is_added_where_it_is_asked_for() -> None:
    table = recorded(sd=0.0)
    quiet = Deck(table, 0.0, 1)
    loud = Deck(table, 0.05, 1)
    assert len({round(quiet.deal(Configuration()).log_rate, 9) for _ in range(4)}) == 1
    rates = [loud.deal(Configuration()).log_rate for _ in range(200)]
    mean = sum(rates) / len(rates)
    assert mean == pytest.approx(level({}), abs=0.02)
    sd = math.sqrt(sum((r - mean) ** 2 for r in rates) / len(rates))
    assert sd == pytest.approx(0.05, rel=0.2)


def test_with_heavy_tails_some_launches_are_slower_by_no_less_than_their_factor() -> None:
    table = recorded(sd=0.0)
    deck = Deck(table, 0.0, 1, Tails(0.1))
    rates = [deck.deal(Configuration()).log_rate for _ in range(1000)]
    slow = [level({}) - rate for rate in rates if rate < level({}) - 0.1]
    assert len(slow) == pytest.approx(100, rel=0.3)
    assert math.log(1.3) - 0.01 < min(slow)
    assert max(slow) < math.log(2.0) + 0.01


def test_the_machines_drift_is_no_part_of_the_truth() -> None:
    drifting = recorded(sd=0.002, drift=0.1)
    plain, corrected = drifting.truth(), truth_of(drifting)
    off = [abs(t - level(c.as_dict())) for c, t in corrected.items() if t is not None]
    plain_off = [abs(t - level(c.as_dict())) for c, t in plain.items() if t is not None]
    assert max(off) < 0.02
    assert max(plain_off) > 2 * max(off)


def test_beside_a_dealt_launch_the_pacer_is_that_of_its_own_moment() -> None:
    deck = Deck(recorded(sd=0.001, drift=0.1), 0.0, 1)
    for configuration in list(deck.table.launches)[:10]:
        dealt = deck.deal(configuration)
        swing = dealt.taken.level - level(configuration.as_dict())
        dealt.slice()
        assert dealt.pacer() == pytest.approx(swing, abs=0.02)
