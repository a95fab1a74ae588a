"""Has coverage note which test runs a line, in the processes that the test starts too.

    coverage run -m pytest -p benchmarks.contexts ...

A context is a test's id, fixtures included. What one test makes for all (a fixture of a session or
module, an import) is the first one's. The configuration of coverage must patch `subprocess`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import coverage
import pytest

_FOR_CHILDREN = "COVERAGE_PROCESS_CONFIG"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    measured = coverage.Coverage.current()
    if measured is None:
        return (yield)
    before = os.environ.get(_FOR_CHILDREN)
    measured.switch_context(item.nodeid)
    measured.set_option("run:context", item.nodeid)
    if before is not None:
        os.environ[_FOR_CHILDREN] = measured.config.serialize()
    try:
        return (yield)
    finally:
        measured.switch_context("")
        measured.set_option("run:context", None)
        if before is not None:
            os.environ[_FOR_CHILDREN] = before
