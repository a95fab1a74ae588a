"""Several models: which are meant, one budget, one index, and going on with what is left."""

import json
import signal
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.command import HANGS_S, run, start
from tests.space.spaces import machine
from tuner.errors import UsageError
from tuner.galleries import MODELS
from tuner.measurement.describe import find_model, gallery_cards
from tuner.plan import check_memory
from tuner.record.index import Index, Row, read_index, write_index_file
from tuner.several import select, shares

SPACE = ("--hw", "fake", "--framework", "fake")
QUICK, OTHER = "fake@noise=0.003,seed=2", "fake@noise=0.003,seed=5"


def several(tmp_path: Path, models: str, *others: str, budget: str = "16s") -> Any:
    given = ("--models", models, *SPACE, "--budget", budget, "--out", "all", *others)
    return run(*given, cwd=tmp_path, is_virtual=True)


def rows(tmp_path: Path) -> dict[str, Row]:
    return {row.model: row for row in read_index(tmp_path / "all").rows}


def test_models_are_selected_by_name_family_and_task() -> None:
    cards = gallery_cards(MODELS)
    assert select("resnet50,bert-large", cards) == ["resnet50", "bert-large"]
    assert select("dlrm-rmc1@row_scale=0.5,skew=1.1,ncf", cards) == [
        "dlrm-rmc1@row_scale=0.5,skew=1.1", "ncf",
    ]  # fmt: skip
    assert {"resnet50", "squeezenet"} <= set(select("family=cnn", cards))
    assert select("task=translation,gnmt", cards) == ["gnmt", "transformer"]
    everything = select("all", cards)
    assert "fake" not in everything
    assert len(everything) == len(cards) - 1
    with pytest.raises(UsageError, match="no model has that family; there are cnn"):
        select("family=nosuch", cards)
    with pytest.raises(UsageError, match="names no model"):
        select(" , ", cards)


def test_a_large_model_gets_more_of_the_budget_and_a_small_one_is_not_forgotten() -> None:
    assert shares([5.0, 5.0]) == [0.5, 0.5]
    small, large = shares([1.0, 100.0])
    assert 0 < small < large
    assert large / small == pytest.approx(4, rel=0.02)


def test_two_models_leave_one_index_and_are_not_measured_twice(tmp_path: Path) -> None:
    done = several(tmp_path, f"{QUICK},{OTHER}")
    assert done.returncode == 0, done.stderr
    assert "all of them: all/index.html" in done.stdout
    found = rows(tmp_path)
    assert [row.state for row in found.values()] == ["done", "done"]
    assert all(row.host and row.seconds > 0 for row in found.values())
    results = {
        model: json.loads((tmp_path / "all" / row.folder / "result.json").read_text())
        for model, row in found.items()
    }
    for name in ("index.md", "index.html"):
        text = (tmp_path / "all" / name).read_text()
        for row in found.values():
            assert f"{row.folder.replace('@', '%40')}/report" in text
            assert results[row.model]["best_baseline"] or "-" in text
    for row in found.values():  # what the links name is there
        assert (tmp_path / "all" / row.folder / "report.html").exists()
    again = several(tmp_path, f"{QUICK},{OTHER}")
    assert again.returncode == 0, again.stderr
    assert "looking at" not in again.stdout
    for model, row in rows(tmp_path).items():
        made = json.loads((tmp_path / "all" / row.folder / "result.json").read_text())
        assert made == results[model]


