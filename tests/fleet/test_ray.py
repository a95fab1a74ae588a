"""Fleets on a real Ray cluster of several nodes, with the fake framework.

Hosts vanish, drivers die, the same command resumes.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks.ray_nodes import Nodes
from tests.command import HANGS_S, command
from tests.fleet.clusters import Driver, Drivers, marked_nodes
from tests.wants import needs
from tuner.record.integrity import JOURNAL

pytestmark = [pytest.mark.slow, needs("ray")]
NARROW = ("--batch", "4", "--exclude", "fake.compile", "--exclude", "fake.precision", "--exclude",
          "launch.allocator", "--exclude", "env.FAKE_THREADS")  # fmt: skip
"""A study of so few settings ends long before its budget does."""
MODELS = "fake@seed=2,noise=0.003"
HOSTS = ("one", "two")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Nodes]:
    """A head that declares no slot, two hosts, and one that says it has another numpy."""
    with marked_nodes() as made:
        made.start("head", has_slot=False)
        made.start("one")
        made.start("two")
        made.start("odd", environment=another_numpy(made.folder))
        yield made


def another_numpy(folder: Path) -> dict[str, str]:
    """Return an environment in which another version of it seems to be installed."""
    other = folder / "site/numpy-9.9.9.dist-info"
    other.mkdir(parents=True, exist_ok=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 9.9.9\n")
    return {"PYTHONPATH": f"{other.parent}:{os.environ.get('PYTHONPATH', '')}"}


def fleet(models: str, *more: str, budget: str = "12s") -> list[str]:
    return command("--models", models, "--fleet", "auto", "--hw", "fake", "--framework", "fake",
                   "--budget", budget, "--out", "out", *more)  # fmt: skip


def ended(process: Driver) -> str:
    said, _ = process.communicate(timeout=HANGS_S)
    return said


def rows(cwd: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((cwd / "out/index.json").read_text())["rows"]
    return found


def wait_for(process: Driver, is_so: Any) -> None:
    until = time.monotonic() + 120
    while not is_so():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < until
        time.sleep(0.05)


def journal(cwd: Path) -> Path:
    (found,) = (cwd / "out").glob(f"*/{JOURNAL}")
    return found


def n_sessions(lines: bytes) -> int:
    """Return how many sessions a journal holds."""
    return sum(b'"type":"session"' in line for line in lines.splitlines())


def host_at_work(cluster: Nodes) -> str:
    """Return the node on which a study runs."""
    for name in HOSTS:
        if cluster.at_work(name, "tuner.fleet.run_study"):
            return name
    raise AssertionError("nobody is at work")


def runs(process: psutil.Process) -> bool:
    """Tell whether a process runs; one that nobody has asked about its end does not."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def nobody_is_at_work(cluster: Nodes) -> None:
    """Wait until no host measures anything."""
    until = time.monotonic() + 60
    while any(cluster.at_work(name, "tuner.fleet.run_study") for name in HOSTS):
        assert time.monotonic() < until
        time.sleep(0.1)


def test_models_are_tuned_and_confirmed_and_nothing_stays_on_the_hosts(
    cluster: Nodes, tmp_path: Path
) -> None:
    address = f"ray://127.0.0.1:{cluster.client_port}"
    models = f"{MODELS},fake@seed=5,noise=0.003"
    asked = command("--models", models, "--fleet", address, "--hw", "fake", "--framework", "fake",
                    "--budget", "60s", *NARROW, "--out", "out", "--json")  # fmt: skip
    done = subprocess.run(
        asked, cwd=tmp_path, capture_output=True, text=True, timeout=HANGS_S, check=False
    )
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    faults = {event["host"]: event["fault"] for event in events if event["type"] == "host"}
    assert "it does not declare tune_slot" in faults["head"]
    assert "other versions than the driver: numpy 9.9.9 instead of" in faults["odd"]
    found = rows(tmp_path)
    assert [row["state"] for row in found] == ["done", "done"]
    for row in found:
        study = tmp_path / "out" / row["folder"]
        assert (study / "report.html").is_file()
        assert (study / "study.db").is_file()
        assert row["verdict"] == "faster"
        (other,) = row["elsewhere"]
        assert other["verdict"] == "confirmed"
        assert {row["host"], other["host"]} == {"one", "two"}
    for name in HOSTS:
        assert not list(cluster.cache_of(name).rglob("*.jsonl"))
    page = (tmp_path / "out/index.md").read_text()
    assert "Hosts that took no part" in page
    assert "odd: it has other versions" in page
    again = subprocess.run(
        asked, cwd=tmp_path, capture_output=True, text=True, timeout=HANGS_S, check=False
    )
    assert again.returncode == 0, again.stderr
    assert '"type":"placed"' not in again.stdout  # all of it is done


