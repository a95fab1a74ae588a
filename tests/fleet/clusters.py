"""Real Ray nodes of which nothing may be left."""

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.ray_nodes import Nodes, nodes
from tests.command import MARKER, new_marker, wait_until_gone

Driver = subprocess.Popen[str]


@contextlib.contextmanager
def marked_nodes() -> Iterator[Nodes]:
    """Yield a cluster without nodes; fails where a process outlives them.

    In a folder of a short name: a socket's path has 107 bytes at most, and Ray's own takes 66.
    """
    marker = new_marker()
    with tempfile.TemporaryDirectory(prefix="ray-") as folder:
        with nodes(Path(folder), {MARKER: marker}) as made:
            yield made
    assert wait_until_gone(marker, 30) == []


class Drivers:
    """The drivers that a test began; none outlives it, however it ends."""

    def __init__(self) -> None:
        self._begun: list[Driver] = []

    def begin(self, address: str, asked: Sequence[str], cwd: Path) -> Driver:
        self._begun.append(
            subprocess.Popen(
                asked, cwd=cwd, text=True, env={**os.environ, "RAY_ADDRESS": address},
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )
        )  # fmt: skip
        return self._begun[-1]

    def end(self) -> None:
        for driver in self._begun:
            driver.kill()
            driver.wait()
            if driver.stdout is not None:
                driver.stdout.close()
