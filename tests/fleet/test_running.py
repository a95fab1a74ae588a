"""A whole run of a fleet over simulated hosts that bring back real studies of the fake."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from urllib.parse import quote

import msgspec
import pytest

from tests.command import DESIGNED, Here
from tests.fleet.databases import Server
from tuner.app.request import Request
from tuner.errors import UsageError
from tuner.fleet.mirror import Piece, archive
from tuner.fleet.orders import Order, Verify
from tuner.fleet.running import tune_fleet
from tuner.fleet.simulated import Behaviour, SimulatedCluster
from tuner.fleet.storage import PASSWORD
from tuner.fleet.study_specs import as_everywhere, specs_of, versions_of
from tuner.record.events import Event, Warned
from tuner.record.files import read_result
from tuner.record.index import Row
from tuner.record.interval import Interval
from tuner.study.verification import Conclusion, Verification

GAIN = Interval(1.2, 1.1, 1.3, 0.95)
SAID = Verification(Conclusion.CONFIRMED, "", GAIN, GAIN, 4, 60.0, [], [], [])


def nothing(order: Order) -> None:
    """Leave all as it is when a host ends an order."""


def tune(
    folder: Path,
    study: Path,
    listen: Callable[[Event], None],
    *,
    n_kinds: int = 1,
    storage: str | None = None,
    as_it_ends: Callable[[Order], None] = nothing,
    said: Verification = SAID,
) -> list[Row]:
    """Have one model tuned on two hosts of each kind, whose studies are all the one that is given.

    as_it_ends: is called in the moment before a host says that an order has ended.
    """
    wanted = DESIGNED
    request = Request(model="", hardware="fake", frameworks=("fake",), budget_s=60.0, out=folder)
    versions = versions_of(specs_of(wanted, as_everywhere(request), listen))
    pieces = archive(study)

    def makes_up(order: Order, draw: Random) -> tuple[Iterable[Piece], bytes]:
        as_it_ends(order)
        return pieces, msgspec.json.encode(said)

    cluster = SimulatedCluster(
        2 * n_kinds, makes_up, n_kinds=n_kinds, versions=versions, behaviour=Behaviour((60.0, 60.0))
    )
    return tune_fleet(wanted, request, listen, lambda: cluster, storage=storage)


def test_the_index_says_what_was_found_and_confirmed_on_each_kind(
    designed_study: Path, tmp_path: Path, here: Here
) -> None:
    orders: list[Order] = []
    rows = tune(tmp_path / "out", designed_study, lambda e: None, n_kinds=2,
                as_it_ends=orders.append)  # fmt: skip
    found = read_result(designed_study / "result.json")
    assert found.verdict == "faster"
    assert len({row.kind for row in rows}) == len(rows) == 2
    for row in rows:
        assert row.speedup == found.speedup
        assert row.seconds == found.seconds.wall
        assert [each.speedup for each in row.elsewhere] == [GAIN]
    page = (tmp_path / "out/index.md").read_text()
    assert "confirmed, 1.20x" in page
    for row in rows:
        assert (tmp_path / "out" / row.folder / "report.html").is_file()
        assert quote(row.folder) in page
    verifications = [order for order in orders if isinstance(order.job, Verify)]
    assert len(verifications) == 2
    for order in verifications:  # all that a host needs, and nothing else
        assert {piece.path for piece in order.archive} >= {"recommended.toml"}
        assert all(piece.path.endswith(".toml") for piece in order.archive)
    compared = here("compare", "out", "--json")
    (change,) = json.loads(compared.stdout)["changes"]
    assert change["is_within_fleet"]
    learnt = here("guidelines", "out", "--out", "rules", "--json")
    assert learnt.returncode == 0, learnt.stderr
    assert json.loads(learnt.stdout)["rules"]


def test_a_page_of_somebody_elses_is_not_replaced(designed_study: Path, tmp_path: Path) -> None:
    (tmp_path / "index.md").write_text("mine")
    with pytest.raises(UsageError, match=r"holds index\.md, which is no index"):
        tune(tmp_path, designed_study, lambda e: None)
    assert [p.name for p in tmp_path.iterdir()] == ["index.md"]


def test_a_winner_that_is_refuted_elsewhere_is_not_shipped(
    designed_study: Path, tmp_path: Path, here: Here
) -> None:
    refuted = msgspec.structs.replace(SAID, verdict=Conclusion.REFUTED, reason="it is slower")
    (row,) = tune(tmp_path / "out", designed_study, lambda e: None, said=refuted)
    assert not row.is_recommended()
    page = (tmp_path / "out/index.md").read_text()
    assert "refuted" in page
    assert "not shipped" in page
    done = here("run", "out/index.json", "--", "false")  # which would end this process with 1
    assert done.returncode == 125
    assert "on this kind of host" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_study_whose_result_cannot_be_read_has_failed(
    designed_study: Path, tmp_path: Path
) -> None:
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    (damaged / "result.json").write_text("{}")
    with pytest.raises(Exception, match="nothing came of any study") as error:
        tune(tmp_path / "out", damaged, lambda e: None)
    assert "result.json" in str(error.value)


@pytest.mark.slow
@pytest.mark.parametrize("server", ["postgresql"], indirect=True)
def test_a_database_that_restarts_under_a_run_has_every_study_in_the_end(
    designed_study: Path, tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PASSWORD, server.password)
    said: list[str] = []
    ended: list[str] = []

    def stop_it(order: Order) -> None:
        if not ended:
            server.stop()
        ended.append(order.study)

    def listen(event: Event) -> None:
        if isinstance(event, Warned):
            said.append(event.text)
            server.start()  # when the driver has noticed

    rows = tune(tmp_path / "out", designed_study, listen, n_kinds=3,
                storage=server.address, as_it_ends=stop_it)  # fmt: skip
    assert len(said) == 1
    assert "studies go on" in said[0]
    assert server.password not in said[0]
    assert len(rows) == 3
    for row in rows:
        assert server.n_trials(f"%/{row.folder}") > 3
