"""The wall-clock budget of a study, over all its sessions."""

from __future__ import annotations

import time


class Budget:
    """Seconds granted and used; a resumed study goes on where the last session stopped."""

    def __init__(self, total_s: float, used_before_s: float = 0.0) -> None:
        self.total_s = total_s
        self._used_before_s = used_before_s
        self._began = time.monotonic()

    def used_s(self) -> float:
        """Return the seconds used so far, earlier sessions included."""
        return self._used_before_s + time.monotonic() - self._began

    def left_s(self) -> float:
        """Return the seconds left; negative once it is overdrawn."""
        return self.total_s - self.used_s()
