"""Live progress: what is being measured, the best so far, the time left.

No timer redraws: that would use the CPUs that are being measured. Each event redraws once; events
occur between slices, when nothing is timed.
"""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from rich.columns import Columns
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tuner.cli.printable import made_printable
from tuner.record.events import (
    BestSoFar,
    Event,
    FrameworkEnds,
    GainsAhead,
    HostSeen,
    LaunchBegins,
    LaunchDone,
    LaunchStage,
    Listener,
    ModelBegins,
    PhaseBegins,
    RoundEnds,
    StudyBegins,
    StudyEnds,
    StudyPlaced,
    StudyReturned,
    TimeLeft,
    TransferLoaded,
    TurnBegins,
    VerdictReached,
    WaitingForModel,
    WaitingForQuiet,
    Warned,
)
from tuner.record.figures import duration, figure
from tuner.record.launch import Purpose
from tuner.record.outcome import Outcome, counts_as_measured
from tuner.record.winner_class import WinnerClass
from tuner.space.catalogue import class_title
from tuner.space.knobs_of.launch import BATCH

_RECENT = 8
_NAMED = 3
"""Up to this many earlier studies are named."""
_BEFORE = "reading the host and the model"
"""Shown until a study begins."""


def _named(label: str) -> str:
    """Write a configuration; one that sets the batch alone is the default all the same."""
    knobs = [setting.partition("=")[0] for setting in label.split(" ")]
    return f"default, {label}" if knobs == [BATCH] else label