def test_where_ray_dies_on_a_host_its_study_ends_there_and_goes_on_elsewhere(
    cluster: Nodes, drivers: Drivers, tmp_path: Path
) -> None:
    driver = drivers.begin(cluster.address, fleet(MODELS, "--confirm-on", "0"), tmp_path)
    wait_for(driver, lambda: list((tmp_path / "out").glob("*/launches/*.jsonl")))
    name = host_at_work(cluster)
    at_work = cluster.at_work(name)
    assert at_work
    before = journal(tmp_path).read_bytes()
    cluster.kill_raylet(name)
    until = time.monotonic() + 60
    while any(map(runs, at_work)):
        assert time.monotonic() < until
        time.sleep(0.1)
    said = ended(driver)
    (row,) = rows(tmp_path)
    assert row["state"] == "done", said
    assert row["host"] not in ("", name)
    after = journal(tmp_path).read_bytes()
    assert after.startswith(before)  # nothing that was measured is lost
    assert n_sessions(after) == 2
    cluster.switch_off(name)
    cluster.start(name)


def test_a_driver_that_was_stopped_or_killed_goes_on_by_the_same_command(
    cluster: Nodes, drivers: Drivers, tmp_path: Path
) -> None:
    # Long enough that a slow machine does not finish the study before the kill is noticed.
    asked = fleet(MODELS, "--confirm-on", "0", budget="20s")
    driver = drivers.begin(cluster.address, asked, tmp_path)
    wait_for(driver, lambda: list((tmp_path / "out").glob("*/launches/*.jsonl")))
    driver.send_signal(signal.SIGINT)
    said = ended(driver)
    assert driver.returncode == 130
    assert "the same command resumes" in said
    nobody_is_at_work(cluster)
    before = journal(tmp_path).read_bytes()
    driver = drivers.begin(cluster.address, asked, tmp_path)
    wait_for(driver, lambda: n_sessions(journal(tmp_path).read_bytes()) == 2)
    driver.kill()
    driver.communicate()
    nobody_is_at_work(cluster)
    before = journal(tmp_path).read_bytes()
    cluster.start("late", environment=another_numpy(cluster.folder))
    said = ended(drivers.begin(cluster.address, asked, tmp_path))
    cluster.switch_off("late")
    (row,) = rows(tmp_path)
    assert row["state"] == "done", said
    assert "late: it has other versions" in (tmp_path / "out/index.md").read_text()
    after = journal(tmp_path).read_bytes()
    assert after.startswith(before)  # nothing that was measured is lost
    assert n_sessions(after) == 3
    nobody_is_at_work(cluster)


def test_two_drivers_share_the_work_and_one_goes_on_with_what_the_other_leaves(
    cluster: Nodes, drivers: Drivers, tmp_path: Path
) -> None:
    models = ",".join(f"fake@seed={seed},noise=0.003" for seed in range(3))
    asked = fleet(models, "--confirm-on", "0", *NARROW)
    both = [drivers.begin(cluster.address, asked, tmp_path) for _ in range(2)]
    wait_for(both[0], lambda: len(list((tmp_path / "out").glob(f"*/{JOURNAL}"))) == 2)
    killed = next(each for each in both if has_placed(each, tmp_path))
    before = {path: path.read_bytes() for path in (tmp_path / "out").glob(f"*/{JOURNAL}")}
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    (other,) = [each for each in both if each is not killed]
    said = ended(other)
    assert [row["state"] for row in rows(tmp_path)] == ["done"] * 3, said
    assert all(path.read_bytes().startswith(lines) for path, lines in before.items())
    notes = (tmp_path / "out/fleet.jsonl").read_text().splitlines()
    ends = [json.loads(line)["row"]["folder"] for line in notes if '"state":"done"' in line]
    assert len(ends) == len(set(ends)) == 3  # none was done twice
    nobody_is_at_work(cluster)
    again = ended(drivers.begin(cluster.address, asked, tmp_path))
    assert " on one" not in again
    assert " on two" not in again


def has_placed(driver: Driver, cwd: Path) -> bool:
    """Tell whether a driver holds the lock of any study."""
    claims = {str(path) for path in (cwd / "out/.claims").iterdir()}
    return bool(claims & {file.path for file in psutil.Process(driver.pid).open_files()})
