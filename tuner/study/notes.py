"""The study's notes: phases begun and ended, warnings, and what there was no time for."""

from __future__ import annotations

from tuner.record.events import Listener, PhaseBegins, Warned
from tuner.record.journal import Phase, PhaseDone, WarningNoted
from tuner.record.store import Store

NO_TIME = "the budget left no time"


class Notes:
    """Kept in the store, so that a resumed study and the result know them; sent to a listener."""

    def __init__(self, store: Store, listen: Listener) -> None:
        self._store = store
        self._listen = listen

    def is_done(self, phase: Phase) -> bool:
        """Tell whether a phase of the current extent was finished, in whatever session."""
        return any(note.phase is phase for note in self._store.current(PhaseDone))

    def enter(self, phase: Phase, detail: str) -> None:
        """Announce a phase."""
        self._listen(PhaseBegins(str(phase), detail))

    def done(self, phase: Phase, reason: str) -> None:
        """Note that a phase is finished."""
        self._store.add(PhaseDone(phase, reason))

    def warn(self, text: str, *, is_passing: bool = False) -> None:
        """Note a warning that appears in the result, once.

        is_passing: it depends on the time that is left, and is repeated if the study continues.
        """
        noted = self._store.current(WarningNoted) if is_passing else self._store.all(WarningNoted)
        if all(note.text != text for note in noted):
            self._store.add(WarningNoted(text, is_passing))
            self._listen(Warned(text))

    def leave_undone(self, what: str) -> None:
        """Note what there was no time for ("to ..."); one line reports all of it at the end."""
        self._store.add(WarningNoted(f"{NO_TIME} {what}", is_passing=True))