def test_what_was_stopped_goes_on_by_the_same_command(tmp_path: Path) -> None:
    marker = "several-stopped"
    given = ("--models", f"{QUICK},{OTHER}", *SPACE, "--budget", "24s", "--out", "all")
    log = tmp_path / "log"
    process = start(*given, cwd=tmp_path, marker=marker, log=log)
    began = time.monotonic()
    while not (tmp_path / "all" / "index.json").exists() or not any(
        row.state == "done" for row in read_index(tmp_path / "all").rows
    ):
        assert process.poll() is None, log.read_text()
        assert time.monotonic() - began < HANGS_S
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=HANGS_S) == 130, log.read_text()
    stopped = rows(tmp_path)
    assert [row.state for row in stopped.values()] == ["done", "pending"]
    kept = (tmp_path / "all" / stopped[QUICK].folder / "result.json").read_bytes()
    done = run(*given, cwd=tmp_path, is_virtual=True)
    assert done.returncode == 0, done.stderr
    finished = rows(tmp_path)
    assert [row.state for row in finished.values()] == ["done", "done"]
    assert finished[OTHER].folder == stopped[OTHER].folder
    assert (tmp_path / "all" / finished[QUICK].folder / "result.json").read_bytes() == kept


def test_a_model_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    broken = "fake@faults=fake.layout=plain:crash"
    done = several(tmp_path, f"{broken},{QUICK}")
    assert done.returncode == 1
    assert broken in done.stderr
    assert "Traceback" not in done.stderr
    found = rows(tmp_path)
    assert found[broken].state == "failed"
    assert found[broken].reason
    assert found[QUICK].state == "done"
    assert found[broken].reason.split(";")[0] in (tmp_path / "all" / "index.md").read_text()


def test_on_another_host_what_is_finished_stays_and_the_rest_begins_anew(tmp_path: Path) -> None:
    done = several(tmp_path, QUICK)
    assert done.returncode == 0, done.stderr
    (row,) = read_index(tmp_path / "all").rows
    elsewhere = [
        msgspec.structs.replace(row, host="another host"),
        Row(OTHER, "fake", folder="begun-elsewhere-0123abcd", host="another host",
            options=row.options),
    ]  # fmt: skip
    write_index_file(tmp_path / "all", Index(rows=elsewhere))
    done = several(tmp_path, f"{QUICK},{OTHER}")
    assert done.returncode == 0, done.stderr
    found = rows(tmp_path)
    assert found[QUICK].host == "another host"
    assert found[OTHER].host == row.host
    assert found[OTHER].folder != "begun-elsewhere-0123abcd"
    assert "another host" in (tmp_path / "all" / "index.md").read_text()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--models", "nosuch"), "unknown model 'nosuch'"),
        (("--models", "fake", "--model", "fake"), "--model and --models stand instead"),
        (("--models", "family=nosuch"), "no model has that family"),
        (("--models", "fake", "--framework", "torch"), "none of them is there"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(
    tmp_path: Path, given: tuple[str, ...], said: str
) -> None:
    done = run(*given, cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_a_dry_run_lists_the_studies_and_measures_nothing(tmp_path: Path) -> None:
    done = run("--models", "resnet50,detr-resnet50", "--framework", "tensorflow", "--dry-run",
               cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "detr-resnet50 is not there for tensorflow: it is left out" in done.stderr
    assert done.stdout.count("to be carried out") == 1
    assert not list(tmp_path.iterdir())


def test_a_foreign_index_is_refused(tmp_path: Path) -> None:
    (tmp_path / "all").mkdir()
    (tmp_path / "all" / "index.json").write_text("[]")
    done = several(tmp_path, QUICK)
    assert done.returncode == 2
    assert "is no index of studies" in done.stderr


def test_a_model_beyond_the_memory_is_refused_before_it_is_built(tmp_path: Path) -> None:
    _, card = find_model("dlrm-rmc1@row_scale=1.0", MODELS)
    here = machine(tmp_path / "host")
    small = msgspec.structs.replace(
        here, limits=msgspec.structs.replace(here.limits, memory_bytes=2 * 2**30)
    )
    with pytest.raises(UsageError, match=r"3\.8 GiB of weights alone, and this host has 2\.0 GiB"):
        check_memory(card, small)
    roomy = msgspec.structs.replace(
        here, limits=msgspec.structs.replace(here.limits, memory_bytes=8 * 2**30)
    )
    check_memory(card, roomy)
