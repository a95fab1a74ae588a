"""What can go wrong, as a person should read it.

TuneError                    what happened, with what value, and what to do
├── UsageError               bad input: nothing was measured                  exit 2
│   ├── ProfileError         a search-space file is wrong (file, line)
│   ├── ExpressionError      a formula in one is wrong (column)
│   ├── UnknownName          a model, profile, knob or framework that does not exist
│   ├── MissingFramework     the framework is not installed
│   └── StudyConflict        the output folder holds or serves another study
├── NothingMeasured          no configuration gave a single measurement       exit 3
├── StorageFailed            the disk refused what was measured               exit 1
├── StudyDamaged             files of a study are lost on which it rests       exit 1
├── CannotRun                `run` cannot start the program (deploy/run.py)    exit 125-127
└── WorkerFailed             a measured process broke, with its outcome       (an outcome)
    └── Silent               a server takes requests and never answers       (an outcome)
Interrupted                  Ctrl-C or SIGTERM: resumable                      exit 130
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path


class TuneError(Exception):
    """Base of everything this tool raises on purpose; `exit_code` is what the command returns."""

    exit_code = 1


class UsageError(TuneError):
    """The request cannot be carried out as written."""

    exit_code = 2


class ProfileError(UsageError):
    """A search-space file is wrong; the message carries file, line, fault and what is allowed."""

    def __init__(self, path: Path, line: int | None, fault: str, allowed: str) -> None:
        where = f"{path}:{line}" if line is not None else str(path)
        super().__init__(f"{where}: {fault}; {allowed}")
        self.path, self.line, self.fault, self.allowed = path, line, fault, allowed


class ExpressionError(UsageError):
    """A formula cannot be read or evaluated; the message carries the formula and the column."""

    def __init__(self, text: str, column: int, fault: str) -> None:
        super().__init__(f"formula {text!r}, column {column + 1}: {fault}")
        self.text, self.column, self.fault = text, column, fault


class UnknownName(UsageError):
    """A name that does not exist, with the close matches and where to list them all."""

    def __init__(self, what: str, name: str, known: Iterable[str], listing: str) -> None:
        names = sorted(known)
        close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
        guess = f"did you mean {' or '.join(close)}? " if close else ""
        super().__init__(f"unknown {what} {name!r}: {guess}{listing}")


class MissingFramework(UsageError):
    """A framework is asked for that is not installed here."""


class StudyConflict(UsageError):
    """The output folder holds a study of another identity, or another tool is using it."""


class NothingMeasured(TuneError):
    """Not one configuration could be measured; the message counts the reasons."""

    exit_code = 3


class StorageFailed(TuneError):
    """A record could not be written (disk full, read-only); what was stored before is intact."""


class StudyDamaged(TuneError):
    """A study's files were damaged since they were written; the message names the file."""


class WorkerFailed(TuneError):
    """The measured process ended or answered wrongly; carries the log's last lines."""


class Silent(WorkerFailed):
    """A server takes requests and does not answer; the message says what probably happened."""


class Interrupted(KeyboardInterrupt):
    """Stopped by the user or by SIGTERM; a study goes on where it stopped.

    No Exception: what catches those must not catch this.
    """

    exit_code = 130
