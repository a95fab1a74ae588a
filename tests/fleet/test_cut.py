"""Hosts in network namespaces of their own: what lies between them and the driver is really cut."""

import contextlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.ray_nodes import Nodes
from tests.fleet.clusters import Drivers, marked_nodes
from tests.fleet.test_ray import (
    HOSTS,
    MODELS,
    ended,
    fleet,
    host_at_work,
    journal,
    rows,
    runs,
    wait_for,
)
from tests.wants import lack, needs

BRIDGE = "tunebr0"
SUBNET = "10.213.77"


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


pytestmark = [pytest.mark.slow, needs("ray", "root", "iproute2")]


class Network:
    """Namespaces at one bridge, each with an address."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self.close()
        _ip("link", "add", BRIDGE, "type", "bridge")
        _ip("addr", "add", f"{SUBNET}.1/24", "dev", BRIDGE)
        _ip("link", "set", BRIDGE, "up")
        for number, name in enumerate(names, 2):
            _ip("netns", "add", f"tune-{name}")
            _ip("link", "add", f"tune-{name}", "type", "veth", "peer", "name", "eth0", "netns",
                f"tune-{name}")  # fmt: skip
            _ip("link", "set", f"tune-{name}", "master", BRIDGE, "up")
            within = ("-n", f"tune-{name}")
            _ip(*within, "addr", "add", f"{SUBNET}.{number}/24", "dev", "eth0")
            _ip(*within, "link", "set", "eth0", "up")
            _ip(*within, "link", "set", "lo", "up")

    def address(self, name: str) -> str:
        return f"{SUBNET}.{self._names.index(name) + 2}"

    def cut(self, name: str) -> None:
        _ip("link", "set", f"tune-{name}", "down")

    def mend(self, name: str) -> None:
        _ip("link", "set", f"tune-{name}", "up")

    def close(self) -> None:
        for name in self._names:
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("netns", "delete", f"tune-{name}")
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("link", "delete", f"tune-{name}")
        with contextlib.suppress(subprocess.CalledProcessError):
            _ip("link", "delete", BRIDGE)


@pytest.fixture
def network() -> Iterator[Network]:
    try:
        made = Network(HOSTS)
    except subprocess.CalledProcessError as error:
        lack("a network of one's own", detail=error.stderr.decode().strip())
    yield made
    made.close()


@pytest.fixture
def cluster(network: Network) -> Iterator[Nodes]:
    with marked_nodes() as made:
        made.start("head", has_slot=False, ip=f"{SUBNET}.1")
        for name in HOSTS:
            made.start(
                name,
                prefix=("ip", "netns", "exec", f"tune-{name}"),
                address=f"{SUBNET}.1:{made.port}",
                ip=network.address(name),
            )
        yield made


def test_a_short_cut_costs_nothing_and_a_long_one_only_time(
    network: Network, cluster: Nodes, drivers: Drivers, tmp_path: Path
) -> None:
    asked = fleet(MODELS, "--confirm-on", "0", budget="20s")
    driver = drivers.begin(f"{SUBNET}.1:{cluster.port}", asked, tmp_path)
    wait_for(driver, lambda: list((tmp_path / "out").glob("*/launches/*.jsonl")))
    name = host_at_work(cluster)
    network.cut(name)
    time.sleep(1.0)
    network.mend(name)
    wait_for(driver, lambda: list((tmp_path / "out").glob("*/launches/*3.jsonl")))
    assert host_at_work(cluster) == name
    at_work = cluster.at_work(name)
    before = journal(tmp_path).read_bytes()
    assert sessions(before) == 1
    network.cut(name)
    said = ended(driver)
    (row,) = rows(tmp_path)
    assert row["state"] == "done", said
    assert row["host"] not in ("", name)
    after = journal(tmp_path).read_bytes()
    assert after.startswith(before)
    assert sessions(after) == 2
    network.mend(name)  # the host learns that it was given up, and ends what it was doing
    until = time.monotonic() + 90
    while any(map(runs, at_work)):
        assert time.monotonic() < until
        time.sleep(0.2)
    assert journal(tmp_path).read_bytes() == after


def sessions(lines: bytes) -> int:
    return sum(b'"type":"session"' in line for line in lines.splitlines())
