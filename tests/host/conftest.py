"""Trees of the described machines, each raised once for all tests, which only read them."""

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.host.machine import described, raise_tree


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    machines = described()

    @functools.cache
    def raised(name: str) -> Path:
        return raise_tree(tmp_path_factory.mktemp("machine"), machines[name])

    return raised
