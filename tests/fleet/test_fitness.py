"""Which hosts are too noisy to begin a study on."""

from pathlib import Path

import pytest

from tuner.app.request import Request
from tuner.fleet.agent import Agent
from tuner.fleet.fitness import Pace, fault_of, pace
from tuner.fleet.orders import Began, Order, Refused, Tune, decode, encode
from tuner.host.identity import probe
from tuner.launchers.neighbour import neighbour

STEADY = [100.0, 101.0, 99.0, 100.0]


@pytest.mark.parametrize(
    ("seen", "told"),
    [
        (Pace(STEADY, 0.0), ""),
        (Pace(STEADY, 0.19), ""),
        (Pace(STEADY, 0.3), "the hypervisor takes 30%"),
        (Pace([100.0, 40.0, 100.0, 40.0], 0.0), "its speed swings by 49%"),
        (Pace([0.0, 0.0, 0.0], 0.0), "it did nothing at all"),
    ],
)
def test_what_is_stolen_and_what_swings_is_said(seen: Pace, told: str) -> None:
    said = fault_of(seen, most_foreign=0.2)
    assert said.startswith(told)
    assert bool(said) is bool(told)


@pytest.mark.usefixtures("real_cpus")
def test_a_pace_is_taken_on_every_cpu() -> None:
    n_cpus = len(probe().cpus)
    seen = pace(n_cpus, seconds=0.5)
    assert sum(seen.rates) > 0
    assert 0 <= seen.steal < 1


@pytest.mark.usefixtures("real_cpus")
def test_a_host_on_which_others_work_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    order = Order("fleet", "study", Tune(Request(model="fake")), [], 0.2)
    with neighbour(len(probe().cpus), tmp_path / "log") as is_busy:
        assert is_busy
        answer = decode(Agent().begin(encode(order)), Began | Refused)
    assert isinstance(answer, Refused)
    assert "other programs use" in answer.reason
    assert not (tmp_path / "cache").exists()  # nothing of the study was brought here
