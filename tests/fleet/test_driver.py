"""What a driver makes of hosts that come and go, by a clock of their own."""

import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import msgspec
import pytest

from benchmarks.made_up_fleet import drive, made_up, rows_of
from tuner.fleet.claims import Claims
from tuner.fleet.cluster import Node
from tuner.fleet.job_queue import MOST_ATTEMPTS, JobQueue, Work
from tuner.fleet.mirror import Piece
from tuner.fleet.orders import Order, Seen
from tuner.fleet.roster import Roster
from tuner.fleet.simulated import Behaviour
from tuner.record.events import HostSeen, StudyPlaced, StudyReturned, Warned
from tuner.record.fleet import Board, RowNoted
from tuner.record.index import Elsewhere, Kind
from tuner.version import __version__

STUDY_S = (100.0, 100.0)


@pytest.fixture
def boards() -> Iterator[Callable[[Path], Board]]:
    """Return what opens a board, to be closed in the end."""
    with ExitStack() as stack:
        yield lambda folder: stack.enter_context(closing(Board(folder)))


def test_every_model_is_tuned_on_every_kind_and_confirmed_on_another_host(tmp_path: Path) -> None:
    run = drive(tmp_path, n_hosts=6, n_models=5, n_kinds=3)
    rows = run.queue.index_rows()
    assert len(rows) == 15
    assert {row.state for row in rows} == {"done"}
    for row in rows:
        (said,) = row.elsewhere
        assert said.host != row.host
        assert row.is_recommended()
    assert Counter(run.callbacks.ordered).most_common(1)[0][1] == 1  # nothing was done twice


def test_where_a_kind_has_one_host_nothing_is_confirmed_and_nothing_waits(tmp_path: Path) -> None:
    run = drive(tmp_path, n_hosts=2, n_models=2, n_kinds=2)
    assert all(not row.elsewhere and row.is_recommended() for row in run.queue.index_rows())
    assert run.cluster.now() < 3600


def test_more_hosts_take_less_time(tmp_path: Path) -> None:
    steady = Behaviour(study_s=STUDY_S)
    seconds = [
        drive(tmp_path / str(n), n_hosts=n, n_models=32, n_elsewhere=0, behaviour=steady)
        .cluster.now()
        for n in (1, 8)
    ]  # fmt: skip
    assert seconds[0] / seconds[1] > 7


def test_under_hosts_that_vanish_every_study_is_done_once(tmp_path: Path) -> None:
    run = drive(tmp_path, n_hosts=8, n_models=40, behaviour=Behaviour(vanishes=0.2), seed=3)
    rows = run.queue.rows.values()
    assert {row.state for row in rows} == {"done"}
    placed = [e for e in run.callbacks.events if isinstance(e, StudyPlaced)]
    lost = [e for e in run.callbacks.events if isinstance(e, StudyReturned)
            and e.state == "interrupted"]  # fmt: skip
    assert lost
    assert len(placed) == len(run.callbacks.ordered) == 80 + len(lost)


def test_a_study_under_which_every_host_vanishes_is_given_up(tmp_path: Path) -> None:
    run = drive(tmp_path, n_hosts=3, n_models=1, behaviour=Behaviour(vanishes=1.0))
    (row,) = run.queue.rows.values()
    assert row.state == "pending"  # another run may have better hosts
    assert f"given up after {MOST_ATTEMPTS} attempts" in row.reason
    assert len(run.callbacks.ordered) == MOST_ATTEMPTS


def test_a_noisy_host_is_passed_over_and_said(tmp_path: Path) -> None:
    run = drive(tmp_path, n_hosts=4, n_models=10, behaviour=Behaviour(is_busy=0.5), seed=1)
    assert {row.state for row in run.queue.rows.values()} == {"done"}
    told = [e.fault for e in run.callbacks.events if isinstance(e, HostSeen) and e.fault]
    assert any("other programs use" in fault for fault in told)


