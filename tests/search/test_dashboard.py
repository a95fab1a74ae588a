"""Optuna's own dashboard opens a study's storage, with its trials and what became of them."""

import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.wants import needs

pytestmark = needs("optuna_dashboard")


@pytest.fixture(scope="module")
def study(
    finished_study: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any]]:
    """A copy, as the dashboard adds tables of its own to the file."""
    folder = tmp_path_factory.mktemp("dashboard") / "out"
    shutil.copytree(finished_study, folder)
    return folder, json.loads((folder / "result.json").read_text())


@pytest.fixture(scope="module")
def address(study: tuple[Path, dict[str, Any]]) -> Iterator[str]:
    """The README's command, on a port that is free."""
    folder, _ = study
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    script = str(Path(sys.executable).with_name("optuna-dashboard"))
    arguments = [script, f"sqlite:///{folder / 'study.db'}", "--port", str(port)]
    with (
        open(folder / "dashboard.log", "wb") as log,
        subprocess.Popen(arguments, stdout=log, stderr=log) as server,
    ):
        while True:
            with socket.socket() as attempt:
                if attempt.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert server.poll() is None, (folder / "dashboard.log").read_text()
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
        server.terminate()


def got(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.loads(answer.read())


def test_it_lists_the_study(address: str) -> None:
    (found,) = got(f"{address}/api/studies")["study_summaries"]
    assert found["study_name"] == "study"
    assert found["directions"] == ["maximize"]


def test_every_trial_is_there_with_its_outcome(
    study: tuple[Path, dict[str, Any]], address: str
) -> None:
    (listed,) = got(f"{address}/api/studies")["study_summaries"]
    shown = got(f"{address}/api/studies/{listed['study_id']}")
    trials = {t["number"]: t for t in shown["trials"]}
    result = study[1]
    assert {t["number"] for t in result["trials"]} <= trials.keys()
    failed = [t["number"] for t in result["trials"] if t["outcome"] == "crashed"]
    assert failed
    for number in failed:
        assert trials[number]["state"] == "Pruned"
        assert "values" not in trials[number]
        attributes = {a["key"]: a["value"] for a in trials[number]["user_attrs"]}
        assert "crashed" in attributes["outcome"]
        assert "SIGSEGV" in attributes["reason"]


def test_the_page_itself_is_served(address: str) -> None:
    with urllib.request.urlopen(f"{address}/dashboard", timeout=30) as answer:
        assert b"Optuna Dashboard" in answer.read()
