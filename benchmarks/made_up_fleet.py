"""A driver over simulated hosts, with the studies that they make up."""

import random
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from tuner.app.request import Request
from tuner.fleet.claims import Claims
from tuner.fleet.driver import Driver
from tuner.fleet.job_queue import JobQueue, Work
from tuner.fleet.jobs import USUAL, FleetCallbacks, Patience
from tuner.fleet.mirror import Piece
from tuner.fleet.orders import Order, Tune, Verify
from tuner.fleet.roster import Roster
from tuner.fleet.simulated import STEADY, Behaviour, MakesUp, SimulatedCluster
from tuner.record.events import Event
from tuner.record.fleet import Board
from tuner.record.index import Elsewhere, Row
from tuner.record.interval import Interval

VERSIONS = {"python": "3.11.7"}
FASTER = Interval(1.5, 1.4, 1.6, 0.95)


def made_up(order: Order, draw: random.Random) -> tuple[Iterable[Piece], bytes]:
    """Return the only file of a study, and what a verification says: that it is confirmed."""
    said = msgspec.json.encode({"verdict": "confirmed", "gain": draw.uniform(1.4, 1.6)})
    return [Piece("result.json", 0, draw.randbytes(16))], said


class MadeUp:
    """What a driver's work is about, of studies that nobody made."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self.queue: JobQueue
        self.ordered: list[tuple[str, bool]] = []
        self.events: list[Event] = []

    def order(self, work: Work) -> Order:
        self.ordered.append((work.study, work.is_verification))
        job = Verify(60.0) if work.is_verification else Tune(Request(model=work.study))
        return Order(self.board.name, work.study, job, [], 1.0)

    def row(self, study: str, host: str) -> Row:
        row = self.queue.rows[study]
        return msgspec.structs.replace(
            row, state="done", verdict="faster", speedup=FASTER, host=host
        )

    def elsewhere(self, host: str, verification: bytes) -> Elsewhere:
        said = msgspec.json.decode(verification)
        gain = said["gain"]
        return Elsewhere(host, said["verdict"], "", Interval(gain, gain, gain, 0.95), 4, 1.0)

    def keep(self) -> None:
        """Nobody looks."""


def rows_of(n_models: int, kind: str) -> list[Row]:
    return [
        Row(f"m{i}", "torch", folder=f"m{i}-torch-{kind}", kind=kind, options="o")
        for i in range(n_models)
    ]


class Drive(msgspec.Struct):
    """What came of a run of a driver."""

    queue: JobQueue
    callbacks: MadeUp
    roster: Roster
    cluster: SimulatedCluster


def drive(
    folder: Path,
    *,
    n_hosts: int,
    n_models: int,
    n_kinds: int = 1,
    n_elsewhere: int = 1,
    behaviour: Behaviour = STEADY,
    seed: int = 0,
    patience: Patience = USUAL,
    makes_up: MakesUp = made_up,
    wanted: Callable[[str], list[Row]] | None = None,
    callbacks_of: Callable[[Board, JobQueue, Roster], FleetCallbacks] | None = None,
) -> Drive:
    """Run a driver to its end; wanted, callbacks_of: of other studies than made-up ones."""
    board = Board(folder)
    cluster = SimulatedCluster(
        n_hosts, makes_up, n_kinds=n_kinds, versions=VERSIONS, behaviour=behaviour, seed=seed
    )
    callbacks, roster = MadeUp(board), Roster(VERSIONS)
    claims = Claims(folder)
    rows = wanted or (lambda kind: rows_of(n_models, kind))
    queue = JobQueue(board, claims, folder, rows, n_elsewhere)
    callbacks.queue = queue
    queue.hear()
    asked = callbacks if callbacks_of is None else callbacks_of(board, queue, roster)
    driver = Driver(
        cluster, roster, queue, asked, folder, [], 600.0, callbacks.events.append, patience
    )
    driver.run()
    claims.close()
    board.close()
    return Drive(queue, callbacks, roster, cluster)