def test_where_both_hosts_had_part_in_a_study_the_one_that_did_not_end_it_confirms(
    tmp_path: Path, boards: Callable[[Path], Board]
) -> None:
    """As after a driver was stopped whose study went on elsewhere."""
    drive(tmp_path, n_hosts=2, n_models=1, n_elsewhere=0)
    board = boards(tmp_path)
    (row,) = [note.row for note in board.news() if isinstance(note, RowNoted)][-1:]
    board.add(RowNoted(msgspec.structs.replace(row, hosts=["host0", "host1"])))
    again = drive(tmp_path, n_hosts=2, n_models=1)
    (confirmed,) = again.queue.index_rows()
    assert [each.host for each in confirmed.elsewhere] == [
        host for host in ("host0", "host1") if host != row.host
    ]
    assert confirmed.is_recommended()


def test_one_that_had_no_part_in_it_is_asked_first(
    tmp_path: Path, boards: Callable[[Path], Board]
) -> None:
    queue = JobQueue(boards(tmp_path), Claims(tmp_path), tmp_path, lambda kind: rows_of(1, kind), 1)
    for host in ("a", "b", "c"):
        queue.meet(Kind("k", "k" * 64, ""), host)
    (study,) = queue.rows
    queue.rows[study] = msgspec.structs.replace(queue.rows[study], host="b", hosts=["a", "b"])
    confirming = Work(study, "k", is_verification=True)
    assert queue.candidates(confirming, {"a", "b", "c"}) == {"c"}
    assert queue.candidates(confirming, {"a", "b"}) == {"a"}
    assert queue.candidates(confirming, {"b"}) == set()
    assert queue.candidates(Work(study, "k", is_verification=False), {"b"}) == {"b"}


def test_what_is_waited_for_is_said_once_and_left_in_the_end(tmp_path: Path) -> None:
    run = drive(tmp_path, n_hosts=2, n_models=2, behaviour=Behaviour(is_busy=1.0))
    said = [event.text for event in run.callbacks.events if isinstance(event, Warned)]
    assert said[0].startswith("waiting: 2 studies left: no host is fit (")
    assert "other programs use" in said[0]
    assert said[-1].startswith("2 studies left: ")
    assert said[-1].endswith("the same command resumes them")
    assert "confirmations" not in "".join(said)


def test_where_every_host_is_noisy_the_rest_is_left_for_later(tmp_path: Path) -> None:
    run = drive(tmp_path, n_hosts=2, n_models=2, behaviour=Behaviour(is_busy=1.0))
    assert {row.state for row in run.queue.rows.values()} == {"pending"}


@pytest.mark.parametrize(("verdict", "ships"), [("refuted", False), ("inconclusive", False)])
def test_what_another_host_does_not_confirm_is_not_shipped(
    tmp_path: Path, verdict: str, ships: bool
) -> None:
    def says(order: Order, draw: random.Random) -> tuple[Iterable[Piece], bytes]:
        pieces, _ = made_up(order, draw)
        return pieces, msgspec.json.encode({"verdict": verdict, "gain": 0.9})

    run = drive(tmp_path, n_hosts=4, n_models=1, makes_up=says)
    (row,) = run.queue.index_rows()
    assert row.is_recommended() is ships
    asked = [said.host for said in row.elsewhere]
    assert len(asked) == len(set(asked)) == (2 if verdict == "inconclusive" else 1)


def test_as_many_others_are_asked_as_are_wanted(tmp_path: Path) -> None:
    run = drive(tmp_path, n_hosts=5, n_models=2, n_elsewhere=3)
    for row in run.queue.rows.values():
        assert len({row.host, *(said.host for said in row.elsewhere)}) == 4


def test_the_same_command_does_nothing_again(tmp_path: Path) -> None:
    drive(tmp_path, n_hosts=2, n_models=3)
    again = drive(tmp_path, n_hosts=2, n_models=3)
    assert again.callbacks.ordered == []
    assert all(len(row.elsewhere) == 1 for row in again.queue.rows.values())


