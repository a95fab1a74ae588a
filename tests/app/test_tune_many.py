"""Several models: which are meant, one budget, one index, and going on with what is left."""

import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.command import HANGS_S, Here, run, start
from tests.made_up import MadeUpFake, tuned_here
from tests.space.spaces import machine
from tuner.app.compatibility import check_memory
from tuner.app.request import Request
from tuner.app.tune_many import options_of, select, shares
from tuner.errors import Interrupted, UsageError
from tuner.galleries import MODELS
from tuner.launchers.describe import find_model, gallery_cards
from tuner.output.headline import class_lines
from tuner.output.index import best_guide, recommended
from tuner.record.files import read_result
from tuner.record.index import Index, Row, held_alone, read_index, write_index_file
from tuner.record.workload import ModelCard

SPACE = ("--hw", "fake", "--framework", "fake", "--exclude", "launch.allocator")
"""Without allocators, for which each worker would have to be started from nothing."""
QUICK, OTHER = "fake@noise=0.003,seed=2", "fake@noise=0.003,seed=5"


Several = Callable[..., subprocess.CompletedProcess[str]]


OPTIONS_BEFORE = "d0451ebc50dcccef3ccd20b8274d824c941e7d3ae854083801825a9a5a9808c2"
"""The hash of default options, as indexes hold it that were written before --accept-cost."""


def given(models: str, *others: str, budget: str = "10s") -> tuple[str, ...]:
    return ("--models", models, *SPACE, "--budget", budget, "--out", "all", *others)


