"""Tell the host of every outcome as it happens, over the second serial port."""

import json
import os
from typing import TextIO

import pytest

_INSIDE = "tests/guest/inside/"


class Teller:
    """Writes one JSON line per outcome: what was told before a crash is not lost."""

    def __init__(self, port: TextIO) -> None:
        self._port = port
        self._n_told = 0

    def _write(self, **fields: object) -> None:
        self._port.write(json.dumps(fields) + "\n")
        self._port.flush()

    def _tell(self, report: pytest.TestReport | pytest.CollectReport, seconds: float) -> None:
        self._n_told += 1
        self._write(
            test=report.nodeid.removeprefix(_INSIDE),
            word=report.outcome,
            seconds=round(seconds, 2),
            text=report.longreprtext,
        )

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if not report.passed:
            self._tell(report, 0.0)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or not report.passed:
            self._tell(report, report.duration)

    def pytest_sessionfinish(self) -> None:
        self._write(ran=self._n_told)


def pytest_sessionstart(session: pytest.Session) -> None:
    if "GUEST_RESULTS" not in os.environ:
        raise pytest.UsageError("these tests are for the guest; type: make test-numa")
    port = open(os.environ["GUEST_RESULTS"], "w")
    session.config.add_cleanup(port.close)
    session.config.pluginmanager.register(Teller(port))
