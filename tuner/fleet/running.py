"""A fleet's run: which studies there are to be, the loop that has them made, and the index.

Every (model, framework) is tuned on every kind of host that is there, and what won is confirmed on
other hosts of its kind.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import msgspec

from tuner.app.request import Request
from tuner.errors import NothingMeasured, UsageError
from tuner.fleet.claims import Claims
from tuner.fleet.cluster import Cluster
from tuner.fleet.copies import Copies
from tuner.fleet.driver import Driver
from tuner.fleet.job_queue import JobQueue, Work
from tuner.fleet.jobs import USUAL, Patience
from tuner.fleet.mirror import Piece, archive
from tuner.fleet.orders import Order, Tune, Verify
from tuner.fleet.roster import Roster
from tuner.fleet.storage import Database
from tuner.fleet.study_specs import StudySpec, as_everywhere, files_of, specs_of, versions_of
from tuner.frameworks import FRAMEWORKS
from tuner.output.fleet import write_fleet
from tuner.record.events import Listener
from tuner.record.files import read_result
from tuner.record.fleet import Board
from tuner.record.index import (
    Elsewhere,
    Index,
    Row,
    check_index_folder,
    read_index,
    with_found,
)
from tuner.study.verification import Verification

_MOST_FOREIGN = 0.2
"""The share of its CPUs that others may use on a host that is to measure."""
_VERIFY_S = (120.0, 600.0)
"""At least and at most, for a winner on another host: half of a study's budget."""
_SHARE_OF_TIME = 0.05
"""Writing the index takes no more."""


def folder_of(request: Request) -> Path:
    """Return the folder of a fleet's index and studies."""
    return request.out or Path("reports") / "fleet"


class StudyCallbacks:
    """The subject of a driver's work, and its display (fleet/jobs.py)."""

    def __init__(
        self,
        board: Board,
        queue: JobQueue,
        roster: Roster,
        folder: Path,
        request: Request,
        specs: Sequence[StudySpec],
        copies: Copies | None,
    ) -> None:
        self._board, self._queue, self._roster = board, queue, roster
        self._folder, self._request = folder, request
        self._specs = {(spec.shown, spec.framework): spec for spec in specs}
        self._copies = copies
        virtual = all(FRAMEWORKS[spec.framework].is_virtual for spec in specs)
        self._most_foreign = 1.0 if virtual else _MOST_FOREIGN
        self._written: Index | None = None
        self._next_s = 0.0

    def order(self, work: Work) -> Order:
        """Return the order for a host."""
        row, folder = self._queue.rows[work.study], self._folder / work.study
        spec = self._specs[row.model, row.framework]
        job: Tune | Verify
        if work.is_verification:
            least_s, most_s = _VERIFY_S
            seconds = min(most_s, max(least_s, self._request.budget_s / 2))
            model = spec.model if spec.path else None
            job = Verify(seconds, model, self._request.allows_pickle)
            pieces = [Piece(p.name, 0, p.read_bytes()) for p in folder.glob("*.toml")]
        else:
            job = Tune(msgspec.structs.replace(
                self._request, model=spec.model, frameworks=(row.framework,),
                together=tuple({spec.framework: None for spec in self._specs.values()}),
            ))  # fmt: skip
            pieces = archive(folder)
        return Order(self._board.name, work.study, job, pieces, self._most_foreign)

    def row(self, study: str, host: str) -> Row:
        """Return the row of a finished study with its result."""
        row = msgspec.structs.replace(self._queue.rows[study], host=host, reason="", exit_code=0)
        try:
            result = read_result(self._folder / study / "result.json")
        except UsageError as error:
            return msgspec.structs.replace(row, state="failed", reason=str(error), exit_code=1)
        return with_found(msgspec.structs.replace(row, seconds=result.seconds.wall), result)

    def elsewhere(self, host: str, verification: bytes) -> Elsewhere:
        """Read another host's result for a winner; raises msgspec.MsgspecError if it is invalid."""
        said = msgspec.json.decode(verification, type=Verification)
        return Elsewhere(
            host, str(said.verdict), said.reason, said.speedup, said.n_rounds, said.seconds
        )

    def keep(self) -> None:
        """Write the index, and copy to the database, if it is time."""
        now_s = time.monotonic()
        if now_s >= self._next_s:
            self.write()
            took_s = time.monotonic() - now_s
            self._next_s = now_s + took_s / _SHARE_OF_TIME
        if self._copies is not None:
            self._copies.copy_one(self._queue.rows.values())

    def write(self) -> None:
        """Write the index, if anything in it has changed."""
        with self._board.held():  # another driver writes it, too
            self._queue.hear()
            kinds = list(self._queue.kinds.values())
            rows, faults = self._queue.index_rows(), self._roster.faults()
            request = self._request
            index = Index(rows, request.command, request.budget_s, kinds, faults)
            if index != self._written:
                write_fleet(self._folder, index)
        self._written = index


def tune_fleet(
    wanted: str,
    request: Request,
    listen: Listener,
    connect: Callable[[], Cluster],
    *,
    n_elsewhere: int = 1,
    storage: str | None = None,
    patience: Patience = USUAL,
) -> list[Row]:
    """Tune models on every kind of host of a cluster; return the rows of the index.

    request: the options for each study, its budget included; its `out` is the folder, which several
    drivers may share. n_elsewhere: how many other hosts of its kind are to confirm a winner.
    storage: the address of a database that studies are copied to.

    Raises UsageError before anything is measured, NothingMeasured if no study has a result, and
    Interrupted (resumable) and ClusterLost (ray_cluster.py) while measuring.
    """
    check_index_folder(folder := folder_of(request))
    if any(not row.kind for row in read_index(folder).rows):
        raise UsageError(
            f"{folder} holds studies of this host alone (--models): name another folder with --out"
        )
    request = as_everywhere(request)
    specs = specs_of(wanted, request, listen)
    with ExitStack() as stack:  # what is opened last is closed first
        database = None if storage is None else stack.enter_context(closing(Database(storage)))
        cluster = stack.enter_context(closing(connect()))
        board = stack.enter_context(closing(Board(folder)))
        claims = stack.enter_context(closing(Claims(folder)))
        roster = Roster(versions_of(specs))
        queue = JobQueue(board, claims, folder, lambda k: [w.row(k) for w in specs], n_elsewhere)
        queue.hear()
        copies = None
        if database is not None:
            copies = Copies(database, claims, board.name, folder, listen)
        callbacks = StudyCallbacks(board, queue, roster, folder, request, specs, copies)
        stack.callback(callbacks.write)
        files = files_of(specs, request)
        Driver(cluster, roster, queue, callbacks, folder, files, request.budget_s, listen,
               patience).run()  # fmt: skip
        if copies is not None:
            copies.finish(queue.rows.values())
    return _rows_of(queue, roster)


def _rows_of(queue: JobQueue, roster: Roster) -> list[Row]:
    """Return the requested rows; raises NothingMeasured if none has a result."""
    rows = [row for row in queue.index_rows() if row.folder in queue.rows]
    if not rows:
        faults = "; ".join(f"{name}: {why}" for name, why in roster.faults().items())
        raise NothingMeasured(f"no host of the cluster is fit: {faults or 'there is none'}")
    if not any(row.state == "done" for row in rows):
        reasons = "; ".join(f"{r.folder}: {r.reason or 'no host was fit for it'}" for r in rows)
        raise NothingMeasured(f"nothing came of any study: {reasons}")
    return rows
