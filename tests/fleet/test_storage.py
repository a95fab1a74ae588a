"""Studies copied to real servers, which restart, and whose password nobody learns."""

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import optuna
import pytest

from tests.fleet.databases import Server
from tests.wants import needs
from tuner.errors import UsageError
from tuner.fleet.storage import PASSWORD, Away, Database

pytestmark = needs("psycopg")


REFUSALS = ("password authentication failed for user", "Access denied for user")


@pytest.fixture
def database(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    monkeypatch.setenv(PASSWORD, server.password)
    with closing(Database(server.address)) as made:
        yield made


def test_a_study_is_copied_whole_and_once(
    database: Database, server: Server, finished_study: Path
) -> None:
    path = finished_study / "study.db"
    own = optuna.load_study(study_name="study", storage=f"sqlite:///{path}")
    assert database.copy("f/whole", path) == ""
    assert database.copy("f/whole", path) == ""
    assert server.n_trials("f/whole") == len(own.trials) > 3


def test_what_was_copied_in_part_is_copied_again(
    database: Database, server: Server, finished_study: Path
) -> None:
    path = finished_study / "study.db"
    own = optuna.load_study(study_name="study", storage=f"sqlite:///{path}")
    begun = optuna.create_study(study_name="f/part", storage=database._connect())
    begun.add_trials(own.trials[:2])  # a driver was killed here
    assert server.n_trials("f/part") == 2
    assert database.copy("f/part", path) == ""
    assert server.n_trials("f/part") == len(own.trials) > 2


def test_a_database_that_restarts_gets_what_it_missed(
    database: Database, server: Server, finished_study: Path
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
    assert server.n_trials("f/late") > 3


def test_a_wrong_password_is_said_and_not_shown(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PASSWORD, "not-this-one")
    with pytest.raises(UsageError) as error:
        Database(server.address)
    assert any(said in str(error.value) for said in REFUSALS)
    assert "not-this-one" not in str(error.value)


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("postgresql://u:secret@127.0.0.1/d", PASSWORD),
        ("postgresql://u@127.0.0.1/d?sslmode=prefer&password=secret", PASSWORD),
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
    path = tmp_path / "study.db"
    assert "is not there" in database.copy("f/none", path)
    path.write_bytes(b"no database" * 1000)
    assert f"{path} cannot be read" in database.copy("f/none", path)


@pytest.mark.slow
@pytest.mark.parametrize("server", ["mysql"], indirect=True)
def test_a_study_that_the_database_cannot_hold_is_said_and_nothing_is_left_of_it(
    database: Database, server: Server, finished_study: Path, tmp_path: Path
) -> None:
    path = tmp_path / "study.db"
    shutil.copy(finished_study / "study.db", path)
    own = optuna.load_study(study_name="study", storage=f"sqlite:///{path}")
    own.set_user_attr("long", "x" * 70_000)  # MySQL's TEXT ends at 65,535 bytes
    assert "cannot hold f/long: Data too long" in database.copy("f/long", path)
    assert server.n_trials("f/long") == 0
    assert database.copy("f/whole", finished_study / "study.db") == ""
