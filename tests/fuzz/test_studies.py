"""A study's files with lines doubled, moved, gone or without their end: nothing is passed over.

The store holds what the lines say, or tells what it has lost, or refuses the study in one line; and
a file that it refuses keeps every byte.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st

from tests.fuzz.document import Mutant, Seed, damaged
from tests.fuzz.oracle import assert_carried
from tests.fuzz.seeds import fuzzed
from tuner.errors import StudyDamaged
from tuner.record.configuration import Configuration
from tuner.record.journal import Phase, PhaseDone, SliceTaken, Started, StudyOpened, TrialNoted
from tuner.record.launch import LaunchRequest, Purpose, Slice
from tuner.record.outcome import Ending, Outcome
from tuner.record.store import Store

MEASURED = Ending(Outcome.MEASURED)
FILES = ("study.jsonl", "launches/0001.jsonl", "launches/0002.jsonl")


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> list[Seed]:
    """The files of a study that searched twice, in the order of FILES."""
    folder = tmp_path_factory.mktemp("study") / "study"
    with Store(folder) as store:
        store.add(StudyOpened("id", {"space": "1"}, "2026-11-24T00:00:00", "0.1.0"))
        for id in (1, 2):
            configuration = Configuration.of({"a.b": id})
            launch = store.open_launch(LaunchRequest(id, configuration, 4, Purpose.SEARCH))
            launch.add(Started(0.1))
            for _ in range(3):
                launch.add(SliceTaken(Slice(store.next_slice_index(), 4, 3, 0.3, 1.0)))
            launch.end(MEASURED, 3.0, 1.0)
            store.add(TrialNoted(id, configuration, "random", MEASURED, (id,), 1.0))
        store.add(PhaseDone(Phase.EXPLORE, "settled"))
    return [Seed(name, (folder / name).read_bytes()) for name in FILES]


@st.composite
def rearranged(draw: st.DrawFn, seed: Seed) -> Mutant:
    """Return a file with one to three of its lines doubled, moved, taken away or joined."""
    lines, edits = seed.data.splitlines(keepends=True), []
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(lines) - 1)) if lines else 0
        act = draw(st.sampled_from(("double", "move", "take", "join", "carriage return")))
        line = lines.pop(at) if lines else b""
        to = draw(st.integers(0, len(lines)))
        put = {"double": [(at, line), (to, line)], "move": [(to, line)], "take": []}
        joined = line.rstrip(b"\r\n") + (b"" if act == "join" else b"\r")
        for where, each in put.get(act, [(at, joined)]):
            lines.insert(where, each)
        edits.append(f"{act} line {at + 1} ({to + 1})")
    return Mutant(seed, tuple(edits), b"".join(lines))


def notes_of(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line)["note"] for line in data.split(b"\n")[:-1]]


@fuzzed(600, data=st.data())
def test_a_study_holds_what_its_lines_say_or_is_refused_untouched(
    tmp_path_factory: pytest.TempPathFactory, seeds: list[Seed], data: st.DataObject
) -> None:
    altered = data.draw(st.integers(0, len(seeds) - 1))
    mutant = data.draw(st.one_of(rearranged(seeds[altered]), damaged([seeds[altered]])))
    folder = tmp_path_factory.getbasetemp() / "altered"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "launches").mkdir(parents=True)
    for seed in seeds:
        (folder / seed.name).write_bytes(seed.data)
    path = folder / seeds[altered].name
    path.write_bytes(mutant.content)
    try:
        with Store(folder) as store:
            losses, notes, launches = store.losses, store.notes, dict(store.launches)
    except StudyDamaged as error:
        assert "\n" not in str(error)
        assert str(folder) in str(error)
        kept = path.read_bytes()
        torn = mutant.content.removeprefix(kept)
        assert mutant.content.startswith(kept)
        assert not torn or (torn.count(b"\n") == 0 and torn.count(b'{"used_s":') <= 1)
        return
    if not losses:
        said = notes_of((folder / FILES[0]).read_bytes())
        assert_carried(json.loads(msgspec.json.encode(notes)), said)
    for id, record in launches.items():
        first, *others = notes_of((folder / FILES[id]).read_bytes())
        assert_carried(json.loads(msgspec.json.encode(record.request)), first["request"])
        slices = [each["slice"] for each in others if each["type"] == "slice"]
        read = sorted([*record.slices, *record.contended], key=lambda s: s.index)
        assert_carried(
            json.loads(msgspec.json.encode(read)), sorted(slices, key=lambda s: int(s["index"]))
        )
        assert len({s.index for s in read}) == len(read)


def test_several_lines_without_an_end_are_refused_and_stay(
    tmp_path: Path, seeds: list[Seed]
) -> None:
    (tmp_path / "launches").mkdir()
    for seed in seeds:
        (tmp_path / seed.name).write_bytes(seed.data)
    text = seeds[0].data.replace(b"\n", b"\r")
    (tmp_path / FILES[0]).write_bytes(text)
    with pytest.raises(StudyDamaged, match=r"study\.jsonl:1 holds lines without an end"):
        Store(tmp_path)
    assert (tmp_path / FILES[0]).read_bytes() == text
