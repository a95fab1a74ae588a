"""The loop that gives studies to hosts and takes in the results.

Each working host has one open call at a time. A host that does not answer is asked again, then
given up, and its work done elsewhere. The study continues there from what this driver has of it,
whatever its former host may still be doing: only answers to this attempt count.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tuner.errors import Interrupted
from tuner.fleet.cluster import Cluster, HostFailed, HostLost, HostSilent, Ticket
from tuner.fleet.job_queue import JobQueue, Work, in_words
from tuner.fleet.jobs import (
    FAILS_ON_EVERY_HOST,
    STOPPED,
    USUAL,
    FleetCallbacks,
    Job,
    Look,
    Patience,
)
from tuner.fleet.mirror import mend, put, settle
from tuner.fleet.orders import UNFIT, Began, Ended, Refused, Report, Seen, decode, encode
from tuner.fleet.roster import Host, Roster
from tuner.record.events import HostSeen, Listener, StudyPlaced, StudyReturned, Warned
from tuner.record.index import INCONCLUSIVE, Elsewhere, Row

_SEE_S = 5.0
"""Between two looks at who is there."""
_SAY_S = 15.0
"""After this time without any work, the reason for waiting is printed."""
_WAIT_S = 1.0
_MOST_LOOKS = 3
"""Times that a host is asked to describe itself before it is given up."""


class Driver:
    """Works through all jobs until none is left that can be done.

    folder: contains the studies. files: must exist on every host. budget_s: of a study.
    """

    def __init__(
        self,
        cluster: Cluster,
        roster: Roster,
        queue: JobQueue,
        callbacks: FleetCallbacks,
        folder: Path,
        files: Sequence[str],
        budget_s: float,
        listen: Listener,
        patience: Patience = USUAL,
    ) -> None:
        self._cluster, self._roster, self._queue = cluster, roster, queue
        self._callbacks = callbacks
        self._folder, self._files, self._budget_s = folder, files, budget_s
        self._listen, self._patience = listen, patience
        self._looks: dict[Ticket, Look] = {}
        self._asked: dict[Ticket, Job] = {}
        self._jobs: dict[str, Job] = {}
        """By the host's id."""
        self._seen_s = -math.inf
        self._progress_s = cluster.now()
        self._has_said = False

    def run(self) -> None:
        """Continue until all is done, or no host is left for the rest; ends every job in any case.

        Raises ClusterLost (ray_cluster.py), StorageFailed, Interrupted; the same command resumes.
        """
        try:
            while not self._is_over():
                self._see()
                self._place()
                self._take_in_what_is_ready(_WAIT_S)
                self._look_at_the_clock()
                if self._queue.hear():
                    self._progress_s = self._cluster.now()
                self._say_what_is_waited_for()
                self._callbacks.keep()
            if left := self._what_is_left():
                self._listen(Warned(f"{left}; the same command resumes them"))
        except Interrupted:
            self._take_in_the_last()
            raise
        finally:
            for job in self._jobs.values():
                job.handle.dismiss()

    def _is_over(self) -> bool:
        now_s = self._cluster.now()
        if math.isinf(self._seen_s) or self._looks:
            return False
        is_anybody_at_work = any(job.has_begun for job in self._jobs.values())
        if is_anybody_at_work or self._queue.are_others_at_work(now_s):
            self._progress_s = now_s
            return False
        idle_s = now_s - self._progress_s
        if idle_s > self._patience.idle_s:
            return True
        if self._jobs:
            return False
        if not any(host.kind for host in self._roster.hosts.values()):
            return idle_s > self._patience.fit_s
        left = list(self._queue.left())
        there = self._roster.there()
        is_hopeless = not any(self._queue.candidates(work, there[work.kind]) for work in left)
        return not left or (is_hopeless and idle_s > self._patience.gone_s)

    def _what_is_left(self) -> str:
        return in_words(list(self._queue.left()), self._roster.faults())

    def _say_what_is_waited_for(self) -> None:
        """Print a message once per wait in which no host works."""
        is_idle = self._cluster.now() - self._progress_s > _SAY_S and not self._jobs
        if is_idle and not self._has_said and (left := self._what_is_left()):
            self._listen(Warned(f"waiting: {left}"))
        self._has_said = is_idle

    def _take_in_what_is_ready(self, seconds: float) -> None:
        for ticket in self._cluster.ready([*self._looks, *self._asked], seconds):
            self._take_in(ticket)

    def _take_in_the_last(self) -> None:
        """Wait a moment for what hosts have measured since they were last asked."""
        until_s = self._cluster.now() + self._patience.last_s
        waited_for = {id(job) for job in self._jobs.values() if job.has_begun and not job.is_over}
        while waited_for and self._cluster.now() < until_s:
            before = {id(job): job.acknowledged for job in self._jobs.values()}
            self._take_in_what_is_ready(_WAIT_S)
            jobs = self._jobs.values()
            waited_for &= {id(j) for j in jobs if j.acknowledged == before.get(id(j))}

    def _see(self) -> None:
        now_s = self._cluster.now()
        if now_s - self._seen_s < _SEE_S:
            return
        self._seen_s = now_s
        come, gone = self._roster.see(self._cluster.nodes())
        for host in gone:
            self._listen(HostSeen(host.name, host.kind, "it has left the cluster"))
            if (job := self._jobs.get(host.node.id)) is not None:
                self._give_up(job, "it has left the cluster")
        for host in come:
            if host.fault:
                self._take_no_part(host, host.fault)
            else:
                self._look(host)

    def _look(self, host: Host) -> None:
        host.n_looks += 1
        ticket = self._cluster.look(host.node, self._files)
        self._looks[ticket] = Look(host, self._cluster.now() + self._patience.look_s)

    def _place(self) -> None:
        now_s, there = self._cluster.now(), self._roster.there()
        for host in self._roster.free(now_s, self._jobs):
            if work := self._queue.next_for(host.kind, host.name, now_s, there[host.kind]):
                self._begin(work, host)

    def _begin(self, work: Work, host: Host) -> None:
        mend(self._folder / work.study)
        order = encode(self._callbacks.order(work))
        handle = self._cluster.hire(host.node)
        job = Job(work, host, handle, self._cluster.now() + self._patience.begin_s)
        self._jobs[host.node.id] = job
        self._asked[handle.begin(order)] = job

    def _take_in(self, ticket: Ticket) -> None:
        """Take in an answer; that of a job that was given up meanwhile counts for nothing."""
        look, job = self._looks.pop(ticket, None), self._asked.pop(ticket, None)
        is_current = job is not None and self._jobs.get(job.host.node.id) is job
        try:
            answer = self._cluster.answer(ticket)
            if look is not None:
                self._introduce(look.host, decode(answer, Seen))
            elif job is not None and is_current:
                self._take_answer(job, answer)
        except HostSilent as error:
            if look is not None:
                self._not_seen(look.host, str(error))
            elif job is not None and is_current:
                self._wait_for(job, str(error))
        except (HostLost, HostFailed) as error:
            if look is not None:
                self._not_seen(look.host, str(error))
            elif job is not None and is_current:
                self._give_up(job, str(error))
        except msgspec.MsgspecError as error:
            text = f"it does not answer as this version does ({error})"
            if look is not None:
                self._take_no_part(look.host, text)
            elif job is not None and is_current:
                self._give_up(job, text)

    def _introduce(self, host: Host, seen: Seen) -> None:
        kind = self._roster.introduce(host, seen)
        self._listen(HostSeen(host.name, host.kind, host.fault))
        if kind is not None:
            self._queue.meet(kind, host.name)

    def _not_seen(self, host: Host, reason: str) -> None:
        """Ask a host again to describe itself, or exclude it."""
        if host.is_gone:
            return
        if host.n_looks < _MOST_LOOKS:
            self._look(host)
        else:
            self._take_no_part(host, f"it cannot describe itself: {reason}")

    def _take_no_part(self, host: Host, fault: str) -> None:
        host.fault = fault
        self._listen(HostSeen(host.name, "", fault))

    def _take_answer(self, job: Job, answer: bytes) -> None:
        job.silent_since_s = None
        if job.is_over:
            self._free(job)
        elif job.has_begun:
            self._take_report(job, decode(answer, Report))
        else:
            self._take_beginning(job, decode(answer, Began | Refused))

    def _take_beginning(self, job: Job, answer: Began | Refused) -> None:
        if isinstance(answer, Refused):
            self._pass_over(job, answer.reason)
            return
        job.has_begun = job.host.has_begun = True
        self._queue.begin(job.work, job.host.name)
        job.until_s = self._cluster.now() + self._budget_s + self._patience.overtime_s
        self._listen(StudyPlaced(
            job.work.study, job.host.name, job.work.n_attempts + 1,
            is_verification=job.work.is_verification, is_ahead=answer.is_ahead,
        ))  # fmt: skip
        self._ask(job)

    def _ask(self, job: Job) -> None:
        self._asked[job.handle.fetch(job.acknowledged)] = job

    def _take_report(self, job: Job, report: Report) -> None:
        if report.pieces and not job.work.is_verification:
            try:
                put(self._folder / job.work.study, report.pieces)
            except ValueError as error:
                self._give_up(job, f"what it sent does not fit: {error}")
                return
        job.acknowledged = report.number
        if report.ended is None:
            self._ask(job)
        else:
            self._conclude(job, report.ended)

    def _conclude(self, job: Job, ended: Ended) -> None:
        """Take in how an order has ended, and have the host forget it."""
        code = ended.exit_code
        if code == 0 and job.work.is_verification:
            self._confirm(job, self._callbacks.elsewhere(job.host.name, ended.verification))
        elif code == 0:
            settle(self._folder / job.work.study)  # before its host forgets it
            self._finish(job, self._callbacks.row(job.work.study, job.host.name))
        elif code in FAILS_ON_EVERY_HOST and job.work.is_verification:
            why = ended.reason or f"it ended with code {code}"
            self._confirm(job, Elsewhere(job.host.name, INCONCLUSIVE, why, None, 0, 0.0))
        elif code in FAILS_ON_EVERY_HOST:
            row = self._queue.rows[job.work.study]
            why = ended.reason or f"it ended with code {code}"
            self._finish(job, msgspec.structs.replace(
                row, state="failed", reason=why, exit_code=code, host=job.host.name
            ))  # fmt: skip
        else:
            if code == UNFIT:
                job.work.avoided.add(job.host.name)
            why = ended.reason or (f"signal {-code}" if code < 0 else f"code {code}")
            self._go_elsewhere(job, f"it ended: {why}", stays=code in (UNFIT, STOPPED))
            return
        job.is_over = True
        job.until_s = self._cluster.now() + self._patience.forget_s
        self._asked[job.handle.forget()] = job

    def _confirm(self, job: Job, said: Elsewhere) -> None:
        self._queue.confirm(job.work, said)
        self._say(job, said.verdict, said.reason)

    def _finish(self, job: Job, row: Row) -> None:
        self._queue.finish(row)
        self._say(job, row.state, row.reason or row.verdict)

    def _say(self, job: Job, state: str, reason: str) -> None:
        self._listen(StudyReturned(job.work.study, job.host.name, state, reason))

    def _wait_for(self, job: Job, reason: str) -> None:
        """Ask a host again that could not be reached, or give it up."""
        now_s = self._cluster.now()
        if job.silent_since_s is None:
            job.silent_since_s = now_s
        is_waited_for = job.has_begun and not job.is_over
        if is_waited_for and now_s - job.silent_since_s < self._patience.silent_s:
            job.ask_again_s = now_s + self._patience.again_s
        else:
            self._give_up(job, f"it cannot be reached: {reason}")

    def _look_at_the_clock(self) -> None:
        now_s = self._cluster.now()
        for ticket, look in list(self._looks.items()):
            if now_s > look.until_s:
                del self._looks[ticket]
                self._not_seen(look.host, "it does not answer")
        for job in list(self._jobs.values()):
            if job.ask_again_s is not None and now_s >= job.ask_again_s:
                job.ask_again_s = None
                self._ask(job)
            elif now_s > job.until_s and not job.has_begun:
                self._pass_over(job, "its slot is taken, or it does not answer")
            elif now_s > job.until_s:
                self._give_up(job, "it took too long")

    def _pass_over(self, job: Job, reason: str) -> None:
        """Leave a host alone for a while; its work is given to others."""
        self._free(job, why_away=reason)
        self._queue.later(job.work)
        text = f"passed over for {self._patience.away_s:.0f} s: {reason}"
        self._listen(HostSeen(job.host.name, job.host.kind, text))

    def _give_up(self, job: Job, reason: str) -> None:
        """Expect nothing more of a host; its unfinished work is done elsewhere."""
        if job.is_over:
            self._free(job)
        else:
            self._go_elsewhere(job, reason)

    def _go_elsewhere(self, job: Job, reason: str, *, stays: bool = False) -> None:
        """Have something done elsewhere; stays: whether its host may go on with something else."""
        self._free(job, why_away="" if stays else reason)
        if self._queue.elsewhere(job.work, f"{job.host.name}: {reason}"):
            self._say(job, "interrupted", reason)
        else:
            self._say(job, "given up", reason)

    def _free(self, job: Job, *, why_away: str = "") -> None:
        """End a job; its further answers are ignored.

        why_away: why its host is skipped for a while, if it is.
        """
        job.handle.dismiss()
        if why_away:
            job.host.was_away = why_away
            job.host.away_until_s = self._cluster.now() + self._patience.away_s
        del self._jobs[job.host.node.id]
