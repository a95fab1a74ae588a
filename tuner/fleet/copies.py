"""What of a fleet's studies a database still lacks, and its way there (fleet/storage.py)."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path

from tuner.fleet.claims import Claims
from tuner.fleet.storage import Away, Database
from tuner.record.events import Listener, Warned
from tuner.record.index import Row

_AGAIN_S = 10.0
"""Seconds before a copy that the database refused is tried again."""
_LOOK_S = 1.0
_LAST_S = 60.0
"""How long a database that takes nothing is waited for when everything has ended."""


class Copies:
    """Brings finished studies into a database, one at a time, as far as it takes them."""

    def __init__(
        self, database: Database, claims: Claims, fleet: str, folder: Path, listen: Listener
    ) -> None:
        self._database, self._claims = database, claims
        self._fleet, self._folder, self._listen = fleet, folder, listen
        self._known = {name for name in database.copied() if name.startswith(f"{fleet}/")}
        """Studies that are there, or wait here."""
        self._lacking: deque[str] = deque()
        self._look_s = self._again_s = 0.0
        self._is_away = False

    def _look(self, rows: Iterable[Row]) -> None:
        for row in rows:
            name = f"{self._fleet}/{row.folder}"
            if row.state == "done" and name not in self._known:
                self._known.add(name)
                self._lacking.append(row.folder)

    def copy_one(self, rows: Iterable[Row]) -> None:
        """Copy one missing study, if it is time; refused ones come last then."""
        now_s = time.monotonic()
        if now_s >= self._look_s:
            self._look(rows)
            self._look_s = now_s + _LOOK_S
        if not self._lacking or now_s < self._again_s:
            return
        study = self._lacking.popleft()
        claim = f"{study}.copy"
        try:
            if not self._claims.take(claim):  # another driver copies it: look again in a while
                self._lacking.append(study)
                self._again_s = now_s + _AGAIN_S
                return
            path = self._folder / study / "study.db"
            if fault := self._database.copy(f"{self._fleet}/{study}", path):
                self._listen(Warned(f"--storage: {fault}; it is not copied"))
            self._is_away = False
        except Away as error:
            self._lacking.append(study)
            self._again_s = now_s + _AGAIN_S
            if not self._is_away:
                self._listen(Warned(
                    f"--storage {self._database.shown}: {error}; studies go on, and are copied "
                    "when it takes them"
                ))  # fmt: skip
            self._is_away = True
        finally:
            self._claims.leave(claim)

    def finish(self, rows: Iterable[Row]) -> None:
        """Copy the rest, as long as the database accepts anything within a minute."""
        self._look(rows)
        until_s = time.monotonic() + _LAST_S
        while self._lacking and time.monotonic() < until_s:
            n_before = len(self._lacking)
            self.copy_one(())
            if len(self._lacking) < n_before:
                until_s = time.monotonic() + _LAST_S
            else:
                time.sleep(0.5)
        if self._lacking:
            self._listen(Warned(
                f"--storage {self._database.shown}: {len(self._lacking)} studies are not copied: "
                "the same command copies them"
            ))  # fmt: skip
