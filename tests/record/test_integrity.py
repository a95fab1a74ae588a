"""What a damaged study makes good and what it refuses, on files written by the real store."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tuner.errors import StudyDamaged
from tuner.record.configuration import Configuration
from tuner.record.journal import (
    EarlyRound,
    LossNoted,
    RoundDone,
    SliceTaken,
    StudyFinished,
    StudyOpened,
    TrialNoted,
    WarningNoted,
)
from tuner.record.launch import LaunchRequest, Purpose, Slice
from tuner.record.outcome import Ending, Outcome
from tuner.record.store import Store

MEASURED = Ending(Outcome.MEASURED)


def launch(store: Store, purpose: Purpose, *, ends: bool = True) -> int:
    id = store.next_launch_id()
    file = store.open_launch(LaunchRequest(id, Configuration.of({"a.b": id}), 4, purpose))
    for _ in range(2):
        file.add(SliceTaken(Slice(store.next_slice_index(), 4, 3, 0.3, 1.0)))
    if ends:
        file.end(MEASURED, 3.0, 1.0)
    return id


def trial(store: Store) -> None:
    id = launch(store, Purpose.SEARCH)
    configuration = store.launches[id].request.configuration
    store.add(TrialNoted(id, configuration, "random", MEASURED, (id,), 1.0))


@pytest.fixture
def searching(tmp_path: Path) -> Path:
    """A study that was killed while it searched: launch 1 is its pacer, 2 to 4 are told."""
    folder = tmp_path / "searching"
    with Store(folder) as store:
        store.add(StudyOpened("id", {}, "now", "0"))
        launch(store, Purpose.PACER, ends=False)
        for _ in range(3):
            trial(store)
        store.add(WarningNoted("the last note"))
    return folder


@pytest.fixture
def confirmed(searching: Path) -> Path:
    """The same, ended: launch 5 is its only round."""
    with Store(searching) as store:
        store.add(RoundDone(1, (launch(store, Purpose.CONFIRM),)))
        store.add(StudyFinished("faster"))
    return searching


def cut(path: Path, lines: int) -> None:
    """Leave so many lines, and half of the next one."""
    whole = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(whole[:lines]) + whole[lines][: len(whole[lines]) // 2])


def drop(path: Path, number: int) -> None:
    whole = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(whole[: number - 1] + whole[number:]))


def become_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def test_whole_files_have_lost_nothing(searching: Path) -> None:
    with Store(searching) as store:
        assert store.losses == []
        assert len(store.all(TrialNoted)) == 3


GONE: dict[str, tuple[Callable[[Path], object], str]] = {
    "a launch removed": (lambda d: (d / "launches/0003.jsonl").unlink(), "0003.jsonl is missing"),
    "the last launch removed": (
        lambda d: (d / "launches/0004.jsonl").unlink(),
        "0004.jsonl is missing",
    ),
    "a launch emptied": (
        lambda d: os.truncate(d / "launches/0003.jsonl", 0),
        "0003.jsonl is empty",
    ),
    "all launches removed": (
        lambda d: shutil.rmtree(d / "launches"),
        "0001.jsonl is missing, as are 3 other launches",
    ),
    "a launch without its request": (
        lambda d: drop(d / "launches/0003.jsonl", 1),
        "0003.jsonl does not begin with its own request",
    ),
    "a launch in another's place": (
        lambda d: shutil.copy(d / "launches/0002.jsonl", d / "launches/0003.jsonl"),
        "0003.jsonl does not begin with its own request",
    ),
    "a launch that is a folder": (
        lambda d: become_a_folder(d / "launches/0003.jsonl"),
        "0003.jsonl cannot be read (Is a directory)",
    ),
    "the journal removed": (lambda d: (d / "study.jsonl").unlink(), "study.jsonl is missing"),
    "the journal emptied": (lambda d: os.truncate(d / "study.jsonl", 0), "study.jsonl is empty"),
}


@pytest.mark.parametrize(("damage", "fault"), GONE.values(), ids=GONE.keys())
def test_what_cannot_be_made_again_is_refused_with_the_file_and_what_to_do(
    searching: Path, damage: Callable[[Path], object], fault: str
) -> None:
    damage(searching)
    for _ in range(2):  # and once more: a refusal makes nothing of it
        with pytest.raises(StudyDamaged) as refused:
            Store(searching)
        assert fault in str(refused.value)
        assert "another --out" in str(refused.value)
        assert refused.value.exit_code == 1


def test_a_launch_that_was_cut_short_counts_no_more_and_the_search_goes_on(
    searching: Path,
) -> None:
    cut(searching / "launches/0003.jsonl", 2)
    with Store(searching) as store:
        (loss, slices) = store.losses
        assert "launches/0003.jsonl was cut short" in loss.text
        assert (slices.slices, slices.text) == ((5,), "")
        assert [t.number for t in store.all(TrialNoted)] == [2, 4]
        for each in store.losses:
            store.add(each)
        trial(store)
    with Store(searching) as again:
        assert again.losses == []
        assert [t.number for t in again.all(TrialNoted)] == [2, 4, 5]


def test_slices_that_nothing_was_told_of_are_missed(searching: Path) -> None:
    cut(searching / "launches/0001.jsonl", 2)
    with Store(searching) as store:
        (loss,) = store.losses
        assert "launches/0001.jsonl was cut short: 1 slice" in loss.text
        store.add(loss)
    with Store(searching) as again:
        assert again.losses == []


@pytest.mark.parametrize("number", [3, None], ids=["in the middle", "at the end"])
def test_lines_that_the_journal_lost_are_missed_once(searching: Path, number: int | None) -> None:
    if number is None:
        cut(searching / "study.jsonl", 2)
    else:
        drop(searching / "study.jsonl", number)
    with Store(searching) as store:
        (loss,) = store.losses
        # of the three at the end, the last launch still knew one
        assert "study.jsonl has lost 1 line:" in loss.text
        store.add(loss)
        trial(store)
    with Store(searching) as again:
        assert again.losses == []
        assert LossNoted("study.jsonl", loss.text, notes=1) in again.notes


ON_WHICH_A_RESULT_RESTS: dict[str, Callable[[Path], object]] = {
    "launches/0003.jsonl": lambda d: cut(d / "launches/0003.jsonl", 2),
    "launches/0005.jsonl": lambda d: cut(d / "launches/0005.jsonl", 2),
    "launches/0001.jsonl": lambda d: cut(d / "launches/0001.jsonl", 2),
    "study.jsonl": lambda d: drop(d / "study.jsonl", 3),
}


@pytest.mark.parametrize(
    ("file", "damage"), ON_WHICH_A_RESULT_RESTS.items(), ids=ON_WHICH_A_RESULT_RESTS.keys()
)
def test_nothing_is_made_good_that_a_result_rests_on(
    confirmed: Path, file: str, damage: Callable[[Path], object]
) -> None:
    (confirmed / "result.json").touch()
    damage(confirmed)
    with pytest.raises(StudyDamaged, match="rests on it") as refused:
        Store(confirmed)
    assert str(confirmed / file) in str(refused.value)
    assert f"tune-framework report {confirmed}" in str(refused.value)


@pytest.fixture
def looked_early(searching: Path) -> Path:
    """The same study while it searches, with an early verdict: launches 5 to 8 are its rounds.

    Launch 9 is of a round that has not ended.
    """
    with Store(searching) as store:
        for _ in range(2):
            ids = (launch(store, Purpose.CONFIRM), launch(store, Purpose.CONFIRM))
            store.add(EarlyRound(store.launches[ids[1]].request.configuration, ids))
        launch(store, Purpose.CONFIRM)
        launch(store, Purpose.PACER)
    (searching / "result.json").touch()
    return searching


@pytest.mark.parametrize("number", [3, 9])
def test_the_search_goes_on_after_an_early_verdict(looked_early: Path, number: int) -> None:
    cut(looked_early / f"launches/000{number}.jsonl", 2)
    with Store(looked_early) as store:
        assert "was cut short" in store.losses[0].text
        assert len(store.all(TrialNoted)) == (2 if number == 3 else 3)


EARLY_LOST: dict[str, tuple[Callable[[Path], object], str]] = {
    "a launch of its rounds": (
        lambda d: cut(d / "launches/0006.jsonl", 2),
        "0006.jsonl has lost a part, and an early verdict rests on it",
    ),
    "what may have been a round": (
        lambda d: drop(d / "study.jsonl", 6),
        "study.jsonl has lost a part, and the confirmation rests on it",
    ),
}


@pytest.mark.parametrize(("damage", "fault"), EARLY_LOST.values(), ids=EARLY_LOST.keys())
def test_what_an_early_verdict_rests_on_is_not_made_good(
    looked_early: Path, damage: Callable[[Path], object], fault: str
) -> None:
    damage(looked_early)
    with pytest.raises(StudyDamaged) as refused:
        Store(looked_early)
    assert fault in str(refused.value)


def test_studies_of_earlier_versions_are_read(searching: Path) -> None:
    """Their lines do not count each other."""
    for path in (searching / "study.jsonl", *(searching / "launches").glob("*.jsonl")):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        old = [{k: v for k, v in line.items() if k in ("used_s", "note")} for line in lines]
        path.write_text("".join(json.dumps(line) + "\n" for line in old))
    with Store(searching) as store:
        assert store.losses == []
        assert len(store.launches) == 4
        launch(store, Purpose.SEARCH)
        store.add(WarningNoted("of this version"))
    with Store(searching) as again:
        assert again.losses == []
