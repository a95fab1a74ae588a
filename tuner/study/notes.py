"""What a study says of its course: phases begun and ended, warnings, what there was no time for."""

from __future__ import annotations

from tuner.record.events import Listener, PhaseBegins, Warned
from tuner.record.journal import Phase, PhaseDone, WarningNoted
from tuner.record.store import Store

NO_TIME = "the budget left no time"


class Notes:
    """Kept in the store, so that a resumed study and the result know them; told to a listener."""

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
        """Note a warning that travels with the result, once.

        is_passing: it is of the time that is left; where the study goes on, it is told anew.
        """
        noted = self._store.current(WarningNoted) if is_passing else self._store.all(WarningNoted)
        if all(note.text != text for note in noted):
            self._store.add(WarningNoted(text, is_passing))
            self._listen(Warned(text))

    def leave_undone(self, what: str) -> None:
        """Note what the budget has no time for ("to ..."); one line tells all of it at the end."""
        self._store.add(WarningNoted(f"{NO_TIME} {what}", is_passing=True))
