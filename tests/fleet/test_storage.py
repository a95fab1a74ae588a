"""Studies copied to a real PostgreSQL, which restarts, and whose password nobody learns."""

import tempfile
from collections.abc import Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import optuna
import pytest

from tests.fleet.databases import Postgres, lacking, postgres
from tuner.errors import UsageError
from tuner.fleet.storage import PASSWORD, Away, Database

pytestmark = [
    pytest.mark.skipif(find_spec("psycopg") is None, reason="an extra: pip install '.[fleet]'"),
    pytest.mark.skipif(bool(lacking()), reason=lacking()),
]


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    # a socket's path has to be short, and another user has to get at it
    with tempfile.TemporaryDirectory(prefix="pg-") as folder:
        Path(folder).chmod(0o755)
        with postgres(Path(folder)) as made:
            yield made


@pytest.fixture
def database(server: Postgres, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    monkeypatch.setenv(PASSWORD, server.password)
    with closing(Database(server.address)) as made:
        yield made


def n_trials(server: Postgres, name: str) -> int:
    return int(server.ask(
        "SELECT count(*) FROM trials JOIN studies USING (study_id) "
        f"WHERE study_name = '{name}'"
    ))  # fmt: skip


def test_a_study_is_copied_whole_and_once(
    database: Database, server: Postgres, finished_study: Path
) -> None:
    path = finished_study / "study.db"
    own = optuna.load_study(study_name="study", storage=f"sqlite:///{path}")
    assert database.copy("f/whole", path) == ""
    assert database.copy("f/whole", path) == ""
    assert n_trials(server, "f/whole") == len(own.trials) > 3


def test_what_was_copied_in_part_is_copied_again(
    database: Database, server: Postgres, finished_study: Path
) -> None:
    path = finished_study / "study.db"
    own = optuna.load_study(study_name="study", storage=f"sqlite:///{path}")
    begun = optuna.create_study(study_name="f/part", storage=database._connect())
    begun.add_trials(own.trials[:2])  # a driver was killed here
    assert n_trials(server, "f/part") == 2
    assert database.copy("f/part", path) == ""
    assert n_trials(server, "f/part") == len(own.trials) > 2


def test_a_database_that_restarts_gets_what_it_missed(
    database: Database, server: Postgres, finished_study: Path
) -> None:
    path = finished_study / "study.db"
    server.stop()
    try:
        with pytest.raises(Away) as error:
            database.copy("f/late", path)
        assert server.password not in str(error.value)
    finally:
        server.start()
    assert database.copy("f/late", path) == ""
    assert n_trials(server, "f/late") > 3


def test_a_wrong_password_is_said_and_not_shown(
    server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PASSWORD, "not-this-one")
    with pytest.raises(UsageError) as error:
        Database(server.address)
    assert "password authentication failed" in str(error.value)
    assert "not-this-one" not in str(error.value)


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("postgresql://u:secret@127.0.0.1/d", PASSWORD),
        ("sqlite:///x.db", "postgresql or mysql"),
        ("nonsense", "no address of a database"),
        ("postgresql://u@127.0.0.1:1/d", "127.0.0.1"),
    ],
)
def test_an_address_that_cannot_be_is_refused(address: str, told: str) -> None:
    with pytest.raises(UsageError) as error:
        Database(address)
    assert told in str(error.value)
    assert "secret" not in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_that_is_none_is_named_and_stops_nothing(database: Database, tmp_path: Path) -> None:
    assert "is not there" in database.copy("f/none", tmp_path / "study.db")
