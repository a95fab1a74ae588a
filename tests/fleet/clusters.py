"""Real Ray nodes of which nothing may be left."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from benchmarks.ray_nodes import Nodes, nodes
from tests.command import MARKER, new_marker, wait_until_gone


@contextlib.contextmanager
def marked_nodes(folder: Path) -> Iterator[Nodes]:
    """Yield a cluster without nodes; fails where a process outlives them."""
    marker = new_marker()
    with nodes(folder, {MARKER: marker}) as made:
        yield made
    assert wait_until_gone(marker, 30) == []
