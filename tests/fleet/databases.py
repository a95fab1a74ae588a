"""Real database servers, started as any user who has their programs may; never as root."""

import contextlib
import os
import pwd
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError

from benchmarks.ray_nodes import free_port
from tests.command import HANGS_S

USER, NAME = "tuner", "studies"
_AS_ROOT = {"postgresql": "postgres", "mysql": "nobody"}
"""Under whom they run where the tests run as root."""
DRIVERS = {"postgresql": "psycopg", "mysql": "pymysql"}
_NEEDS = {
    "postgresql": ("initdb", "pg_ctl", "psql"),
    "mysql": ("mariadbd", "mariadb-install-db", "my_print_defaults"),
}


def program(name: str) -> str | None:
    """Return one of a server's programs; Debian keeps PostgreSQL's apart."""
    beside = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(beside[-1]) if beside else shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")


def lacking(system: str) -> str:
    """Say what a server cannot be started without; empty where nothing lacks."""
    for each in _NEEDS[system]:
        if program(each) is None:
            return f"{each} is not installed here"
    if os.getuid() == 0 and _AS_ROOT[system] not in {each.pw_name for each in pwd.getpwall()}:
        return f"root may not run {_NEEDS[system][0]}, and there is no user {_AS_ROOT[system]}"
    return ""


class Server(Protocol):
    """A server with one database, for one user with a password."""

    password: str

    @property
    def address(self) -> str:
        """Without the password."""

    def create(self) -> None:
        """Make it, start it, and make its user and its database."""

    def n_trials(self, name: str) -> int:
        """Return how many trials there are of studies of a name, or of a pattern of SQL."""

    def start(self) -> None:
        """Start it, and wait until it answers."""

    def stop(self) -> None:
        """Stop it at once, whoever is connected."""


def _given_to(folder: Path, system: str) -> dict[str, int]:
    """Give a folder to whom a server runs as, and return what subprocess is to be told of it."""
    if os.getuid() != 0:
        return {}
    own = pwd.getpwnam(_AS_ROOT[system])
    os.chown(folder, own.pw_uid, own.pw_gid)
    return {"user": own.pw_uid, "group": own.pw_gid}


_N_TRIALS = (
    "SELECT count(*) FROM trials JOIN studies ON trials.study_id = studies.study_id "
    "WHERE study_name LIKE '{}'"
)


class Postgres:
    """PostgreSQL."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.password = secrets.token_hex(12)
        self.port = free_port()
        self._user = _given_to(folder, "postgresql")

    def create(self) -> None:
        self._run("initdb", "-D", str(self.folder / "data"), "-U", "admin", "--auth=trust", "-N",
                  "--locale=C")  # fmt: skip
        access = f"local all admin trust\nhost all {USER} 127.0.0.1/32 scram-sha-256\n"
        self._write("data/pg_hba.conf", access)
        self.start()
        self.ask(f"CREATE ROLE {USER} LOGIN PASSWORD '{self.password}'", "postgres")
        self.ask(f"CREATE DATABASE {NAME} OWNER {USER}", "postgres")

    def _write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def _run(self, name: str, *arguments: str) -> str:
        found = program(name)
        assert found is not None
        done = subprocess.run(
            [found, *arguments], cwd=self.folder, capture_output=True, text=True, check=False,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C"}, **self._user,  # type: ignore[call-overload]
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return str(done.stdout)

    @property
    def address(self) -> str:
        """Without the password."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{NAME}"

    def ask(self, sql: str, database: str = NAME) -> str:
        """Put a question as the administrator; return what psql prints."""
        return self._run("psql", "-h", str(self.folder), "-p", str(self.port), "-U", "admin",
                         "-d", database, "-At", "-c", sql)  # fmt: skip

    def n_trials(self, name: str) -> int:
        return int(self.ask(_N_TRIALS.format(name)))

    def start(self) -> None:
        options = f"-p {self.port} -k {self.folder} -c listen_addresses=127.0.0.1 -c fsync=off"
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-w", "-l",
                  str(self.folder / "log"), "-o", options, "start")  # fmt: skip

    def stop(self) -> None:
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-w", "-m", "immediate", "stop")


class MariaDB:
    """MariaDB, which is what Debian has of MySQL."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.password = secrets.token_hex(12)
        self.port = free_port()
        self._user = _given_to(folder, "mysql")
        self._process: subprocess.Popen[bytes] | None = None

    def create(self) -> None:
        installed = program("mariadb-install-db")
        assert installed is not None
        done = subprocess.run(
            [installed, "--no-defaults", f"--datadir={self.folder / 'data'}", "--skip-test-db",
             "--auth-root-authentication-method=normal"],
            cwd=self.folder, capture_output=True, text=True, check=False, **self._user,  # type: ignore[call-overload]
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        self.start()
        self.ask(f"CREATE DATABASE {NAME}", "mysql")
        self.ask(f"CREATE USER {USER}@'127.0.0.1' IDENTIFIED BY '{self.password}'", "mysql")
        self.ask(f"GRANT ALL ON {NAME}.* TO {USER}@'127.0.0.1'", "mysql")

    @property
    def address(self) -> str:
        return f"mysql://{USER}@127.0.0.1:{self.port}/{NAME}"

    def ask(self, sql: str, database: str = NAME) -> str:
        """Put a question as the administrator; return the first value of the answer."""
        address = f"mysql+pymysql://root@127.0.0.1:{self.port}/{database}"
        engine = create_engine(address, isolation_level="AUTOCOMMIT")
        try:
            with engine.connect() as connection:
                found = connection.execute(text(sql))
                return str(found.scalar()) if found.returns_rows else ""
        finally:
            engine.dispose()

    def n_trials(self, name: str) -> int:
        return int(self.ask(_N_TRIALS.format(name)))

    def start(self) -> None:
        found = program("mariadbd")
        assert found is not None
        self._process = subprocess.Popen(
            [found, "--no-defaults", f"--datadir={self.folder / 'data'}",
             f"--socket={self.folder / 'socket'}", f"--port={self.port}",
             "--bind-address=127.0.0.1", "--skip-name-resolve", f"--pid-file={self.folder / 'pid'}",
             f"--log-error={self.folder / 'log'}", "--innodb-buffer-pool-size=32M"],
            cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **self._user,  # type: ignore[call-overload]
        )  # fmt: skip
        until = time.monotonic() + HANGS_S
        while not self._answers():
            assert self._process.poll() is None, (self.folder / "log").read_text()
            assert time.monotonic() < until
            time.sleep(0.1)

    def _answers(self) -> bool:
        try:
            self.ask("SELECT 1", "mysql")
        except OperationalError:
            return False
        return True

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


_SYSTEMS: dict[str, Callable[[Path], Server]] = {"postgresql": Postgres, "mysql": MariaDB}


@contextlib.contextmanager
def server_of(system: str, folder: Path) -> Iterator[Server]:
    """Yield a server of a system; nothing of it is left."""
    server = _SYSTEMS[system](folder)
    try:
        server.create()
        yield server
    finally:
        with contextlib.suppress(AssertionError):  # it is stopped already
            server.stop()
