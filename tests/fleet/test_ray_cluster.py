"""A client's own server that dies as it starts is no missing cluster."""

from typing import Any

import pytest

from tuner.fleet.ray_cluster import _join

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
