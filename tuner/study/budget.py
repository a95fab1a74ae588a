"""The wall-clock budget of a study, over all its sessions."""

from __future__ import annotations

from tuner.launchers.clock import WALL_CLOCK, Clock


class Budget:
    """Seconds granted and used; a resumed study goes on where the last session stopped."""

    def __init__(
        self,
        total_s: float,
        used_before_s: float = 0.0,
        *,
        is_over: bool = False,
        clock: Clock = WALL_CLOCK,
    ) -> None:
        """is_over: the study is finished, and rendering it again uses nothing."""
        self.total_s = total_s
        self._is_over = is_over
        self._used_before_s = used_before_s
        self._clock = clock
        self._began_s = clock.now_s()

    def used_s(self) -> float:
        """Return the seconds used so far, earlier sessions included."""
        passed_s = 0.0 if self._is_over else self._clock.now_s() - self._began_s
        return self._used_before_s + passed_s

    def left_s(self) -> float:
        """Return the seconds left; negative once it is overdrawn."""
        return self.total_s - self.used_s()