@pytest.fixture
def several(here: Here) -> Several:
    """Tune models into the folder `all`, on launches that are made up."""
    return lambda *models, **budget: here(*given(*models, **budget), testbed=MadeUpFake())


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in which one model is tuned."""
    folder = tmp_path_factory.mktemp("tuned")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        asked = given(QUICK, budget="5s")
        patch.setattr("sys.argv", ["tune-framework", *asked])
        assert tuned_here(asked, MadeUpFake()) == 0
    return folder


@pytest.fixture
def begun(tuned: Path, tmp_path: Path) -> Path:
    """Return a copy of it."""
    shutil.copytree(tuned / "all", tmp_path / "all")
    return tmp_path


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
    assert select("ncf@x=1,family=translation", cards)[1:] == ["gnmt", "transformer"]
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


def test_models_are_added_to_the_index_and_not_measured_twice(
    several: Several, begun: Path
) -> None:
    (before,) = rows(begun).values()
    kept = (begun / "all" / before.folder / "result.json").read_bytes()
    done = several(f"{QUICK},{OTHER}")
    assert done.returncode == 0, done.stderr
    assert "all of them: all/index.html" in done.stdout
    assert f"looking at {OTHER} in fake (2 of 2)" in done.stdout
    assert f"looking at {QUICK}" not in done.stdout
    assert re.search(rf"\] study 1 of 1, {OTHER} in fake: 0:\d\d left for it", done.stdout)
    found = rows(begun)
    assert [row.state for row in found.values()] == ["done", "done"]
    assert found[QUICK] == before
    assert found[OTHER].host
    assert found[OTHER].seconds > 0
    assert (begun / "all" / before.folder / "result.json").read_bytes() == kept
    for name in ("index.md", "index.html"):
        text = (begun / "all" / name).read_text()
        for row in found.values():
            result = read_result(begun / "all" / row.folder / "result.json")
            assert f"{row.folder.replace('@', '%40')}/report" in text
            assert all(line.reached in text.replace("\\", "") for line in class_lines(result))
            assert best_guide(result).split(",")[0] in text
    for row in found.values():  # what the links name is there
        assert (begun / "all" / row.folder / "report.html").exists()


def test_an_edited_model_is_another(several: Several, tmp_path: Path) -> None:
    """What was found of a file holds for what it was."""
    mine = tmp_path / "mine.py"
    text = (MODELS / "fake.py").read_text()
    mine.write_text(text)
    done = several("mine.py", budget="5s")
    assert done.returncode == 0, done.stderr
    assert "finished in" in several("mine.py", "--dry-run").stdout
    mine.write_text(text + "\n# edited\n")
    done = several("mine.py", "--dry-run")
    assert "to be carried out" in done.stdout
    told = " ".join(done.stderr.split())
    assert "all holds results of other options, or of a model file before it was edited" in told
    assert "mine.py in fake. Their folders stay" in told


def test_a_budget_that_is_used_up_is_said_and_the_default_is_for_what_is_added(
    several: Several, begun: Path
) -> None:
    (before,) = rows(begun).values()
    write_index_file(begun / "all", Index(rows=[msgspec.structs.replace(before, seconds=3600.0)]))
    done = several(f"{QUICK},{OTHER}", budget="20m")
    assert done.returncode == 2
    assert "leaves too little for 1 more; give a larger one" in done.stderr


def test_a_result_that_cannot_be_read_stops_no_other(several: Several, begun: Path) -> None:
    (before,) = rows(begun).values()
    (begun / "all" / before.folder / "result.json").write_text("{")
    done = several(OTHER, budget="5s")
    assert done.returncode == 0, done.stderr
    assert rows(begun)[OTHER].state == "done"


def test_a_result_that_is_gone_is_measured_again(several: Several, begun: Path) -> None:
    (before,) = rows(begun).values()
    shutil.rmtree(begun / "all" / before.folder)
    done = several(QUICK, "--dry-run")
    assert "to be carried out" in done.stdout


def test_what_was_stopped_goes_on_by_the_same_command(here: Here, tmp_path: Path) -> None:
    asked = given(f"{QUICK},{OTHER}")

    def stop_in_the_second() -> None:
        if any(row.state == "done" for row in read_index(tmp_path / "all").rows):
            raise Interrupted("stopped by SIGINT")

    assert here(*asked, testbed=MadeUpFake(stop_in_the_second)).returncode == 130
    check_goes_on(tmp_path, lambda: here(*asked, testbed=MadeUpFake()))


@pytest.mark.slow
def test_what_a_signal_stopped_goes_on_by_the_same_command(tmp_path: Path) -> None:
    """As a process, with processes of the fake."""
    asked = given(f"{QUICK},{OTHER}", budget="12s")
    log = tmp_path / "log"
    process = start(*asked, cwd=tmp_path, marker="several-stopped", log=log)
    began = time.monotonic()
    while not (tmp_path / "all" / "index.json").exists() or not any(
        row.state == "done" for row in read_index(tmp_path / "all").rows
    ):
        assert process.poll() is None, log.read_text()
        assert time.monotonic() - began < HANGS_S
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=HANGS_S) == 130, log.read_text()
    check_goes_on(tmp_path, lambda: run(*asked, cwd=tmp_path, is_virtual=True))


def check_goes_on(tmp_path: Path, again: Callable[[], subprocess.CompletedProcess[str]]) -> None:
    stopped = rows(tmp_path)
    assert [row.state for row in stopped.values()] == ["done", "pending"]
    kept = (tmp_path / "all" / stopped[QUICK].folder / "result.json").read_bytes()
    done = again()
    assert done.returncode == 0, done.stderr
    finished = rows(tmp_path)
    assert [row.state for row in finished.values()] == ["done", "done"]
    assert finished[OTHER].folder == stopped[OTHER].folder
    assert (tmp_path / "all" / finished[QUICK].folder / "result.json").read_bytes() == kept


@pytest.mark.parametrize("is_made_up", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_model_that_fails_does_not_stop_the_others(
    several: Several, begun: Path, is_made_up: bool
) -> None:
    broken = "fake@faults=fake.layout=plain:crash"
    models = f"{broken},{OTHER}"
    if is_made_up:
        done = several(models)
    else:
        done = run(*given(models, budget="10s"), cwd=begun, is_virtual=True)
    assert done.returncode == 3  # as that study by itself
    assert broken in done.stderr
    assert "Traceback" not in done.stderr
    found = rows(begun)
    assert found[broken].state == "failed"
    assert found[broken].reason
    assert found[OTHER].state == "done"
    assert found[broken].reason.split(";")[0] in (begun / "all" / "index.md").read_text()


def test_on_another_host_what_is_finished_stays_and_the_rest_begins_anew(
    several: Several, begun: Path
) -> None:
    (row,) = rows(begun).values()
    elsewhere = [
        msgspec.structs.replace(row, host="another host"),
        Row(OTHER, "fake", folder="begun-elsewhere-0123abcd", host="another host",
            options=row.options),
    ]  # fmt: skip
    write_index_file(begun / "all", Index(rows=elsewhere))
    done = several(f"{QUICK},{OTHER}")
    assert done.returncode == 0, done.stderr
    found = rows(begun)
    assert found[QUICK].host == "another host"
    assert found[OTHER].host == row.host
    assert found[OTHER].folder != "begun-elsewhere-0123abcd"
    assert "another host" in (begun / "all" / "index.md").read_text()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--models", "nosuch"), "unknown model 'nosuch'"),
        (("--models", "fake", "--model", "fake"), "--model and --models exclude each other"),
        (("--models", "family=nosuch"), "no model has that family"),
        (("--models", "family=cnnn"), "no model has that family; did you mean cnn?"),
        (("--models", "famly=cnn"), "not selected by 'famly'; did you mean family?"),
        (("--models", "fake", "--framework", "torch"), "none of them is there"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(
    here: Here, tmp_path: Path, given: tuple[str, ...], said: str
) -> None:
    done = here(*given)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("out", "said"), [("file", "is no folder"), ("file/b", "is no folder")])
@pytest.mark.parametrize("others", [(), ("--dry-run",)])
def test_a_file_in_the_place_of_the_folder_is_said_before_any_work(
    here: Here, tmp_path: Path, out: str, said: str, others: tuple[str, ...]
) -> None:
    (tmp_path / "file").write_text("mine")
    done = here("--models", QUICK, *SPACE, "--out", out, *others)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("is_another_process", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_two_runs_do_not_share_a_folder(
    several: Several, begun: Path, is_another_process: bool
) -> None:
    with held_alone(begun / "all"):
        models = f"{QUICK},{OTHER}"
        done = run(*given(models), cwd=begun) if is_another_process else several(models)
    assert done.returncode == 2
    assert "another run is tuning models into all" in done.stderr
    with pytest.raises(ZeroDivisionError), held_alone(begun / "new"):
        raise ZeroDivisionError
    assert not (begun / "new").exists()
    with held_alone(begun / "all"):  # let go of, whatever happened
        pass


def test_the_index_says_what_was_found_and_marks_what_did_not_win(begun: Path) -> None:
    (row,) = rows(begun).values()
    result = read_result(begun / "all" / row.folder / "result.json")
    assert row.verdict == result.verdict
    if result.verdict == "faster":
        assert row.speedup == result.speedup
        assert row.configuration == result.winners[result.recommended_class].configuration
    text = (begun / "all" / "index.md").read_text()
    for line in class_lines(result):
        mark = "**" if line.verdict == "faster" else ""
        assert f"{line.name}: {mark}{line.reached}{mark}" in text.replace("\\", "")
    assert recommended(result) in text.replace("\\", "")
    assert "tune-framework --models" in text


def test_a_dry_run_lists_the_studies_and_measures_nothing(here: Here, tmp_path: Path) -> None:
    done = here("--models", "resnet50,detr-resnet50", "--framework", "tensorflow", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "detr-resnet50 is not there for tensorflow: it is left out" in done.stderr
    assert done.stdout.count("tensorflow  to be carried out") == 1
    assert "1 to be carried out in 10:00 (--budget, over all of them), 10:00 each" in done.stdout
    assert not list(tmp_path.iterdir())


def test_a_dry_run_says_what_a_run_would_refuse(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = machine(tmp_path / "host")
    small = msgspec.structs.replace(
        small, limits=msgspec.structs.replace(small.limits, memory_bytes=2 * 2**30)
    )
    monkeypatch.setattr("tuner.app.tune_many.probe", lambda: small)
    models = "fake,dlrm-rmc1@row_scale=1.0"
    done = here("--models", models, "--hw", "fake", "--framework", "fake",
                "--framework", "torch", "--dry-run", "--budget", "4s", "--out", "all")  # fmt: skip
    told = " ".join(done.stderr.split())
    assert done.returncode == 2
    assert (
        "dlrm-rmc1@row_scale=1.0 will fail: dlrm-rmc1@row_scale=1.0 has 3.8 GiB of weights alone"
        in told
    )
    assert "cannot be here" in done.stdout
    assert "--budget 4 s: that is too little for 1 more" in told


def test_a_foreign_index_is_refused(several: Several, tmp_path: Path) -> None:
    (tmp_path / "all").mkdir()
    (tmp_path / "all" / "index.json").write_text("[]")
    done = several(QUICK)
    assert done.returncode == 2
    assert "is no index of studies" in done.stderr


@pytest.mark.parametrize("others", [(), ("--dry-run",)])
def test_a_page_of_somebody_elses_is_not_replaced(
    several: Several, tmp_path: Path, others: tuple[str, ...]
) -> None:
    (tmp_path / "all").mkdir()
    (tmp_path / "all" / "index.html").write_text("mine")
    done = several(QUICK, *others)
    assert done.returncode == 2
    assert "holds index.html, which is no index of studies" in done.stderr
    assert [p.name for p in (tmp_path / "all").iterdir()] == ["index.html"]
    assert (tmp_path / "all" / "index.html").read_text() == "mine"


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


def test_what_earlier_versions_finished_stays_finished() -> None:
    """A new option leaves the hash of requests that do not use it as it was."""
    card = ModelCard("m", "M", "t", "cnn", ("torch",), 4, (4,), None, "0" * 64)
    assert options_of(Request("m"), card) == OPTIONS_BEFORE
    assert options_of(Request("m", extends=True), card) == OPTIONS_BEFORE
    assert options_of(Request("m", accept_cost=("memory",)), card) != OPTIONS_BEFORE
