import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.wants import lack, needs
from tuner.errors import StorageFailed, StudyConflict, StudyDamaged, UsageError
from tuner.record.configuration import Configuration
from tuner.record.journal import (
    Extended,
    SliceTaken,
    Started,
    StudyFinished,
    StudyOpened,
    WarningNoted,
)
from tuner.record.launch import LaunchRequest, Purpose, Slice
from tuner.record.outcome import Ending, Outcome
from tuner.record.store import Store


def request(id: int) -> LaunchRequest:
    return LaunchRequest(id, Configuration.of({"a.b": 1}), 4, Purpose.SEARCH)


def slice_taken(index: int) -> SliceTaken:
    return SliceTaken(Slice(index, 4, 3, 0.3, 1.0))


def test_what_is_stored_comes_back(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.used_s = lambda: 12.5
        store.add(StudyOpened("id", {"space": "x"}, "now", "0"))
        file = store.open_launch(request(store.next_launch_id()))
        file.add(Started(0.1))
        file.add(slice_taken(store.next_slice_index()))
        file.end(Ending(Outcome.MEASURED), 3.0, 1.0)
        before, written = store.launches[1], store.written
        assert {line.launch for line in written} == {0, 1}
    with Store(tmp_path) as again:
        # the journal first, then the launches
        assert again.written == sorted(written, key=lambda line: line.launch)
        assert again.opened == StudyOpened("id", {"space": "x"}, "now", "0")
        assert again.launches == {1: before}
        assert again.used_before_s == 12.5
        assert (again.next_launch_id(), again.next_slice_index()) == (2, 1)


def test_a_launch_without_an_end_was_interrupted_and_keeps_its_slices(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.add(WarningNoted("first"))
        store.open_launch(request(1)).add(slice_taken(0))
    with Store(tmp_path) as again:
        record = again.launches[1]
        assert record.ending is not None
        assert record.ending.outcome is Outcome.INTERRUPTED
        assert [s.index for s in record.slices] == [0]


@pytest.mark.parametrize("file", ["study.jsonl", "launches/0001.jsonl"])
def test_a_line_cut_short_is_dropped_and_the_rest_stands(tmp_path: Path, file: str) -> None:
    with Store(tmp_path) as store:
        store.add(WarningNoted("first"))
        launch = store.open_launch(request(1))
        launch.add(slice_taken(0))
    with (tmp_path / file).open("ab") as torn:
        torn.write(b'{"used_s":1.0,"note":{"type":"warn')
    with Store(tmp_path) as again:
        again.add(WarningNoted("second"))
        assert [w.text for w in again.all(WarningNoted)] == ["first", "second"]
        assert len(again.launches[1].slices) == 1
    with Store(tmp_path) as third:
        assert [w.text for w in third.all(WarningNoted)] == ["first", "second"]


def test_a_spoiled_line_in_the_middle_is_named(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.add(WarningNoted("first"))
    journal = tmp_path / "study.jsonl"
    journal.write_bytes(b"garbage\n" + journal.read_bytes())
    with pytest.raises(StudyDamaged, match=r"study.jsonl:1 cannot be read .*--out"):
        Store(tmp_path)


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_full_disk_says_what_is_needed_and_what_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_kept: bool
) -> None:
    """What `verify` stores is gone with it: no command goes on with it."""
    real = os.statvfs(tmp_path)
    full = os.statvfs_result((real.f_bsize, 1 << 10, 100, 3072, 3072, *tuple(real)[5:]))
    with Store(tmp_path, is_kept=is_kept) as store:
        monkeypatch.setattr(os, "statvfs", lambda path: full)
        with pytest.raises(StorageFailed, match=r"3\.0 MiB are free, 8 MiB are needed") as error:
            store.check_room()
    assert ("to resume" in str(error.value)) is is_kept


def test_two_tools_cannot_work_on_one_study(tmp_path: Path) -> None:
    with Store(tmp_path), pytest.raises(StudyConflict, match="another tune-framework"):
        Store(tmp_path)
    Store(tmp_path).close()  # the lock goes with its holder


def test_a_killed_holder_leaves_no_lock(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path; from tuner.record.store import Store; "
        "Store(Path(sys.argv[1])); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-P", "-c", code, str(tmp_path)], check=False)
    Store(tmp_path).close()


def test_a_folder_that_cannot_be_made_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="--out"):
        Store(tmp_path / "file" / "below")


@needs("root")
def test_a_full_disk_loses_nothing_that_was_stored(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(small)], check=False
    )
    if mounted.returncode:
        lack("a mount of one's own")
    try:
        with Store(small) as store:
            stored = 0
            with pytest.raises(StorageFailed, match="free disk space"):
                for stored in range(100_000):
                    store.add(WarningNoted(f"note {stored} " + "x" * 200))
        (small / "filler").unlink(missing_ok=True)
        subprocess.run(["mount", "-o", "remount,size=256k", str(small)], check=True)
        with Store(small) as again:
            assert len(again.all(WarningNoted)) == stored
            again.add(WarningNoted("after"))
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_each_extension_has_notes_of_its_own_and_all_are_kept(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        assert (store.n_extensions, store.extended_at_s, store.is_finished) == (0, 0.0, False)
        for used_s, note in (
            (1.0, WarningNoted("first")),
            (2.0, StudyFinished("faster")),
            (3.0, Extended(60.0)),
            (4.0, WarningNoted("second")),
        ):
            store.used_s = lambda used_s=used_s: used_s  # type: ignore[misc]
            store.add(note)
    for _ in range(2):
        with Store(tmp_path) as again:
            assert [note.text for note in again.all(WarningNoted)] == ["first", "second"]
            assert [note.text for note in again.current(WarningNoted)] == ["second"]
            assert (again.n_extensions, again.extended_at_s) == (1, 3.0)
            assert not again.is_finished
            assert again.used_before_s == 4.0
    with Store(tmp_path) as last:
        last.add(StudyFinished("faster"))
        assert last.is_finished


def test_ids_and_ordinals_of_a_reopened_study_are_new(tmp_path: Path) -> None:
    """Slices beside a neighbour have ordinals, too."""
    with Store(tmp_path) as store:
        assert (store.next_launch_id(), store.next_slice_index()) == (1, 0)
        file = store.open_launch(request(7))
        file.add(slice_taken(3))
        file.add(SliceTaken(Slice(9, 4, 3, 0.3, 1.0), n_neighbours=2))
        file.end(Ending(Outcome.MEASURED), 3.0, 1.0)
        assert (store.next_launch_id(), store.next_slice_index()) == (8, 10)
        before = store.launches[7]
    assert before.n_neighbours == 2
    assert [s.index for s in before.slices] == [3]
    assert [s.index for s in before.contended] == [9]
    assert (before.total_s, before.slicing_s) == (3.0, 1.0)


def test_a_disk_without_a_free_inode_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.statvfs(tmp_path)

    def disk(n_files: int, n_free: int) -> os.statvfs_result:
        room = (4096, 4096, 1 << 20, 1 << 19, 1 << 19)
        return os.statvfs_result((*room, n_files, n_free, n_free, *tuple(real)[8:]))

    with Store(tmp_path) as store:
        monkeypatch.setattr(os, "statvfs", lambda _: disk(1000, 0))
        with pytest.raises(StorageFailed, match="MiB and no inode are free"):
            store.check_room()
        for n_files, n_free in ((1000, 1), (0, 0)):  # some file systems count none
            monkeypatch.setattr(os, "statvfs", lambda _, n=n_files, m=n_free: disk(n, m))
            store.check_room()