class _State:
    """The state after the last events."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.workload, self.phase = _BEFORE, ""
        self.launch = self.stage = self.announcement = ""
        self.best: dict[str, BestSoFar] = {}
        """By class."""
        self.launches: dict[int, str] = {}
        """Labels of launches that have begun."""
        self.waited_s = math.inf
        self.budget_s = 0.0
        self.folder = ""
        self.deadline: float | None = None
        self.confirmed = ""
        self.n_measured = self.n_failed = 0
        self.recent: deque[Text] = deque(maxlen=_RECENT)

    def begin(self, event: StudyBegins) -> None:
        self.workload, self.budget_s = event.workload, event.budget_s
        self.folder = event.folder
        self.deadline = time.monotonic() + event.budget_s - event.resumed_s
        self.best.clear()
        self.confirmed = ""
        self.n_measured, self.n_failed = event.n_measured, event.n_failed

    def count(self, event: LaunchDone) -> None:
        is_no_outcome = event.outcome is Outcome.INTERRUPTED  # launched again by itself
        if event.purpose is not Purpose.PACER and not is_no_outcome:
            is_measured = counts_as_measured(event.outcome)
            self.n_measured += is_measured
            self.n_failed += not is_measured

    def left_s(self) -> float:
        return 0.0 if self.deadline is None else max(0.0, self.deadline - time.monotonic())

    def time_left(self) -> str:
        return "" if self.deadline is None else duration(self.left_s())


def _sources(event: TransferLoaded) -> str:
    more = len(event.sources[_NAMED:])
    return ", ".join(event.sources[:_NAMED]) + (f" and {more} more" if more else "")


def _measured(event: LaunchDone) -> str:
    """Write the result of a launch as in the table, or that the rate is raw.

    A raw rate contains the machine's drift, so that two of them are hardly comparable.
    """
    if event.value is None:
        return ""
    text = f"raw {figure(event.value)} {event.unit}"
    if event.search_ratio is not None:
        text = f"{event.search_ratio:.2f}x in the search, {text}"
    if event.is_late:  # its value only ranks
        text = "too late even for single requests"
    if not event.n_disturbed:
        return text
    if event.n_disturbed == event.n_slices:
        return f"{text}, all slices disturbed"
    return f"{text}, {event.n_disturbed} of {event.n_slices} slices disturbed: not counted"


def _ended(event: LaunchDone) -> str:
    """Say how a launch ended; its name last: a narrow terminal cuts the end of a line off."""
    outcome = "" if event.outcome == "measured" else f"{event.outcome}: {event.reason}"
    text, name = outcome or _measured(event), _named(event.label)
    return f"  {event.purpose} {text} ({event.seconds:.1f} s): {name}"


def _leader(event: BestSoFar) -> str:
    """Write the best of a class."""
    ratio = f"{event.ratio:.2f}x the default at its best batch"
    return f"{event.name}: {ratio}: {_named(event.label)}"


def _class_name(name: str) -> str:
    """Name what a round compares: a class, or what is verified."""
    return class_title(WinnerClass(name)) if name in list(WinnerClass) else name


def _speedups(event: RoundEnds) -> str:
    """Write the speedups by a round; empty before there are any."""
    parts = [
        f"{_class_name(name)} {point:.2f}x" + (f" ({low:.2f} - {high:.2f})" if high < 1000 else "")
        for name, (point, low, high) in event.speedups.items()
    ]
    early = ", preliminary" if event.is_preliminary and parts else ""
    return ", ".join(parts) + early


def _confirming(event: GainsAhead | VerdictReached | RoundEnds, state: _State) -> str:
    """Write what the confirmation can decide on, or has found."""
    match event:
        case GainsAhead():
            text = (
                f"this budget can decide on gains of about {math.ceil(100 * event.gain)} % and "
                f"more: about {event.n_rounds} rounds, launches that scatter by "
                f"{event.launch_sd:.1%}"
            )
            if event.by_shares is not None:
                text += (
                    f"; or of {math.ceil(100 * event.by_shares)} % if requests are late at other "
                    "moments than a simulation of the server lets expect"
                )
            return text
        case VerdictReached():
            point, low, high = event.speedup
            state.confirmed = f"{point:.2f}x ({low:.2f} - {high:.2f}): {event.label}"
            return (
                f"{event.label}: {point:.2f}x faster ({low:.2f} - {high:.2f}), confirmed after "
                f"{duration(event.seconds)}; written to {state.folder}; going on for more"
            )
        case RoundEnds():
            speedups = _speedups(event)
            state.confirmed = f"{speedups or '-'} after {event.number} round(s)"
            return f"  round {event.number}: {speedups or 'measured'}"


def _line(event: Event, state: _State) -> str | None:
    """Return the line of a plain log for an event; None for nothing."""
    event = made_printable(event)
    match event:
        case ModelBegins():
            return f"looking at {event.model} in {event.framework} ({event.number} of {event.of})"
        case TurnBegins():
            state.deadline = None  # the last one's
            return (
                f"study {event.number} of {event.of}, {event.model} in {event.framework}: "
                f"{duration(event.left_s)} left for it and those after it"
            )
        case StudyBegins():
            state.begin(event)
            resumed = f", {duration(event.resumed_s)} used before" if event.resumed_s else ""
            return (
                f"{event.workload}: budget {duration(event.budget_s)}{resumed}, up to "
                f"{event.n_configurations:,} combinations, in {event.folder}"
            )
        case TransferLoaded():
            return f"told of {event.n_configurations} configurations by {_sources(event)}"
        case PhaseBegins():
            state.phase, state.stage = event.name, ""
            state.announcement = f"{event.name}: {event.detail}"
            return None  # told with its first launch: a phase may find that it has no time
        case LaunchBegins():
            state.launch, state.stage = f"{event.purpose}: {_named(event.label)}", "starting"
            state.launches[event.launch] = state.launch
            announcement, state.announcement = state.announcement, ""
            return announcement or None
        case LaunchStage():  # of one of several that are prepared side by side
            if event.launch in state.launches:
                state.launch, state.stage = state.launches[event.launch], event.stage
            return None
        case LaunchDone():
            state.stage = ""
            state.launches.pop(event.launch, None)
            state.count(event)
            return _ended(event)
        case BestSoFar():
            known = state.best.get(event.winner_class)
            state.best[event.winner_class] = event
            is_new = known is None or known.label != event.label
            # the drift moves ratios all along
            return f"  best so far, {_leader(event)}" if is_new else None
        case GainsAhead() | VerdictReached() | RoundEnds():
            return _confirming(event, state)
        case WaitingForModel():
            return (
                f"waiting for {event.model}: {event.stage}, {duration(event.seconds)} so far, at "
                f"most {duration(event.at_most_s)}"
            )
        case WaitingForQuiet():
            state.stage = f"waiting for quiet: {event.reason}"
            text = f"  waiting for quiet, at most {duration(event.at_most_s)}: {event.reason}"
            is_new, state.waited_s = event.seconds <= state.waited_s, event.seconds
            return text if is_new else None
        case TimeLeft():
            state.deadline = time.monotonic() + event.seconds
            state.budget_s = state.budget_s or event.seconds  # what no study was begun for
            return None
        case Warned():
            return f"warning: {event.text}"
        case StudyEnds():
            state.phase = state.launch = state.stage = ""
            return f"{event.workload}: written to {event.folder}"
        case HostSeen():
            kind = f" (kind {event.kind})" if event.kind else ""
            return f"host {event.host}{kind}: {event.fault or 'takes part'}"
        case StudyPlaced():
            again = f", attempt {event.attempt}" if event.attempt > 1 else ""
            ahead = ", which held more of it" if event.is_ahead else ""
            what = "verifying on" if event.is_verification else "on"
            return f"{event.study}: {what} {event.host}{again}{ahead}"
        case StudyReturned():
            return f"{event.study}: {event.state} on {event.host}: {event.reason}"
        case FrameworkEnds():  # the table at the end, and the complaint, say it
            return None


def plain(console: Console) -> Listener:
    """Return a listener that prints events as plain lines."""
    state = _State()

    def listen(event: Event) -> None:
        line = _line(event, state)
        if line is not None:
            left = state.time_left()
            elapsed = duration(time.monotonic() - state.began)
            print(
                f"[{elapsed}{f', {left} left' if left else ''}] {line}",
                file=console.file,
                flush=True,
            )

    return listen


def _view(state: _State) -> Group:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    failed = f", {state.n_failed} failed" if state.n_failed else ""
    stage = f" ({state.stage})" if state.stage else ""
    leaders = sorted(state.best.values(), key=lambda event: -event.ratio)
    best = [_leader(event) for event in leaders] or ["-"]
    rows = [
        ("phase", f"{state.workload}  {state.phase}"),
        ("measuring", f"{state.launch}{stage}" or "-"),
        ("launches", f"{state.n_measured} measured{failed}"),
        ("best so far", best[0]),
        *(("", text) for text in best[1:]),
        *([("confirmed", state.confirmed)] if state.confirmed else []),
    ]
    for name, text in rows:
        table.add_row(name, Text(text))  # not markup: labels hold what a user typed
    used_s = state.budget_s - state.left_s()
    bar = ProgressBar(total=state.budget_s or 1.0, completed=used_s, width=40)
    table.add_row("time left", Columns([bar, Text(state.time_left())]))
    return Group(*state.recent, table)


@contextmanager
def progress(*, quiet: bool) -> Iterator[Listener]:
    """Return a listener that shows events: live on a terminal, as plain lines elsewhere.

    quiet: standard output is for the result; progress goes to standard error.
    """
    console = Console(file=sys.stderr if quiet else sys.stdout, highlight=False)
    if not console.is_terminal:
        yield plain(console)
        return
    state = _State()
    with Live(_view(state), console=console, auto_refresh=False, transient=True) as live:

        def listen(event: Event) -> None:
            line = _line(event, state)
            if line is not None:
                if isinstance(event, LaunchDone) and event.purpose is not Purpose.PACER:
                    state.recent.append(Text(line, style="dim", overflow="ellipsis", no_wrap=True))
                elif not isinstance(event, LaunchDone | BestSoFar):
                    live.console.print(Text(line))
            live.update(_view(state), refresh=True)

        yield listen