def test_what_another_driver_has_claimed_is_left_to_it(
    tmp_path: Path, boards: Callable[[Path], Board]
) -> None:
    board = boards(tmp_path)
    theirs = Claims(tmp_path)
    assert theirs.take("m0-torch-k")
    queue = JobQueue(board, Claims(tmp_path), tmp_path, lambda kind: rows_of(2, kind), 0)
    queue.hear()
    queue.meet(Kind("k", "k" * 64, ""), "host")
    there = {"host", "other"}
    first = queue.next_for("k", "host", 0.0, there)
    assert first is not None
    assert first.study == "m1-torch-k"
    assert queue.next_for("k", "other", 0.0, there) is None
    assert queue.are_others_at_work(1.0)
    # the other one finishes it: nobody does it again
    done = msgspec.structs.replace(rows_of(1, "k")[0], state="done", verdict="keep_default")
    with closing(Board(tmp_path)) as other:
        other.add(RowNoted(done))
    theirs.leave("m0-torch-k")
    assert queue.next_for("k", "other", 100.0, there) is None
    assert queue.rows["m0-torch-k"].state == "done"


def test_a_host_with_other_versions_is_passed_over(tmp_path: Path) -> None:
    roster = Roster({"torch": "2.13.0", "kernel": "6.1"})
    new, _ = roster.see([Node("1", "a", "1", True), Node("2", "b", "2", True),
                         Node("3", "c", "3", False), Node("4", "d", "4", True)])  # fmt: skip
    seen = {
        "1": Seen("a", "k", "f" * 64, "", __version__, {"torch": "2.13.0", "kernel": "5.4"}),
        "2": Seen("b", "k", "f" * 64, "", __version__, {"torch": "2.12.0"}),
        "4": Seen("d", "k", "f" * 64, "", "0.0.1", {"torch": "2.13.0"}),
    }
    for host in new:
        if host.node.id in seen:
            roster.introduce(host, seen[host.node.id])
    fit = [host.name for host in roster.free(0.0, ())]
    assert fit == ["a"]  # another kernel is another kind, and no fault
    faults = {host.name: host.fault for host in new}
    assert "torch 2.12.0 instead of 2.13.0" in faults["b"]
    assert "tune_slot" in faults["c"]
    assert "0.0.1" in faults["d"]


def test_a_torn_line_of_the_board_is_passed_over(
    tmp_path: Path, boards: Callable[[Path], Board]
) -> None:
    board = boards(tmp_path)
    row = rows_of(1, "k")[0]
    board.add(RowNoted(row))
    with board.path.open("ab") as file:
        file.write(b'{"type":"row","row":{"mod')  # a driver was killed here
    other = boards(tmp_path)
    other.add(RowNoted(msgspec.structs.replace(row, state="done")))
    assert [note.row.state for note in board.news() if isinstance(note, RowNoted)] == [
        "pending",
        "done",
    ]
    assert other.name == board.name


def test_a_winner_awaits_a_second_host_that_comes_later(tmp_path: Path) -> None:
    drive(tmp_path, n_hosts=1, n_models=2)
    (first, _) = drive(tmp_path, n_hosts=1, n_models=2).queue.index_rows()
    assert first.is_recommended()  # nobody else could be asked
    later = drive(tmp_path, n_hosts=2, n_models=2)
    for row in later.queue.index_rows():
        assert [said.verdict for said in row.elsewhere] == ["confirmed"]
        assert row.n_elsewhere == 1


def test_a_row_that_failed_is_tried_once_more_by_the_same_command(
    tmp_path: Path, boards: Callable[[Path], Board]
) -> None:
    drive(tmp_path, n_hosts=1, n_models=1)
    board = boards(tmp_path)
    (row,) = [note.row for note in board.news() if isinstance(note, RowNoted)][-1:]
    failed = msgspec.structs.replace(row, state="failed", reason="no memory", exit_code=2)
    board.add(RowNoted(failed))
    again = drive(tmp_path, n_hosts=1, n_models=1)
    assert len(again.callbacks.ordered) == 1
    assert {row.state for row in again.queue.rows.values()} == {"done"}


def test_rows_of_what_is_not_asked_for_stay_in_the_index(tmp_path: Path) -> None:
    drive(tmp_path, n_hosts=1, n_models=3)
    fewer = drive(tmp_path, n_hosts=1, n_models=1)
    assert len(fewer.queue.rows) == 1
    assert len(fewer.queue.index_rows()) == 3


