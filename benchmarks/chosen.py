"""Has pytest run certain tests in a given order, and write down how each ends.

    pytest -p benchmarks.chosen --chosen FILE --log FILE FILES

In the log: `start TEST`, then `fail TEST` or `end TEST`; `fail FILE` where collecting fails. What
has started and has neither failed nor ended when pytest is gone took it along.
"""

from __future__ import annotations

from pathlib import Path

import pytest


class Chosen:
    """The plugin; tests: their ids."""

    def __init__(self, tests: list[str], log: Path) -> None:
        self._places = {test: i for i, test in enumerate(tests)}
        self._log = log

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        found = [each for each in items if each.nodeid in self._places]
        items[:] = sorted(found, key=lambda each: self._places[each.nodeid])

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._write("fail", report.nodeid)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._write("start", nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._write("fail", report.nodeid)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._write("end", nodeid)

    def _write(self, word: str, name: str) -> None:
        with self._log.open("a") as log:
            log.write(f"{word} {name}\n")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--chosen", type=Path, help="a file with the ids of tests, one a line")
    parser.addoption("--log", type=Path, help="where to write how each ends")


def pytest_configure(config: pytest.Config) -> None:
    tests = config.getoption("--chosen").read_text().splitlines()
    config.pluginmanager.register(Chosen(tests, config.getoption("--log")))
