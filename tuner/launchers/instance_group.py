"""The processes of one launch: started together, measured together, stopped and killed together.

Most launches have one process; a configuration with several instances has as many, each on its own
cores. Whatever one of them cannot do the launch cannot: the first that fails ends it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from tuner.launchers.conversations import Conversation, alone
from tuner.launchers.worker_process import WorkerEnded, WorkerProcess
from tuner.record.configuration import Value
from tuner.record.launch import (
    Built,
    Compiled,
    DeviceMemory,
    Interference,
    Prepared,
    ReadBack,
    Share,
    Slice,
    latency,
)
from tuner.record.outcome import Ending, Outcome
from tuner.record.protocol import (
    LINE_BYTES,
    READY,
    TIMED,
    Answered,
    Begin,
    Check,
    Command,
    Failed,
    Go,
    Halt,
    Measure,
    Measured,
    Placed,
    Profile,
    Reply,
    Stage,
)
from tuner.record.serving import Level, Served
from tuner.space.knobs_of.launch import CORES_PER_INSTANCE, INSTANCES, PLACEMENT
from tuner.space.launching import LaunchPlan

_LEAD_S, _LEAD_EACH_S = 0.01, 0.001
"""From the tool's message until all begin, and more for each: they read their counters meanwhile.
"""

Tell = Callable[[str], None]


class InstanceGroup:
    """The instances of one launch, by rank. Always `close` it: nothing of it survives that.

    Raises WorkerEnded whenever an instance cannot go on; in a team the reason names it.
    is_awaited: return once all run; else they are to be greeted before anything else.
    """

    def __init__(
        self,
        plans: Sequence[LaunchPlan],
        log: Path,
        extra_environment: Mapping[str, str],
        *,
        is_awaited: bool = True,
        is_apart: bool = False,
    ) -> None:
        """is_apart: the workers start what is tuned, and are not tuned themselves."""
        self._plans = tuple(plans)
        self._is_apart = is_apart
        self._line = log.with_suffix(".line")
        self._settings: Mapping[str, Value] = {}
        self._members: list[WorkerProcess] = []
        try:
            for plan in plans:
                own_log = log if plan.rank == 0 else log.with_suffix(f".{plan.rank}{log.suffix}")
                own = LaunchPlan({}, plan.cpus, "none", gpu=plan.gpu) if is_apart else plan
                member = WorkerProcess(own, own_log, extra_environment, is_awaited=False)
                self._members.append(member)
            if is_awaited:
                alone(self.greeting())
        except BaseException:
            self.close()
            raise

    def greeting(self) -> Conversation[None]:
        """Wait until every instance runs and listens."""
        for rank, member in enumerate(self._members):
            with self._naming(rank):
                yield from member.greeting()

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes of the instances, by rank."""
        return tuple(member.pid for member in self._members)

    @contextmanager
    def _naming(self, rank: int) -> Iterator[None]:
        """Name an instance in its error message."""
        try:
            yield
        except WorkerEnded as error:
            if len(self._members) == 1:
                raise
            raise WorkerEnded(self._named(rank, error.ending)) from error

    def _named(self, rank: int, ending: Ending) -> Ending:
        reason = f"instance {rank + 1} of {len(self._members)}: {ending.reason}"
        return Ending(ending.outcome, reason)

    def ask(self, command: Command, timeout_s: float, tell: Tell) -> Reply:
        """Have every instance obey; return one answer for all (Team.asking)."""
        return alone(self.asking(command, timeout_s, tell))

    def asking(self, command: Command, timeout_s: float, tell: Tell) -> Conversation[Reply]:
        """Have every instance obey; return one answer for all. tell: is given rank 0's stages.

        timeout_s: after how many seconds of silence an instance is given up.
        Outputs are checked, and profiles taken, by rank 0 alone: the others run the same program.
        """
        is_for_all = not isinstance(command, Check | Profile)
        ranks = list(range(len(self._members) if is_for_all else 1))
        if isinstance(command, Begin):
            self._settings = command.settings
        if isinstance(command, Measure) and command.offer is not None and len(ranks) > 1:
            self._line.write_bytes(bytes(LINE_BYTES))  # nothing is taken yet
        for rank in ranks:
            self._members[rank].send(self._own(command, rank))
        if isinstance(command, Measure) and len(ranks) > 1:
            if failed := (yield from self._reaching(READY, timeout_s)):
                return failed
            self._order(Go(time.monotonic() + _LEAD_S + _LEAD_EACH_S * len(ranks)))
            if failed := (yield from self._reaching(TIMED, timeout_s)):
                return failed
            self._order(Halt())
        answers = yield from self._answering(ranks, timeout_s, tell)
        return self._merged(answers)

    def _own(self, command: Command, rank: int) -> Command:
        if isinstance(command, Begin):
            plan = self._plans[rank]
            placed = None
            if self._is_apart:
                placed = Placed(plan.variables(), rank, len(self._plans))
            return msgspec.structs.replace(command, memory_policy=plan.memory_policy, placed=placed)
        if isinstance(command, Measure):
            if len(self._members) == 1:
                return command
            line = str(self._line.absolute()) if command.offer is not None else ""
            return msgspec.structs.replace(command, in_team=True, line=line)
        return command

    def _order(self, command: Command) -> None:
        for member in self._members:
            member.send(command)

    def _arriving(self, rank: int, timeout_s: float) -> Conversation[Reply]:
        with self._naming(rank):
            reply = yield from self._members[rank].arriving(timeout_s)
        if isinstance(reply, Failed) and len(self._members) > 1:
            named = self._named(rank, Ending(reply.outcome, reply.reason))
            return Failed(named.outcome, named.reason)
        return reply

    def _reaching(self, stage: str, timeout_s: float) -> Conversation[Failed | None]:
        """Wait until every instance is at a stage; return the first failure instead."""
        for rank in range(len(self._members)):
            reply = yield from self._arriving(rank, timeout_s)
            if isinstance(reply, Failed):
                return reply
            if reply != Stage(stage):
                return Failed(Outcome.CRASHED, f"the worker answered {reply!r}")
        return None

    def _answering(
        self, ranks: Sequence[int], timeout_s: float, tell: Tell
    ) -> Conversation[list[Reply]]:
        """Return each instance's answer, by rank; only the failure where one failed."""
        found: list[Reply] = []
        for rank in ranks:
            while isinstance(reply := (yield from self._arriving(rank, timeout_s)), Stage):
                if rank == 0:
                    tell(reply.name)
            if isinstance(reply, Failed):
                return [reply]
            found.append(reply)
        return found

    def _merged(self, replies: list[Reply]) -> Reply:
        """Return one answer for all; they answered the same command."""
        first = replies[0]
        if isinstance(first, Built):
            built = [r for r in replies if isinstance(r, Built)]
            return Built(
                max(b.import_s for b in built), max(b.build_s for b in built), first.versions
            )
        if isinstance(first, Compiled):
            return Compiled(max(r.first_call_s for r in replies if isinstance(r, Compiled)))
        if isinstance(first, Prepared):
            return self._prepared([r for r in replies if isinstance(r, Prepared)])
        if isinstance(first, Answered):
            return Answered(sum(r.n_batches for r in replies if isinstance(r, Answered)))
        if measured := [r for r in replies if isinstance(r, Measured)]:
            return _together(measured)
        return first

    def _prepared(self, each: list[Prepared]) -> Prepared:
        shared = max(p.memory_shared_bytes for p in each)
        return msgspec.structs.replace(
            each[0],
            first_call_s=max(p.first_call_s for p in each),
            steady_call_s=statistics.median(p.steady_call_s for p in each),
            warm_up_s=max(p.warm_up_s for p in each),
            is_steady=all(p.is_steady for p in each),
            memory_peak_bytes=shared
            + sum(p.memory_peak_bytes - p.memory_shared_bytes for p in each),
            memory_private_bytes=sum(p.memory_private_bytes for p in each),
            read_back=(*_worst([p.read_back for p in each]), *self._placing(each)),
            memory_shared_bytes=shared,
            cpus=tuple(sorted(cpu for p in each for cpu in p.cpus)),
            is_traced=all(p.is_traced for p in each),
            device_memory=_on_the_card([p.device_memory for p in each]),
        )

    def _placing(self, each: list[Prepared]) -> list[ReadBack]:
        """Read back what places the instances: each one's mask against the planned one."""
        planned = [plan.cpus and tuple(sorted(plan.cpus)) for plan in self._plans]
        wrong = [rank for rank, p in enumerate(each) if planned[rank] not in (None, p.cpus)]
        how = "sched_getaffinity(2) of every instance before its framework was imported"
        found = []
        for knob in (INSTANCES, CORES_PER_INSTANCE, PLACEMENT):
            if (requested := self._settings.get(knob)) is not None:
                fault = (
                    f"instance {wrong[0] + 1} has the CPUs {each[wrong[0]].cpus}" if wrong else ""
                )
                found.append(ReadBack(knob, requested, fault or requested, "effective", how))
        return found

    def pause(self) -> None:
        """Stop every instance, and wait until no thread of theirs runs."""
        for member in self._members:
            member.stop()
        for rank, member in enumerate(self._members):
            with self._naming(rank):
                member.pause()

    def resume(self) -> None:
        """Let all go on."""
        for member in self._members:
            member.resume()

    def close(self) -> None:
        """Kill every instance and everything it left behind, and wait until that has happened."""
        for member in self._members:
            member.close()
        self._line.unlink(missing_ok=True)


