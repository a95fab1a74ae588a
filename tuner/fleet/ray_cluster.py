"""A Ray cluster: hosts that joined it with `ray start --resources '{"tune_slot": 1}'`.

Ray places and retries nothing here: each call names its host, and the driver decides what to do
about a lost host. An actor does the work, in short calls: streams do not pass through ray://
(ray-project/ray#43357).
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import time
import warnings
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from tuner.errors import TuneError, UsageError
from tuner.fleet.agent import Agent, look
from tuner.fleet.cluster import SLOT, HostFailed, HostLost, HostSilent, Node, Ticket
from tuner.interrupts import raise_asked

_ANSWER_S = 10.0
"""For somebody to listen at an address."""
_TRIES = 3
_NO_SERVER = ("Starting Ray client server failed", "psutil.ZombieProcess", "psutil.NoSuchProcess")
"""Ray's message for a client server that died as it started (ray-project/ray#63202)."""
_LOST_S = 30.0
"""After so long without its own services a cluster is given up."""
_GET_S = 60.0
"""For an answer that is there to arrive."""
_ACTOR = {"num_cpus": 0, "resources": {SLOT: 1}, "max_restarts": 0, "max_task_retries": 0}
_TASK = {"num_cpus": 0, "max_retries": 0}


class ClusterLost(TuneError):
    """The cluster itself cannot be reached any more."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(
            f"the cluster cannot be reached any more ({_last_line(error)}); what was measured is "
            "stored: the same command resumes when it is back"
        )


def _last_line(error: BaseException) -> str:
    """Return what went wrong: Ray tells it below a heading, or below the stack of a host."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:300] if lines else type(error).__name__


@contextlib.contextmanager
def _connected() -> Iterator[None]:
    """Raise ClusterLost if the cluster's own services do not answer."""
    try:
        yield
    except KeyboardInterrupt:  # Ray raises one of its own for what a signal's handler has raised
        raise_asked()
        raise
    except Exception as error:
        raise ClusterLost(error) from error


def _asked(ticket: Any) -> Ticket:
    """Return a pending answer; through ray://, errors of the call show here."""
    hash(ticket)
    return ticket  # type: ignore[no-any-return]


class RayHand:
    """An actor on one host."""

    def __init__(self, ray: Any, actor: Any) -> None:
        self._ray = ray
        self._actor = actor

    def begin(self, order: bytes) -> Ticket:
        with _connected():
            return _asked(self._actor.begin.remote(order))

    def fetch(self, acknowledged: int) -> Ticket:
        with _connected():
            return _asked(self._actor.fetch.remote(acknowledged))

    def forget(self) -> Ticket:
        with _connected():
            return _asked(self._actor.forget.remote())

    def dismiss(self) -> None:
        # its process gets SIGKILL, and the study's ends with it: see launchers/supervised.py
        with contextlib.suppress(Exception):
            self._ray.kill(self._actor)


class RayCluster:
    """A connection to a cluster. Raises UsageError if there is none at the address."""

    def __init__(self, address: str) -> None:
        handled = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            import ray
            from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
        except ModuleNotFoundError as error:
            raise UsageError(
                "--fleet needs Ray: pip install 'tune-framework[fleet]', here and on every host"
            ) from error
        named = os.environ.get("RAY_ADDRESS", "") if address == "auto" else address
        if not _is_answered(named):  # Ray itself tries for minutes
            raise UsageError(_no_cluster(named, ConnectionError("nothing listens there")))
        self._ray: Any = ray
        self._affinity: Any = NodeAffinitySchedulingStrategy
        try:
            _join(ray, address)
        except Exception as error:
            raise UsageError(_no_cluster(address, error)) from error
        finally:  # Ray's own end the process without a word of how to go on
            for number, handler in handled.items():
                signal.signal(number, handler)
        self._door = address
        if address == "auto":
            self._door = ray.get_runtime_context().gcs_address
        self._answered_s = time.monotonic()
        self._nodes: list[Node] = []
        self._look = self._ray.remote(**_TASK)(look)
        self._agent = self._ray.remote(**_ACTOR)(Agent)

    def _on(self, node: Node) -> dict[str, Any]:
        return {"scheduling_strategy": self._affinity(node.id, soft=False)}

    def now(self) -> float:
        return time.monotonic()

    def nodes(self) -> Sequence[Node]:
        if not _is_answered(self._door):
            # Ray ends this process, without a word of ours, after a minute without its services
            if time.monotonic() - self._answered_s > _LOST_S:
                raise ClusterLost(ConnectionError(f"nothing listens at {self._door}"))
            return self._nodes
        self._answered_s = time.monotonic()
        with _connected():
            listed = self._ray.nodes()
        self._nodes = [
            Node(
                each["NodeID"],
                each.get("NodeName") or each["NodeManagerAddress"],
                each["NodeManagerAddress"],
                has_slot=each["Resources"].get(SLOT, 0) >= 1,
            )
            for each in listed
            if each["Alive"]
        ]
        return self._nodes

    def look(self, node: Node, files: Sequence[str]) -> Ticket:
        with _connected():
            return _asked(self._look.options(**self._on(node)).remote(list(files)))

    def hire(self, node: Node) -> RayHand:
        with _connected():
            return RayHand(self._ray, self._agent.options(**self._on(node)).remote())

    def ready(self, tickets: Collection[Ticket], seconds: float) -> Sequence[Ticket]:
        if not tickets:
            time.sleep(seconds)
            return []
        waited = list(tickets)
        with _connected():
            ready, _ = self._ray.wait(waited, num_returns=1, timeout=seconds)
            if ready:
                ready, _ = self._ray.wait(waited, num_returns=len(waited), timeout=0)
        return list(ready)

    def answer(self, ticket: Ticket) -> bytes:
        from ray import exceptions

        try:
            found: bytes = self._ray.get(ticket, timeout=_GET_S)
        except KeyboardInterrupt:
            raise_asked()
            raise
        except (exceptions.ActorUnavailableError, exceptions.GetTimeoutError) as error:
            raise HostSilent(_last_line(error)) from error
        except exceptions.RayTaskError as error:
            raise HostFailed(_last_line(error)) from error
        except exceptions.RayError as error:
            raise HostLost(_last_line(error)) from error
        except Exception as error:
            raise ClusterLost(error) from error
        return found

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._ray.shutdown()


def _is_answered(address: str) -> bool:
    """Tell whether something listens at HOST:PORT; true for anything that is not an address."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdecimal():
        return True
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_S).close()
    except (OSError, UnicodeError):  # the latter of a name that cannot be one
        return False
    return True


def _join(ray: Any, address: str) -> None:
    """Connect to a cluster; raises whatever Ray does."""
    for attempts_left in reversed(range(_TRIES)):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what they say, the error says
                ray.init(
                    address,
                    log_to_driver=False,
                    logging_level=logging.CRITICAL,
                    namespace="tune-framework",
                )
        except (RuntimeError, ConnectionError) as error:
            # Ray's proxy forks a server for each client, which now and then does not come up
            if not attempts_left or not any(sign in str(error) for sign in _NO_SERVER):
                raise
        else:
            return


def _no_cluster(address: str, error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if lines and lines[0].startswith("Version mismatch"):
        return f"--fleet {address}: {' '.join(lines)[:300]}"
    return (
        f"--fleet {address}: no cluster answers there ({_last_line(error)}); start its first host "
        "with: ray start --head --resources '{\"tune_slot\": 1}'; the port of ray:// is that of "
        "Ray's client, 10001 unless you chose another"
    )
