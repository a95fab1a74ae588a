"""What tests of fleets are given: drivers that end with them, and a database."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fleet.clusters import Drivers
from tests.fleet.databases import DRIVERS, Server, lacking, server_of
from tests.wants import lack, require


@pytest.fixture
def drivers() -> Iterator[Drivers]:
    made = Drivers()
    yield made
    made.end()


@pytest.fixture(
    scope="module",
    params=[pytest.param(system, marks=pytest.mark.slow) for system in ("postgresql", "mysql")],
)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    require(DRIVERS[request.param])
    if reason := lacking(request.param):
        lack(request.param, detail=reason)
    # a socket's path has to be short, and another user has to get at it
    with tempfile.TemporaryDirectory(prefix="db-") as folder:
        Path(folder).chmod(0o755)
        with server_of(request.param, Path(folder)) as made:
            yield made
