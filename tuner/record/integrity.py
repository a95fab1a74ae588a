"""Whether a study's files still hold everything that was measured, and what was lost.

The files refer to each other, which shows a loss. Launches and slices are numbered without gaps.
Every line states how many notes the journal held before, and every note how many launches there
were. Only the last lines before a kill can be missing without a trace, and nothing rests on those.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import msgspec

from tuner.errors import StudyDamaged
from tuner.record.journal import (
    AblationRound,
    DesignRound,
    EarlyRound,
    LossNoted,
    NeighbourRound,
    Note,
    RoundDone,
    StudyFinished,
    TrialNoted,
)
from tuner.record.launch import LaunchRecord, Purpose

JOURNAL, LAUNCHES, RESULT = "study.jsonl", "launches", "result.json"


class Loaded(msgspec.Struct):
    """The content of a study's files, before it is relied on."""

    folder: Path
    notes: Sequence[Note]
    launches: Mapping[int, LaunchRecord]
    unended: Collection[int]
    """Launches without a last line: cut short, or of a killed run."""
    told_notes: int
    """The number of notes, according to the launches."""
    told_launches: int
    """The number of launches, according to the notes."""


def launch_file(id: int) -> str:
    """Return the name of a launch's file within the study's folder."""
    return f"{LAUNCHES}/{id:04d}.jsonl"


def damaged(folder: Path, file: str, fault: str) -> StudyDamaged:
    """Return the error that names a file of a study which cannot be made again."""
    shown = ""
    if (folder / RESULT).is_file():
        shown = f"; what it had found is still shown by: tune-framework report {folder}"
    return StudyDamaged(
        f"{folder / file} {fault}: what was measured is lost there and cannot be made again; begin "
        f"a new study with another --out, or move {folder} away{shown}"
    )


def losses(loaded: Loaded) -> list[LossNoted]:
    """Return losses that can be made good: the study continues without what is lost.

    Raises StudyDamaged if a decision rests on what is lost.
    """
    if fault := _gone(loaded):
        raise damaged(loaded.folder, *fault)
    found = [*_cut_trials(loaded), *_lost_slices(loaded), *_lost_notes(loaded)]
    if found and (where := _decided_by(loaded, found)):
        raise damaged(loaded.folder, found[0].file, f"has lost a part, and {where} rests on it")
    return found


def cut_launches(loaded: Loaded) -> set[int]:
    """Return the launches that a note takes for complete and that have no end."""
    noted = {i for note in loaded.notes for i in _launches_of(note)}
    return noted & set(loaded.unended)


def _launches_of(note: Note) -> tuple[int, ...]:
    kinds = TrialNoted | RoundDone | EarlyRound | AblationRound | NeighbourRound | DesignRound
    return note.launches if isinstance(note, kinds) else ()


def _gone(loaded: Loaded) -> tuple[str, str] | None:
    """Return the first file that is not there at all, with its fault; None if every one is."""
    noted = (i for note in loaded.notes for i in _launches_of(note))
    last = max((*loaded.launches, *noted, loaded.told_launches), default=0)
    missing = [i for i in range(1, last + 1) if i not in loaded.launches]
    if not missing:
        return None
    name = launch_file(missing[0])
    state = "is empty" if (loaded.folder / name).exists() else "is missing"
    others = f", as are {len(missing) - 1} other launches"
    return name, state + (others if len(missing) > 1 else "")


def _decided_by(loaded: Loaded, lost: Sequence[LossNoted]) -> str:
    """Return the decisions that rest on what is lost; empty if there is none.

    A result that was written early decides nothing, nor do confirming launches outside a round.
    """
    notes = loaded.notes
    if any(isinstance(note, StudyFinished) for note in notes):
        return "the study's result"
    if any(isinstance(note, RoundDone) for note in notes):
        return "the confirmation"
    early = {i for note in notes if isinstance(note, EarlyRound) for i in note.launches}
    if early.intersection(i for loss in lost for i in loss.launches):
        return "an early verdict"
    if any(loss.notes for loss in lost):  # the lines may have been those of rounds
        confirming = (r for r in loaded.launches.values() if r.request.purpose is Purpose.CONFIRM)
        if any(r.request.id not in early | set(loaded.unended) for r in confirming):
            return "the confirmation"
    return ""


def _known(loaded: Loaded) -> list[LossNoted]:
    """Return the losses that an earlier session has found and made good."""
    return [note for note in loaded.notes if isinstance(note, LossNoted)]


def _cut_trials(loaded: Loaded) -> list[LossNoted]:
    known = {i for loss in _known(loaded) for i in loss.launches}
    return [
        LossNoted(
            launch_file(i),
            f"{launch_file(i)} was cut short: what it measured counts no more, and its "
            "configuration is as if it had not been tried",
            launches=(i,),
        )
        for i in sorted(cut_launches(loaded) - known)
    ]


def _lost_slices(loaded: Loaded) -> list[LossNoted]:
    there = {
        s.index for record in loaded.launches.values() for s in (*record.slices, *record.contended)
    }
    known = {i for loss in _known(loaded) for i in loss.slices}
    gaps = set(range(max(there, default=-1))) - there - known
    cut = cut_launches(loaded)
    if not gaps or cut:  # a launch that was cut short is told of already
        return [LossNoted(LAUNCHES, "", slices=tuple(sorted(gaps)))] if gaps else []
    suspects = sorted(loaded.unended)
    file = launch_file(suspects[0]) if len(suspects) == 1 else f"a file in {LAUNCHES}/"
    text = (
        f"{file} was cut short: {len(gaps)} slice{'' if len(gaps) == 1 else 's'} of it count no "
        "more"
    )
    return [LossNoted(file if len(suspects) == 1 else LAUNCHES, text, slices=tuple(sorted(gaps)))]


def _lost_notes(loaded: Loaded) -> list[LossNoted]:
    known = sum(loss.notes for loss in _known(loaded))
    lost = loaded.told_notes - len(loaded.notes) - known
    if lost <= 0:
        return []
    text = (
        f"{JOURNAL} has lost {lost} line{'' if lost == 1 else 's'}: what was measured is taken "
        f"from {LAUNCHES}/ again"
    )
    return [LossNoted(JOURNAL, text, notes=lost)]
