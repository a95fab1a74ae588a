"""Waiting for a quiet moment: contention changes which setting is best, so it cannot be averaged.

Called between slices, with every worker stopped: CPU use is then due to others. Time that a
hypervisor steals shows only while something runs. After each disturbed slice in a row the wait is
therefore doubled. One wait takes at most half of the study's remaining allowance, and a tenth of
its remaining budget. On a host that never calms, the study continues and reports it.
"""

from __future__ import annotations

from collections.abc import Callable

from tuner.host.interference import watch_idle
from tuner.launchers.clock import WALL_CLOCK, Clock
from tuner.record.events import Listener, WaitingForQuiet
from tuner.record.journal import Waited
from tuner.record.launch import Interference
from tuner.record.store import Store

WAITING_SHARE = 0.2
"""Share of the budget: the most that all waits together may take."""
_SHARE_OF_LEFT = 0.1
"""Of the seconds that are left, the most that one wait may take: rounds have to fit as well."""
_PROBE_S = 0.5
"""Seconds of one look at the idle host."""
_MAX_PROBES = 16
"""A wait for stolen time, which cannot be seen while nothing runs, is not doubled beyond this."""


class InterferenceGate:
    """Waits for quiet on behalf of one study, within its allowance."""

    def __init__(
        self,
        store: Store,
        listen: Listener,
        allowance_s: float,
        seconds_left: Callable[[], float],
        look: Callable[[float], Interference] = watch_idle,
        clock: Clock = WALL_CLOCK,
    ) -> None:
        """look: watches an idle host for some seconds, and returns what disturbs it."""
        self._store = store
        self._listen = listen
        self._allowance_s = allowance_s
        self._seconds_left = seconds_left
        self._look = look
        self._clock = clock
        self._in_a_row = 0

    def left_s(self) -> float:
        """Return the seconds that may still be waited, over all sessions of the study."""
        return self._allowance_s - sum(note.seconds for note in self._store.all(Waited))

    def after(self, interference: Interference) -> None:
        """Wait for quiet after a disturbed slice; return at once after a clean one.

        A cgroup's quota throttles only what runs: waiting does not help against it.
        """
        if not interference.dirty:
            self._in_a_row = 0
            return
        if interference.throttled_periods and len(interference.dirty) == 1:
            return
        self._in_a_row += 1
        self._wait(min(_MAX_PROBES, 2 ** (self._in_a_row - 1)), interference.dirty[0])

    def _wait(self, n_probes: int, reason: str) -> None:
        at_most_s = min(self.left_s() / 2, _SHARE_OF_LEFT * self._seconds_left())
        began = self._clock.now_s()
        if at_most_s < _PROBE_S:
            return
        waited_s, is_quiet = 0.0, False
        while waited_s < at_most_s and (n_probes > 0 or not is_quiet):
            if waited_s > 0:
                self._listen(WaitingForQuiet(reason, waited_s, at_most_s))
            seen = self._look(_PROBE_S)
            n_probes -= 1
            is_quiet = not seen.dirty
            reason = seen.dirty[0] if seen.dirty else reason
            waited_s = self._clock.now_s() - began
        self._store.add(Waited(waited_s, reason, is_quiet))
