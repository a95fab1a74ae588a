"""Studies of a fleet in a database that many can look at: PostgreSQL or MySQL, as Optuna has it.

Only drivers write to it, each study when it has ended, from the file that came back with it: what
the database misses while it is away is copied when it is there again. It is a copy: nothing rests
on it, and its password stands in no file, log or list of processes.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

import optuna
from optuna.exceptions import DuplicatedStudyError, StorageInternalError
from optuna.storages import RDBStorage
from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError, DataError, SQLAlchemyError

from tuner import interrupts
from tuner.errors import UsageError
from tuner.search.search import study_in

PASSWORD = "TUNE_FRAMEWORK_STORAGE_PASSWORD"
"""The variable with the password, if the address has none. PostgreSQL's own ~/.pgpass and
PGPASSWORD work as well."""
_TELLING = re.compile("passw|pwd", re.IGNORECASE)
"""In the name of an address's parameter: its value is a password."""
_COPIED = "tune-framework: copied"
_DRIVERS = {"postgresql": "psycopg", "mysql": "pymysql"}
_POOL = {"pool_size": 2, "max_overflow": 0, "pool_pre_ping": True, "pool_recycle": 600}
_PATIENT = {
    "postgresql": {
        "connect_timeout": 5,
        "options": "-c statement_timeout=20000",
        "tcp_user_timeout": 20000,
        "client_encoding": "utf8",  # of a database without one, psycopg returns bytes
    },
    "mysql": {"connect_timeout": 5, "read_timeout": 20, "write_timeout": 20},
}
"""A database that does not answer is waited for no longer than 20 s at a time."""


class Away(Exception):  # no fault: it may be back in a moment
    """The database does not take anything now."""


class Database:
    """A database by its address. Raises UsageError for one that cannot be, or is not there."""

    def __init__(self, address: str) -> None:
        url = _url_of(address)
        self.shown = str(url)
        """Its address, without a password."""
        system = url.get_backend_name()
        if (password := os.environ.get(PASSWORD)) is not None:
            url = url.set(password=password)
        url = url.set(drivername=f"{system}+{_DRIVERS[system]}")
        self._url = url.render_as_string(hide_password=False)
        self._engine = {**_POOL, "connect_args": _PATIENT[system]}
        self._storage: RDBStorage | None = None
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        try:
            self._connect()
        except Away as error:
            raise UsageError(f"--storage {self.shown}: {error}") from error

    def _connect(self) -> RDBStorage:
        if self._storage is None:
            try:
                with interrupts.held_back():
                    self._storage = RDBStorage(self._url, engine_kwargs=dict(self._engine))
            except ImportError as error:
                cause = error if error.name else error.__cause__
                name = getattr(cause, "name", None) or "its driver"
                raise UsageError(
                    f"--storage {self.shown}: {name} is not installed: pip install "
                    "'tune-framework[fleet]'"
                ) from error
            except (SQLAlchemyError, StorageInternalError, RuntimeError) as error:
                raise Away(_reason(error)) from error
        return self._storage

    def copied(self) -> set[str]:
        """Return the studies that are there whole; nothing while the database is away."""
        try:
            with interrupts.held_back():
                found = self._connect().get_all_studies()
        except (Away, SQLAlchemyError, StorageInternalError):
            return set()
        return {each.study_name for each in found if each.user_attrs.get(_COPIED)}

    def copy(self, name: str, path: Path) -> str:
        """Copy a study's file, unless it is there; return why it never will be, or nothing.

        The rest of an interrupted copy is made again. Raises Away.
        """
        if not path.is_file():
            return f"{path} is not there"
        try:  # before the database, which would be blamed
            with interrupts.held_back(), study_in(path) as (own, source):
                optuna.load_study(study_name=own, storage=source).get_trials(deepcopy=False)
        except KeyError as error:
            return f"{path} holds no study ({error})"
        except (SQLAlchemyError, StorageInternalError) as error:
            return f"{path} cannot be read: {_reason(error)}"
        storage = self._connect()
        try:
            with interrupts.held_back(), study_in(path) as (own, source):
                try:
                    there = optuna.load_study(study_name=name, storage=storage)
                    if there.user_attrs.get(_COPIED):
                        return ""
                    optuna.delete_study(study_name=name, storage=storage)
                except KeyError:  # there is none yet
                    pass
                optuna.copy_study(
                    from_study_name=own, from_storage=source, to_storage=storage, to_study_name=name
                )
                study = optuna.load_study(study_name=name, storage=storage)
                study.set_user_attr(_COPIED, True)
        except DuplicatedStudyError as error:
            raise Away(f"another driver copies {name} at this moment") from error
        except (SQLAlchemyError, StorageInternalError) as error:
            self.close()
            if isinstance(error, DataError) or isinstance(error.__cause__, DataError):
                with contextlib.suppress(KeyError, SQLAlchemyError, StorageInternalError):
                    optuna.delete_study(study_name=name, storage=self._connect())
                return f"the database cannot hold {name}: {_reason(error)}"
            raise Away(_reason(error)) from error
        return ""

    def close(self) -> None:
        """Let go of every connection; another call makes new ones."""
        if self._storage is not None:
            self._storage.remove_session()
            self._storage.engine.dispose()
            self._storage = None


def _url_of(address: str) -> URL:
    """Read an address; raises UsageError for one that cannot be."""
    try:
        url = make_url(address)
        system = url.get_backend_name()
    except (ArgumentError, ValueError) as error:
        raise UsageError(
            "--storage is no address of a database: write postgresql://USER@HOST/NAME"
        ) from error
    if system not in _DRIVERS:
        raise UsageError(
            f"--storage {system}://: studies are copied to {' or '.join(_DRIVERS)}; a single "
            "study's own file is its study.db"
        )
    if url.password is not None or any(_TELLING.search(name) for name in url.query):
        raise UsageError(
            "--storage has a password in it, which every user of this machine sees in the list of "
            f"processes: leave it out and set {PASSWORD}"
        )
    return url


def _reason(error: BaseException) -> str:
    """Return the database's message, on one line; its messages name no password."""
    cause = getattr(error, "orig", None) or getattr(error.__cause__, "orig", None) or error
    said = cause.args[-1] if cause.args else cause  # MySQL's has a number before it
    lines = [line.strip() for line in str(said).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(cause).__name__
