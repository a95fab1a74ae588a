"""A real Ray cluster of several nodes on this machine, each as `ray start` makes them."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import psutil

RAY = Path(sys.executable).with_name("ray")
STARTS_S = 120.0
_QUICK = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "500",
    "RAY_health_check_failure_threshold": "12",
    "RAY_health_check_initial_delay_ms": "0",
    "RAY_raylet_start_wait_time_s": "120",
    "RAY_prestart_worker_first_driver": "0",
}
"""A host that does not answer is given up after seconds instead of half a minute; one that starts
next to busy programs is waited for. No worker is started before it is needed."""


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
    return port


class Nodes:
    """The nodes of one cluster, by name."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self.port, self.client_port = free_port(), free_port()
        self._environment = environment
        self._started: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def cache_of(self, name: str) -> Path:
        """Return where a node keeps its copies of studies: each has its own disk, so to speak."""
        return self.folder / f"cache-{name}"

    def start(
        self,
        name: str,
        *,
        has_slot: bool = True,
        environment: Mapping[str, str] | None = None,
        prefix: tuple[str, ...] = (),
        address: str | None = None,
        ip: str = "127.0.0.1",
    ) -> None:
        """Start a node; the first is the head."""
        is_head = not self._started
        at = (
            ("--head", f"--port={self.port}", f"--ray-client-server-port={self.client_port}",
             "--include-dashboard=false", f"--temp-dir={self.folder / 'ray'}")
            if is_head else (f"--address={address or self.address}",)
        )  # fmt: skip
        slot = ("--resources", '{"tune_slot": 1}') if has_slot else ()
        with (self.folder / f"{name}.log").open("wb") as log:
            self._started[name] = subprocess.Popen(
                [*prefix, str(RAY), "start", *at, f"--node-ip-address={ip}",
                 f"--node-name={name}", "--num-cpus=1", "--object-store-memory=80000000",
                 "--disable-usage-stats", "--block", *slot],
                env={**os.environ, **_QUICK, **self._environment,
                     "XDG_CACHE_HOME": str(self.cache_of(name)), **(environment or {})},
                cwd=self.folder, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self._wait_for(name)

    def _wait_for(self, name: str) -> None:
        until = time.monotonic() + STARTS_S
        log = self.folder / f"{name}.log"
        while b"Ray runtime started" not in log.read_bytes():
            assert self._started[name].poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.1)

    def processes_of(self, name: str) -> list[psutil.Process]:
        process = psutil.Process(self._started[name].pid)
        return [process, *process.children(recursive=True)]

    def at_work(self, name: str, module: str = "tuner") -> list[psutil.Process]:
        """Return a node's processes whose command line has a module; of none that is ending."""
        found = []
        for process in self.processes_of(name):
            with contextlib.suppress(psutil.NoSuchProcess):
                if module in " ".join(process.cmdline()):
                    found.append(process)
        return found

    def switch_off(self, name: str) -> None:
        """Take a node's power away: everything on it ends at once."""
        found = self.processes_of(name)
        for process in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGSTOP)
        for process in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._started.pop(name).wait()

    def kill_raylet(self, name: str) -> None:
        """Kill what is Ray's own of a node, and leave the rest to itself."""
        for process in self.processes_of(name):
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.name() == "raylet":
                    process.kill()

    def stop(self) -> None:
        """Stop all nodes."""
        for name in list(self._started)[::-1]:
            process = self._started.pop(name)
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
            process.kill()
            process.wait()


@contextlib.contextmanager
def nodes(folder: Path, environment: Mapping[str, str] = MappingProxyType({})) -> Iterator[Nodes]:
    """Yield a cluster without nodes, which are stopped in the end; environment: of each of them."""
    cluster = Nodes(folder, environment)
    try:
        yield cluster
    finally:
        cluster.stop()
