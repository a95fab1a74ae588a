"""A copy of a growing study is always one that a killed tool would have left."""

import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.command import command
from tuner.errors import TuneError
from tuner.fleet import mirror
from tuner.fleet.mirror import Piece, Watcher, archive, is_ahead, mend, put, replace
from tuner.record.integrity import JOURNAL
from tuner.record.store import Store

STUDY = ("--model", "fake@seed=2,noise=0.003", "--hw", "fake", "--budget", "3s", "--out", "out")


@pytest.mark.slow
def test_every_copy_of_a_study_under_way_is_sound(tmp_path: Path) -> None:
    process = subprocess.Popen(
        command(*STUDY, is_virtual=True), cwd=tmp_path, stdout=subprocess.DEVNULL
    )
    study, copy = tmp_path / "out", tmp_path / "copy"
    n_seen = 0
    try:
        while not (study / JOURNAL).exists():
            assert process.poll() is None
            time.sleep(0.01)
        watcher = Watcher(study)
        while process.poll() is None:
            if pieces := watcher.changes(is_ended=False):
                put(copy, pieces)
                n_seen += _is_sound(copy, tmp_path / "opened")
            time.sleep(0.05)  # the study shares the cores with this
    finally:
        process.kill()
        process.wait()
    while pieces := watcher.changes(is_ended=True):
        put(copy, pieces)
    assert n_seen > 1
    for path in study.rglob("*"):
        name = path.relative_to(study).as_posix()
        if path.is_file() and not name.startswith(".") and not name.startswith("compiled/"):
            assert (copy / name).read_bytes() == path.read_bytes(), name


def _is_sound(copy: Path, opened: Path) -> bool:
    """Open a copy of the copy, as a tool that goes on with it would; raises StudyDamaged."""
    shutil.rmtree(opened, ignore_errors=True)
    shutil.copytree(copy, opened)
    if not (opened / JOURNAL).exists():
        return False
    with Store(opened) as store:
        assert store.losses == []
        return bool(store.notes)


def test_what_a_kill_cut_short_is_mended_and_nothing_else_changes(tmp_path: Path) -> None:
    put(tmp_path, [Piece(JOURNAL, 0, b"one\n"), Piece("launches/0001.jsonl", 0, b"a\n")])
    batch = [Piece("launches/0001.jsonl", 2, b"b\n"), Piece(JOURNAL, 4, b"two\n")]
    (tmp_path / ".batch").write_bytes(mirror._ENCODE(batch))
    put_first = tmp_path / "launches/0001.jsonl"
    put_first.write_bytes(b"a\nb\n")  # as far as the killed driver came
    mend(tmp_path)
    assert put_first.read_bytes() == b"a\nb\n"
    assert (tmp_path / JOURNAL).read_bytes() == b"one\ntwo\n"
    assert not (tmp_path / ".batch").exists()
    mend(tmp_path)
    assert (tmp_path / JOURNAL).read_bytes() == b"one\ntwo\n"


def test_a_batch_that_was_not_written_to_its_end_is_dropped(tmp_path: Path) -> None:
    (tmp_path / ".batch").write_bytes(b"")
    mend(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ["../escaped", "/etc/escaped", "a/../../escaped", ""])
def test_nothing_is_put_outside_the_folder(tmp_path: Path, path: str) -> None:
    with pytest.raises(ValueError, match="does not lie in the folder"):
        put(tmp_path / "study", [Piece(path, 0, b"x")])
    assert not list(tmp_path.rglob("*escaped*"))


def test_a_gap_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="gap"):
        put(tmp_path, [Piece(JOURNAL, 3, b"x")])


def test_a_line_that_is_not_whole_does_not_travel(tmp_path: Path) -> None:
    study, copy = tmp_path / "study", tmp_path / "copy"
    study.mkdir()
    (study / JOURNAL).write_bytes(b"one\ntw")
    watcher = Watcher(study)
    put(copy, watcher.changes(is_ended=True))
    assert watcher.changes(is_ended=True) == []
    (study / JOURNAL).write_bytes(b"one\nanother and longer\n")  # cut, and gone on with
    put(copy, watcher.changes(is_ended=False))
    assert (copy / JOURNAL).read_bytes() == b"one\nanother and longer\n"


def test_secrets_and_what_a_host_makes_again_stay_there(tmp_path: Path) -> None:
    names = ("compiled/x.so", "reference.weights", ".hidden", "result.json.part", "study.db-wal")
    for name in (*names, JOURNAL, "launches/0001.log", "result.json", "study.db"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x\n")
    travels = {piece.path for piece in archive(tmp_path)}
    assert travels == {JOURNAL, "launches/0001.log", "result.json", "study.db"}
    under_way = {piece.path for piece in Watcher(tmp_path).changes(is_ended=False)}
    assert under_way == {JOURNAL}  # the others may still change


def test_who_is_ahead(tmp_path: Path) -> None:
    first, second = "launches/0001.jsonl", "launches/0002.jsonl"
    held = [Piece(JOURNAL, 0, b"one\n"), Piece(first, 0, b"a\n")]
    same = tmp_path / "same"
    assert not is_ahead(same, held)
    replace(same, held)
    assert not is_ahead(same, held)
    (same / first).write_bytes(b"a\nb\n")
    assert is_ahead(same, held)
    (same / second).write_bytes(b"c\n")
    assert is_ahead(same, [*held, Piece(first, 2, b"b\n")])
    assert not is_ahead(same, [*held, Piece(second, 0, b"another\n")])  # it went on elsewhere
    (same / JOURNAL).write_bytes(b"other\ntwo\n")
    assert not is_ahead(same, held)


def test_a_full_disk_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TuneError, match="make room"):
        put(tmp_path / "file" / "study", [Piece(JOURNAL, 0, b"x")])
