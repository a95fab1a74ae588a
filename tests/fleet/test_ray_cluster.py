"""Joining a cluster, and one real study on it."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.command import HANGS_S, command
from tests.fleet.clusters import Drivers, marked_nodes
from tests.wants import needs
from tuner.fleet.ray_cluster import _join
from tuner.record.store import Store

DIED = (
    "Starting Ray client server failed. See ray_client_server_23000.err for detailed logs.",
    "Traceback: psutil.ZombieProcess: PID still exists but it's a zombie (pid=18546)",
)


class Proxy:
    """What joins a cluster in the end, or never."""

    def __init__(self, *faults: str) -> None:
        self._faults = list(faults)
        self.n_asked = 0

    def init(self, _address: str, **_options: Any) -> None:
        self.n_asked += 1
        if self._faults:
            raise ConnectionAbortedError(self._faults.pop(0))


@pytest.mark.parametrize("fault", DIED)
def test_it_is_asked_for_again_three_times_at_the_most(fault: str) -> None:
    proxy = Proxy(fault, fault)
    _join(proxy, "ray://127.0.0.1:10001")
    assert proxy.n_asked == 3
    with pytest.raises(ConnectionAbortedError):
        _join(Proxy(*[fault] * 3), "ray://127.0.0.1:10001")


def test_what_is_wrong_otherwise_is_said_at_once() -> None:
    proxy = Proxy("Version mismatch: The cluster was started with another")
    with pytest.raises(ConnectionAbortedError):
        _join(proxy, "ray://127.0.0.1:10001")
    assert proxy.n_asked == 1


@needs("ray")
def test_a_study_on_a_host_of_a_real_cluster_comes_back_whole(
    drivers: Drivers, tmp_path: Path
) -> None:
    """The one test of the fast tier with Ray; what ends under way is in test_ray.py."""
    with marked_nodes() as cluster:
        cluster.start("one")
        asked = command(
            "--models", "fake@seed=5,noise=0.003", "--fleet", "auto", "--hw", "fake",
            "--framework", "fake", "--budget", "5s", "--out", "out",
        )  # fmt: skip
        said, _ = drivers.begin(cluster.address, asked, tmp_path).communicate(timeout=HANGS_S)
        (row,) = json.loads((tmp_path / "out/index.json").read_text())["rows"]
        assert (row["state"], row["host"]) == ("done", "one"), said
        with Store(tmp_path / "out" / row["folder"]) as store:
            assert any(record.slices for record in store.launches.values())
        assert not list(cluster.cache_of("one").rglob("*.jsonl"))
