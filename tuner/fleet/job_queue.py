"""The work of a fleet and its results, of this driver and of others."""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import NamedTuple

import msgspec

from tuner.fleet.claims import Claims
from tuner.record.fleet import Board, ElsewhereNoted, HostNoted, KindNoted, RowNoted
from tuner.record.index import INCONCLUSIVE, Elsewhere, Kind, Row, result_of

MOST_ATTEMPTS = 5
"""Hosts that may vanish, or fail by themselves, under one study in one run."""
_MORE_HOSTS_IF_INCONCLUSIVE = 1
"""Further hosts that are asked if one could not decide."""
_POLL_S = 5.0
"""Before something is looked for again: work for a host that found none, or others' claims."""


class Work(msgspec.Struct):
    """Something for a host to do: a study, or the verification of its winner."""

    study: str
    """The name of its folder."""
    kind: str
    is_verification: bool
    n_attempts: int = 0
    avoided: set[str] = msgspec.field(default_factory=set)
    """Hosts that it is not given to again."""


def in_words(left: Sequence[Work], faults: Mapping[str, str]) -> str:
    """Say what is left to do and why no host does it; empty if nothing is left.

    faults: of the hosts that take no part now.
    """
    n_confirmations = sum(work.is_verification for work in left)
    counts = {"studies": len(left) - n_confirmations, "confirmations": n_confirmations}
    text = " and ".join(f"{n} {what}" for what, n in counts.items() if n)
    why = "; ".join(f"{host}: {fault}" for host, fault in faults.items())
    return f"{text} left: no host is fit ({why or 'no other of the kind is there'})" if left else ""


class _Queue(NamedTuple):
    kind: str
    are_verifications: bool