def _on_the_card(each: Sequence[DeviceMemory | None]) -> DeviceMemory | None:
    """Add up what instances hold on the card that they share."""
    known = [memory for memory in each if memory is not None]
    if not known:
        return None
    return DeviceMemory(
        sum(memory.allocated_peak_bytes for memory in known),
        sum(memory.reserved_peak_bytes for memory in known),
        sum(memory.reserved_bytes for memory in known),
        known[0].card_bytes,
    )


def _mean_known(shares: Sequence[float | None]) -> float | None:
    known = [share for share in shares if share is not None]
    return statistics.fmean(known) if known else None


def _served_together(slices: Sequence[Slice]) -> Served | None:
    """Add up what instances answered of the requests of one line."""
    served = [s.served for s in slices if s.served is not None]
    if not served:
        return None
    return msgspec.structs.replace(
        served[0],
        n_requests=sum(s.n_requests for s in served),
        generator=statistics.fmean(s.generator for s in served),
        levels=tuple(map(_level_of_all, zip(*(s.levels for s in served), strict=False))),
    )


def _level_of_all(levels: Sequence[Level]) -> Level:
    """Add up the work of corresponding callers of all instances."""
    packed = b"".join(level.packed for level in levels)
    return Level(sum(e.callers for e in levels), sum(e.rate for e in levels), packed)


