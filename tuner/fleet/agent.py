"""The code on a host: it describes the host, carries out one order and reports progress.

It does not know how it is called remotely; no call takes longer than its limit.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tuner.errors import TuneError
from tuner.fleet.fitness import unfit_now
from tuner.fleet.mirror import Watcher, is_ahead, replace
from tuner.fleet.orders import Began, Ended, Order, Refused, Report, Tune, decode, encode
from tuner.fleet.run_study import VERIFICATION
from tuner.host.secrets import redact_file, redacted
from tuner.launchers.supervised import Supervised
from tuner.record.integrity import LAUNCHES

_TELL_S = 100.0
"""Seconds for this host to describe itself."""
_BETWEEN_S = 5.0
"""Seconds between two looks at progress: each of them disturbs the measurement a little."""
_LOOKS_S = 0.2
"""Between two looks at whether the process has ended."""
_LAST_WORDS = 2000


def look(files: list[str]) -> bytes:
    """Describe this host, and return which of some files are missing. Returns a Seen, encoded.

    Raises RuntimeError with the reason if it cannot.
    """
    command = [sys.executable, "-P", "-m", "tuner.fleet.probe_host", *files]
    try:
        done = subprocess.run(
            command, env=_surroundings(), capture_output=True, check=False, timeout=_TELL_S
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"it did not answer within {_TELL_S:.0f} s") from error
    if done.returncode != 0:
        raise RuntimeError(_last_line(done.stderr.decode(errors="replace")))
    return done.stdout


def places() -> Path:
    """Return the folder of a host's copies of studies until the driver has them."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "tune-framework" / "fleet"


def _surroundings() -> dict[str, str]:
    """Return the environment that this host's node was started in.

    Ray gives its workers variables of its own, OMP_NUM_THREADS among them: no setting of the host.
    """
    try:
        listed = Path(f"/proc/{os.getppid()}/environ").read_bytes().split(b"\0")
        pairs = (each.decode(errors="surrogateescape").partition("=") for each in listed if each)
        found = {name: value for name, _, value in pairs}
    except OSError:
        found = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    return {k: v for k, v in found.items() if not k.startswith("RAY_")}


def _last_line(text: str) -> str:
    lines = [line for line in redacted(text).splitlines() if line.strip()]
    return lines[-1].removeprefix("error: ") if lines else ""


class Agent:
    """Carries out one order in a process of its own, which ends with it."""

    def __init__(self) -> None:
        self._process: Supervised | None = None
        self._place = self._study = self._log = Path()
        self._watcher = Watcher(self._study)
        self._told = Report(0, [])
        self._looked_s = 0.0

    def begin(self, data: bytes) -> bytes:
        """Begin an Order; returns Began, or Refused if the host is not suitable now."""
        order: Order = decode(data, Order)
        if order.most_foreign < 1 and (fault := self._unfit(order.most_foreign)):
            return encode(Refused(fault))
        name = order.study if isinstance(order.job, Tune) else f"{order.study}.verified"
        self._place = places() / order.fleet / name
        self._study, self._log = self._place / "study", self._place / "said.log"
        try:
            ahead = isinstance(order.job, Tune) and is_ahead(self._study, order.archive)
            if not ahead:
                replace(self._study, order.archive)
            self._watcher = Watcher(self._study)
            if not ahead:
                self._watcher.knows(order.archive)
            written = self._place / "order"
            written.write_bytes(encode(order.job))
            for left in (self._place / VERIFICATION, self._log):
                left.unlink(missing_ok=True)
        except (OSError, TuneError) as error:
            return encode(Refused(f"{self._place} cannot be written: {error}"))
        arguments = ["-m", "tuner.fleet.run_study", str(written), str(self._study)]
        self._process = Supervised(arguments, _surroundings(), self._log, cwd=self._place)
        return encode(Began(ahead))

    def _unfit(self, most_foreign: float) -> str:
        try:
            return unfit_now(places(), most_foreign)
        except (OSError, RuntimeError, TuneError) as error:  # a host that cannot even be looked at
            return f"it cannot be seen how calm it is: {error}"

    def fetch(self, acknowledged: int) -> bytes:
        """Wait a little for progress, and return it as a Report.

        acknowledged: the number of the last report that arrived; another is sent again.
        """
        assert self._process is not None
        if self._told.number != acknowledged:
            return encode(self._told)
        until_s = self._looked_s + _BETWEEN_S
        while not (account := self._process.ended()) and time.monotonic() < until_s:
            time.sleep(_LOOKS_S)
        self._looked_s = time.monotonic()
        if account:  # a tool that was killed could not do it
            for log in (self._study / LAUNCHES).glob("*.log"):
                redact_file(log)
        pieces = self._watcher.changes(is_ended=bool(account))
        ended = self._ended(account) if account and not pieces else None
        self._told = Report(self._told.number + 1, pieces, ended)
        return encode(self._told)

    def _ended(self, account: dict[str, Any]) -> Ended:
        code = account.get("exit", -account.get("signal", 9))
        if code == 0:
            said = self._place / VERIFICATION
            return Ended(0, "", said.read_bytes() if said.exists() else b"")
        words = self._log.read_bytes()[-_LAST_WORDS:] if self._log.exists() else b""
        return Ended(code, account.get("error") or _last_line(words.decode(errors="replace")))

    def forget(self) -> bytes:
        """Remove this host's copy of the study: the driver has all of it."""
        if self._process is not None:
            self._process.close()
        shutil.rmtree(self._place, ignore_errors=True)
        for folder in (self._place.parent, places()):
            try:
                folder.rmdir()
            except OSError:  # other studies lie there
                break
        return b""