class JobQueue:
    """The rows of a fleet, kept with the other drivers' on the board.

    folder: of the fleet. wanted: makes the rows of a kind of host. n_elsewhere: how many other
    hosts of its kind are to confirm a winner.
    """

    def __init__(
        self,
        board: Board,
        claims: Claims,
        folder: Path,
        wanted: Callable[[str], Iterable[Row]],
        n_elsewhere: int,
    ) -> None:
        self._board = board
        self._claims = claims
        self._folder = folder
        self._wanted = wanted
        self._n_elsewhere = n_elsewhere
        self.kinds: dict[str, Kind] = {}
        """By name, those that any driver has seen."""
        self._hosts: defaultdict[str, set[str]] = defaultdict(set)
        """By kind, the hosts that any driver has seen."""
        self.rows: dict[str, Row] = {}
        """The requested studies, by name."""
        self._others: dict[str, Row] = {}
        """Rows of studies that are not requested now."""
        self._queues: defaultdict[_Queue, deque[Work]] = defaultdict(deque)
        self._n_queued: Counter[_Queue] = Counter()
        """How often something was put into a queue."""
        self._nothing: dict[tuple[_Queue, str], tuple[int, float]] = {}
        """Of a queue and a host, when nothing was found for it, and until when that holds."""
        self._are_others_at_work = False
        self._look_at_claims_s = -math.inf
        self._begun: set[str] = set()
        self._met: set[tuple[str, str]] = set()
        """Kinds and hosts that this driver has seen."""
        self._confirming: set[str] = set()
        """Studies whose winner's verification is queued here, or running."""

    def hear(self) -> bool:
        """Take in new lines of the board; tell whether there were any."""
        news = self._board.news()
        for note in news:
            if isinstance(note, KindNoted):
                self.kinds.setdefault(note.kind.name, note.kind)
                for row in self._wanted(note.kind.name):
                    self.rows.setdefault(row.folder, self._others.pop(row.folder, row))
            elif isinstance(note, HostNoted):
                self._hosts[note.kind].add(note.host)
            elif isinstance(note, RowNoted):
                self._keep(note.row.folder, note.row)
            elif isinstance(note, ElsewhereNoted) and (known := self._row(note.study)) is not None:
                more = [*known.elsewhere, note.elsewhere]
                self._keep(note.study, msgspec.structs.replace(known, elsewhere=more))
        return bool(news)

    def _row(self, study: str) -> Row | None:
        return self.rows.get(study) or self._others.get(study)

    def _keep(self, study: str, row: Row) -> None:
        (self.rows if study in self.rows else self._others)[study] = row

    def index_rows(self) -> list[Row]:
        """Return the rows of everything ever requested here, the last of each study.

        For one model in one framework on one kind, the present request comes before former ones.
        """
        found = {(row.model, row.framework, row.kind): row for row in self._others.values()}
        found |= {(row.model, row.framework, row.kind): row for row in self.rows.values()}
        return [
            msgspec.structs.replace(row, n_elsewhere=self._n_wanted(row)) for row in found.values()
        ]

    def _n_wanted(self, row: Row) -> int:
        """Return how many others are to confirm a winner: no more than were ever seen."""
        wanted = self._n_elsewhere if row.folder in self.rows else row.n_elsewhere
        return min(wanted, max(0, len(self._hosts[row.kind]) - 1))

    def awaits(self, row: Row) -> bool:
        """Tell whether a winner is still to be confirmed by another host."""
        if row.state != "done" or row.verdict != "faster":
            return False
        n_decided = sum(each.verdict != INCONCLUSIVE for each in row.elsewhere)
        n_open = len(row.elsewhere) - n_decided
        if n_decided >= self._n_wanted(row) or n_open > _MORE_HOSTS_IF_INCONCLUSIVE:
            return False
        hosts = {row.host, *(each.host for each in row.elsewhere)}
        return any(host not in hosts for host in self._hosts[row.kind])

    def meet(self, kind: Kind, host: str) -> None:
        """Note a host; with the first of a kind, queue its unfinished work."""
        if kind.name not in self.kinds:
            self._board.add(KindNoted(kind))
        if host not in self._hosts[kind.name]:
            self._board.add(HostNoted(host, kind.name))
        self.hear()
        is_new = (kind.name, host) not in self._met
        self._met.add((kind.name, host))
        own = [row for row in self.rows.values() if row.kind == kind.name]
        if kind.name not in self._begun:
            self._begun.add(kind.name)
            for row in own:
                if row.state != "done":  # it may have failed before: once more
                    self.rows[row.folder] = msgspec.structs.replace(row, state="pending")
                elif result_of(self._folder, row) is None:  # its folder was removed
                    self.rows[row.folder] = next(
                        each for each in self._wanted(row.kind) if each.folder == row.folder
                    )
                else:
                    self._have_confirmed(row.folder)
                    continue
                self._put(Work(row.folder, row.kind, is_verification=False))
        elif is_new:  # winners that had no other host may have one now
            for row in own:
                self._have_confirmed(row.folder)

    def _have_confirmed(self, study: str) -> None:
        """Queue the verification of a winner, if it wants one and none is under way here."""
        row = self.rows[study]
        if self.awaits(row) and study not in self._confirming:
            self._put(Work(study, row.kind, is_verification=True))

    def _put(self, work: Work) -> None:
        name = _Queue(work.kind, work.is_verification)
        if work.is_verification:
            self._confirming.add(work.study)
        self._queues[name].append(work)
        self._n_queued[name] += 1

    def next_for(self, kind: str, host: str, now_s: float, there: Set[str]) -> Work | None:
        """Take work for a host, and claim it; None if there is none.

        there: the hosts of its kind that are present.
        """
        for name in (_Queue(kind, True), _Queue(kind, False)):
            known, until_s = self._nothing.get((name, host), (-1, 0.0))
            if known == self._n_queued[name] and now_s < until_s:
                continue
            if (work := self._first_of(name, host, now_s, there)) is not None:
                return work
            self._nothing[name, host] = (self._n_queued[name], now_s + _POLL_S)
        return None

    def _first_of(self, name: _Queue, host: str, now_s: float, there: Set[str]) -> Work | None:
        queue = self._queues[name]
        for _ in range(len(queue)):
            work = queue.popleft()
            if self._is_done(work):
                self._end(work)
            elif host not in self.candidates(work, there) or not self._claims.take(work.study):
                queue.append(work)
            else:
                self.hear()  # another driver may have finished it just now
                if not self._is_done(work):
                    return work
                self._claims.leave(work.study)
                self._end(work)
        return None

    def are_others_at_work(self, now_s: float) -> bool:
        """Tell whether another driver has just claimed what is still to be done."""
        if now_s >= self._look_at_claims_s:
            self._look_at_claims_s = now_s + _POLL_S
            studies = (work.study for work in self.left())
            self._are_others_at_work = any(map(self._claims.is_anothers, studies))
        return self._are_others_at_work

    def candidates(self, work: Work, hosts: Set[str]) -> set[str]:
        """Return which of some hosts may do something; a study may go anywhere.

        A winner is confirmed by a host that had no part in its study; where all that are there had
        one, by any but that which found it.
        """
        found = {*hosts} - work.avoided
        if not work.is_verification:
            return found
        row = self.rows[work.study]
        found -= {row.host, *(each.host for each in row.elsewhere)}
        return found - {*row.hosts} or found

    def _is_done(self, work: Work) -> bool:
        """Tell whether there is nothing to do any more: another driver may have done it."""
        row = self.rows[work.study]
        return not self.awaits(row) if work.is_verification else row.state != "pending"

    def _end(self, work: Work) -> None:
        """Drop what there is nothing to do of any more, for a verification if one is wanted."""
        if work.is_verification:
            self._confirming.discard(work.study)
        self._have_confirmed(work.study)

    def begin(self, work: Work, host: str) -> None:
        """Note that a host has begun a study: it does not confirm its own measurements."""
        row = self.rows[work.study]
        if not work.is_verification and host not in row.hosts:
            self._note(msgspec.structs.replace(row, host=host, hosts=[*row.hosts, host]))

    def _note(self, row: Row) -> None:
        self._board.add(RowNoted(row))
        self.hear()

    def later(self, work: Work) -> None:
        """Have something done later, as if it had not been begun."""
        self._put(work)
        self._claims.leave(work.study)

    def elsewhere(self, work: Work, fault: str) -> bool:
        """Queue work once more, for any host; False if it was tried often enough.

        The study then stays pending, with its last fault, for another run.
        """
        work.n_attempts += 1
        is_tried_again = work.n_attempts < MOST_ATTEMPTS
        if not work.is_verification:
            text = (
                fault if is_tried_again else f"given up after {work.n_attempts} attempts: {fault}"
            )
            self._note(msgspec.structs.replace(self.rows[work.study], reason=text))
        if is_tried_again:
            self.later(work)
        else:
            self._claims.leave(work.study)
            self._confirming.discard(work.study)
        return is_tried_again

    def finish(self, row: Row) -> None:
        """Note how a study has ended; its winner is then to be confirmed elsewhere.

        Other hosts' results for a former winner do not count for it.
        """
        self._note(msgspec.structs.replace(row, n_elsewhere=self._n_elsewhere, elsewhere=[]))
        self._claims.leave(row.folder)
        self._have_confirmed(row.folder)

    def confirm(self, work: Work, said: Elsewhere) -> None:
        """Note another host's result for a winner."""
        self._board.add(ElsewhereNoted(work.study, said))
        self.hear()
        self._claims.leave(work.study)
        self._end(work)

    def left(self) -> Iterator[Work]:
        """Return what is still to be done, by any driver."""
        for queue in self._queues.values():
            for work in queue:  # of one that another driver has made the winner may be left
                if not self._is_done(work) or self.awaits(self.rows[work.study]):
                    yield work