def test_a_study_whose_folder_was_removed_is_made_again(tmp_path: Path) -> None:
    run = drive(tmp_path, n_hosts=1, n_models=2)
    study = next(iter(run.queue.rows))
    shutil.rmtree(tmp_path / study)
    again = drive(tmp_path, n_hosts=1, n_models=2)
    assert again.callbacks.ordered == [(study, False)]


def test_what_others_said_of_a_winner_says_nothing_of_the_next(tmp_path: Path) -> None:
    study = next(iter(drive(tmp_path, n_hosts=2, n_models=1).queue.rows))
    shutil.rmtree(tmp_path / study)
    again = drive(tmp_path, n_hosts=2, n_models=1)
    assert again.callbacks.ordered == [(study, False), (study, True)]
    (row,) = again.queue.index_rows()
    assert [said.verdict for said in row.elsewhere] == ["confirmed"]
    assert row.host not in [said.host for said in row.elsewhere]


def test_where_nobody_is_left_to_ask_nothing_is_waited_for(tmp_path: Path) -> None:
    def says(order: Order, draw: random.Random) -> tuple[Iterable[Piece], bytes]:
        pieces, _ = made_up(order, draw)
        return pieces, msgspec.json.encode({"verdict": "inconclusive", "gain": 1.1})

    run = drive(tmp_path, n_hosts=2, n_models=1, makes_up=says)
    assert not [event for event in run.callbacks.events if isinstance(event, Warned)]
    (row,) = run.queue.index_rows()
    assert len(row.elsewhere) == 1
    assert not row.is_recommended()


def test_a_winner_is_confirmed_once_however_its_study_ended(
    tmp_path: Path, boards: Callable[[Path], Board]
) -> None:
    """Another driver has finished a study that still stands in this one's queue."""
    queue = JobQueue(boards(tmp_path), Claims(tmp_path), tmp_path, lambda kind: rows_of(1, kind), 1)
    kind = Kind("k", "k" * 64, "")
    queue.meet(kind, "a")
    (study,) = queue.rows
    won = msgspec.structs.replace(
        queue.rows[study], state="done", verdict="faster", host="a", hosts=["a"]
    )
    with closing(Board(tmp_path)) as other:
        other.add(RowNoted(won))
    queue.meet(kind, "b")
    there = {"a", "b"}
    confirming = queue.next_for("k", "b", 0.0, there)
    assert confirming is not None
    assert confirming.is_verification
    queue.meet(kind, "c")
    there = {"a", "b", "c"}
    assert queue.next_for("k", "c", 1.0, there) is None
    theirs = Claims(tmp_path)
    assert not theirs.take(study)  # the claim of what is at work is not let go of
    queue.confirm(confirming, Elsewhere("b", "confirmed", "", None, 1, 1.0))
    assert theirs.take(study)
    assert not list(queue.left())
    theirs.close()


def test_a_driver_waits_while_another_is_at_work(
    tmp_path: Path, boards: Callable[[Path], Board]
) -> None:
    """Even where it meets none of the other's studies itself, for want of a host."""
    theirs = Claims(tmp_path)
    queue = JobQueue(boards(tmp_path), Claims(tmp_path), tmp_path, lambda kind: rows_of(3, kind), 0)
    queue.meet(Kind("k", "k" * 64, ""), "host")
    assert not queue.are_others_at_work(0.0)
    assert theirs.take("m2-torch-k")
    assert queue.are_others_at_work(10.0)
    theirs.close()
    assert not queue.are_others_at_work(20.0)


def test_a_host_that_comes_back_while_its_former_self_is_still_listed_is_the_same_one() -> None:
    roster = Roster({})
    said = Seen("a", "k", "f" * 64, "", __version__, {})
    nodes = [Node("1", "a", "10.0.0.1", True), Node("2", "a", "10.0.0.2", True)]
    new, _ = roster.see(nodes)
    for host in new:
        roster.introduce(host, said)
    assert {host.name for host in new} == {"a", "a@10.0.0.2"}  # two machines of one name
    (again,), _ = roster.see([*nodes, Node("3", "a", "10.0.0.1", True)])
    roster.introduce(again, said)
    assert again.name == "a"
    assert roster.there() == {"k": {"a", "a@10.0.0.2"}}