def _worst(each: Sequence[Sequence[ReadBack]]) -> list[ReadBack]:
    """Return each knob's value in the instances: if it is not in force in one, that value."""
    found: dict[str, ReadBack] = {}
    for items in each:
        for item in items:
            if item.knob not in found or (found[item.knob].in_force and not item.in_force):
                found[item.knob] = item
    return list(found.values())


def _together(each: Sequence[Measured]) -> Measured:
    """Return what all instances did in a slice: their rates added, the times of calls pooled."""
    if len(each) == 1:
        return each[0]
    slices = [measured.slice for measured in each]
    seen = [s.interference for s in slices]
    return Measured(
        Slice(
            index=slices[0].index,
            batch=slices[0].batch,
            calls=sum(s.calls for s in slices),
            seconds=max(s.seconds for s in slices),
            at=statistics.fmean(s.at for s in slices),
            interference=Interference(
                # of CPUs that they do not share, as many each
                steal=statistics.fmean(i.steal for i in seen),
                foreign=statistics.fmean(i.foreign for i in seen),
                # of the cgroup and of the machine: every instance sees the same
                throttled_periods=max(i.throttled_periods for i in seen),
                pressure=max(i.pressure for i in seen),
                involuntary_switches=sum(i.involuntary_switches for i in seen),
                gpu_foreign=max(
                    (i.gpu_foreign for i in seen if i.gpu_foreign is not None), default=None
                ),
                gpu_power_capped=max(i.gpu_power_capped for i in seen),
                dirty=tuple(dict.fromkeys(reason for i in seen for reason in i.dirty)),
                own=_mean_known([i.own for i in seen]),
            ),
            shares=tuple(Share(s.calls, s.seconds) for s in slices),
            served=_served_together(slices),
            latency=latency([seconds for s in slices for seconds in s.call_s])
            if slices[0].latency
            else None,
            # of the one card that they share: each saw all of it
            energy_j=max((s.energy_j for s in slices if s.energy_j is not None), default=None),
            packed_calls=b"".join(s.packed_calls for s in slices),
        )
    )
