"""A study's seconds: by activity, and by phase."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator

from tuner.measurement.estimates import clean_slices
from tuner.record.journal import (
    LaunchEnded,
    LaunchOpened,
    Phase,
    PhaseDone,
    SliceTaken,
    Started,
    Waited,
)
from tuner.record.launch import Built, Checked, Compiled, LaunchRecord, Prepared, Profiled, Purpose
from tuner.record.lines import Written
from tuner.record.store import Store
from tuner.record.study_stats import BEFORE, PhaseSeconds, Seconds


def seconds(store: Store, wall_s: float) -> Seconds:
    """Split the used time by activity."""
    sums: dict[str, float] = defaultdict(float)
    for record in store.launches.values():
        is_pacer = record.request.purpose is Purpose.PACER
        sums["start_up"] += record.start_up_s
        if record.built is not None:
            sums["start_up"] += record.built.import_s + record.built.build_s
        sums["compile"] += record.compile_s
        sums["warm_up"] += (record.prepared.warm_up_s if record.prepared else 0) + record.check_s
        sums["warm_up"] += sum(s.seconds for s in record.contended)
        sums["warm_up"] += record.profile.seconds if record.profile else 0.0
        counted = clean_slices(record)
        for s in record.slices:
            if is_pacer:
                sums["pacer"] += s.seconds
            else:
                sums["scored" if s in counted else "waiting"] += s.seconds
        discarded_s = record.slicing_s - sum(s.seconds for s in record.slices)
        sums["pacer" if is_pacer else "warm_up"] += max(0.0, discarded_s)
    sums["waiting"] += sum(note.seconds for note in store.all(Waited))
    return Seconds(
        wall=wall_s,
        scored=sums["scored"],
        warm_up=sums["warm_up"],
        pacer=sums["pacer"],
        compile=sums["compile"],
        start_up=sums["start_up"],
        waiting=sums["waiting"],
    )


def shares(store: Store) -> dict[str, float]:
    """Return the share of the launches' busy time per purpose."""
    totals: dict[str, float] = defaultdict(float)
    for record in store.launches.values():
        totals[str(record.request.purpose)] += record.total_s
    whole = sum(totals.values()) or 1.0
    return {purpose: total / whole for purpose, total in totals.items()}


def seconds_by_phase(store: Store, wall_s: float) -> list[PhaseSeconds]:
    """Split the wall clock by phase and activity.

    The time between two lines of the study, in whichever file, belongs to the later line: a slice,
    the end of a launch, a decision. Every second is therefore counted once, even if several
    launches are prepared in parallel, and the sum is the wall clock.
    """
    lines = sorted(store.written, key=lambda line: line.used_s)
    opened = (line.used_s for line in lines if isinstance(line.note, LaunchOpened))
    first_s = next(opened, wall_s)
    done = [(line.used_s, line.note.phase) for line in lines if isinstance(line.note, PhaseDone)]
    sums: dict[str, dict[str, float]] = {name: defaultdict(float) for name in (BEFORE, *Phase)}
    at_s = 0.0
    called: set[int] = set()
    for line in lines:
        phase = next((each for done_s, each in done if line.used_s <= done_s), Phase.EXPLAIN)
        row = sums[BEFORE if line.used_s <= first_s else phase]
        for kind, part_s in _split(store, line, line.used_s - at_s, called):
            row[kind] += part_s
        at_s = line.used_s
        if isinstance(line.note, Compiled):
            called.add(line.launch)
    sums[Phase.EXPLAIN]["own"] += max(0.0, wall_s - at_s)
    if not sums[Phase.DESIGN]:  # it was not asked for
        del sums[Phase.DESIGN]
    return [PhaseSeconds(str(name), **row) for name, row in sums.items()]


def _split(
    store: Store, line: Written, passed_s: float, called: Collection[int]
) -> Iterator[tuple[str, float]]:
    """Yield the activities before a line, with the seconds of each.

    called: launches whose first call has its own line.
    """
    kind, rest, told_s = "own", "own", 0.0
    match line.note:
        case Started():
            rest = "start_up"
        case Built():
            kind, rest, told_s = "imports", "build", line.note.import_s
        case Compiled():
            rest = "first_call"
        case Prepared():  # in studies of earlier versions nothing stands between
            kind, rest, told_s = "first_call", "warm_up", line.note.first_call_s
            if line.launch in called:
                told_s = 0.0
        case SliceTaken():
            kind, rest = _kind_of(line.note, store.launches[line.launch]), "discarded"
            told_s = line.note.slice.seconds
        case Checked():
            rest = "check"
        case Profiled():
            rest = "profile"
        case LaunchEnded():
            rest = "ending"
        case Waited():
            rest = "waiting"
    # no more than there were: the fake framework's slices are told in its own, virtual seconds
    told_s = min(told_s, passed_s)
    yield kind, told_s
    yield rest, passed_s - told_s


def _kind_of(taken: SliceTaken, record: LaunchRecord) -> str:
    if taken.n_neighbours:
        return "neighbour"
    if record.request.purpose is Purpose.PACER:
        return "pacer"
    return "scored" if taken.slice in clean_slices(record) else "disturbed"
