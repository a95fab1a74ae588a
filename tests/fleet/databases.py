"""A real PostgreSQL server, started as any user who has its programs may; never as root."""

import contextlib
import os
import pwd
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from benchmarks.ray_nodes import free_port

USER, NAME = "tuner", "studies"
_AS_ROOT = "postgres"
"""Under whom it runs where the tests run as root."""


def program(name: str) -> str | None:
    """Return one of PostgreSQL's programs; Debian keeps them apart."""
    beside = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(beside[-1]) if beside else shutil.which(name)


def lacking() -> str:
    """Say what a server cannot be started without; empty where nothing lacks."""
    if program("initdb") is None:
        return "PostgreSQL is not installed here"
    if os.getuid() == 0 and _AS_ROOT not in {each.pw_name for each in pwd.getpwall()}:
        return f"root may not run PostgreSQL, and there is no user {_AS_ROOT}"
    return ""


class Postgres:
    """A server with one database, for one user with a password."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.password = secrets.token_hex(12)
        self.port = free_port()
        self._user = {"user": _AS_ROOT, "group": _AS_ROOT} if os.getuid() == 0 else {}
        if self._user:
            shutil.chown(folder, _AS_ROOT, _AS_ROOT)
        self._run("initdb", "-D", str(folder / "data"), "-U", "admin", "--auth=trust", "-N",
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

    def start(self) -> None:
        options = f"-p {self.port} -k {self.folder} -c listen_addresses=127.0.0.1 -c fsync=off"
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-w", "-l",
                  str(self.folder / "log"), "-o", options, "start")  # fmt: skip

    def stop(self) -> None:
        """Stop it at once, whoever is connected."""
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-w", "-m", "immediate", "stop")


@contextlib.contextmanager
def postgres(folder: Path) -> Iterator[Postgres]:
    """Yield a server; nothing of it is left."""
    server = Postgres(folder)
    try:
        yield server
    finally:
        with contextlib.suppress(AssertionError):  # it is stopped already
            server.stop()
