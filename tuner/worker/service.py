"""A user's own server in the place of a model: started, waited for, and sent requests over HTTP.

    tune-framework --serve "uvicorn app:app --port {port}" --url http://127.0.0.1:{port}/predict
        --requests requests.jsonl

It is tuned by launch settings alone. Each instance has a port and a worker of its own, which posts
every n-th request, as a balancer that takes turns would. Ordered without an offer, a slice lets
more and more callers post at the same time (a closed loop): where latencies cross the bound is what
the search goes by. With one, requests arrive whatever became of those before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from tuner import supervisor
from tuner.errors import Silent, UsageError, WorkerFailed
from tuner.host.interference import Watch
from tuner.host.numa import apply_memory_policy
from tuner.record.arrivals import due_of
from tuner.record.configuration import Value
from tuner.record.launch import (
    Built,
    Checked,
    Compiled,
    Prepared,
    Profiled,
    ReadBack,
    Slice,
    packed,
)
from tuner.record.load import Batching, Load, Offer
from tuner.record.protocol import (
    Answered,
    Begin,
    Check,
    Idle,
    MakeReference,
    Measure,
    Measured,
    Placed,
    Prepare,
    Profile,
    Seen,
    Serve,
)
from tuner.record.serving import Level, Served
from tuner.record.workload import SERVICE, ModelFacts, ModelRef
from tuner.worker import answers
from tuner.worker.evidence import variables
from tuner.worker.evidence.program import Sighting, memory_of
from tuner.worker.http_client import Body, Client, Overrun, clock, read_requests
from tuner.worker.instance_barrier import InstanceBarrier, Orders
from tuner.worker.own_server import LOG, Server, digest_of
from tuner.worker.program import card_of_started, observed
from tuner.worker.scenarios.timing import Begun, slice_of, until_steady
from tuner.worker.session import WrongOutput

_MOST_CALLERS = 64
_GROWS, _FLAT = 1.05, 2
"""By this much more callers must raise the rate. If they do not, this many times in a row, it
cannot be raised. Not at the first time: two callers fill no batch of a server that is busy with the
first."""
_SEVERAL, _UNDER_LOAD_S = 8, 0.5
_CURES: Mapping[str, Sequence[Mapping[str, Value]]] = {"torch": ({"env.OMP_NUM_THREADS": 1},)}
"""By framework: settings under which a server may answer that does not with nothing set. OpenMP's
pool does not survive a fork: with one thread none is started (pytorch/pytorch#49555)."""
_N_CHECKED = 32
"""Requests whose answers are compared, evenly spread over all."""


class ServiceSession:
    """The state of one launch of a server; answers the same commands as a model's session."""

    _server: Server
    _client: Client
    _load: Load

    def __init__(self, tell: Callable[[str], None], orders: Orders) -> None:
        self._tell = tell
        self._company = InstanceBarrier(orders, tell)
        self._watch = Watch(of=self._own_pids)
        self._placed: Placed | None = None
        self._settings: dict[str, Value] = {}
        self._framework = ""
        self.seen = Sighting()
        """Observations of the server's processes, including those that were killed."""
        self._bodies: list[Body] = []
        self._reference_path = Path()
        self._next = 0

    def _own_pids(self) -> list[int]:
        try:
            return [self._server.pid, *supervisor.descendants(self._server.pid)]
        except AttributeError:  # not started yet
            return []

    def begin(self, order: Begin) -> Built:
        """Start the server, which inherits the memory policy, and wait until it answers."""
        apply_memory_policy(order.memory_policy)
        self._settings, self._framework = order.settings, order.framework
        self._placed = order.placed
        self._reference_path = Path(order.reference)
        return Built(0.0, self._start(order.model), {})

    def _start(self, ref: ModelRef) -> float:
        """Start the server; return the seconds until it answers."""
        requests = read_requests(ref)
        self._bodies = requests.bodies
        self._server = Server(ref, list(self._settings), self._placed, LOG.resolve())
        self._tell(f"waiting for {self._server.url}")
        self._client = Client(self._server.url, requests)
        return self._server.until_ready(self._client, self.seen, self._tell)

    def prepare(self, order: Prepare) -> Compiled:
        """Post the first requests of the load."""
        self._load = order.load
        before = clock()
        self._client.answer(0)
        return Compiled(clock() - before)

    def warm_up(self) -> Prepared:
        """Post requests one after the other until they are steady, and look at the server."""
        self._tell("warming up")
        warm = until_steady(self._ask_next, clock)
        with suppress(Overrun):  # as under load, so that memory is what it takes then
            self._client.closed_loop(_SEVERAL, _UNDER_LOAD_S)
        self.seen.look(self._server.pid)
        peak, private = memory_of(self._own_pids())
        return Prepared(
            first_call_s=warm.call_s,
            steady_call_s=warm.call_s,
            warm_up_s=warm.seconds,
            is_steady=warm.is_steady,
            memory_peak_bytes=peak,
            memory_private_bytes=private,
            read_back=tuple(self._read_back(self._framework)),
            cpus=tuple(sorted(self.seen.cpus)),
        )

    def _ask_next(self) -> None:
        self._next += 1
        self._client.answer(self._next)

    def _read_back(self, framework: str) -> list[ReadBack]:
        found = self.seen.read_back(self._settings)
        known = {item.knob for item in found}
        return found + variables.of_environment(
            self._settings,
            known,
            framework,
            self.seen.libraries,
            self._server.environment(),
        )

    def measure(self, order: Measure) -> Measured | Idle:
        """Post the requests, or those of more and more callers in a closed loop."""
        company = self._company if order.in_team else None
        batching = self._load.batching
        try:
            self._server.check_alive()
            for _ in range(order.discard):
                self._ask_next()
            if order.offer is not None and batching is not None:
                taken = self._answered(order, order.offer, batching, company)
            else:
                taken = self._in_closed_loop(order, batching, company)
        except WorkerFailed:
            self._server.check_alive()  # that it ended says more than that it does not answer
            raise
        return Idle() if taken is None else Measured(taken)

    def _in_closed_loop(
        self, order: Measure, batching: Batching | None, company: InstanceBarrier | None
    ) -> Slice:
        begun = Begun(company, self._watch)
        start = clock()
        levels: list[Level] = []
        took_s: list[float] = []
        callers = 1
        n_flat = 0
        while callers <= _MOST_CALLERS and n_flat < _FLAT:
            try:
                own_s, seconds = self._client.closed_loop(callers, order.seconds)
            except Overrun:
                if callers == 1:
                    raise
                break
            best = max((level.rate for level in levels), default=0.0)
            took_s += own_s
            levels.append(Level(callers, len(own_s) / seconds, packed(own_s)))
            n_flat = n_flat + 1 if levels[-1].rate < _GROWS * best else 0
            if batching is None:
                break
            callers *= 2
        seconds = clock() - start
        ended = begun.ended(seconds)
        if company:
            company.keep_up(self._ask_next)
        served = None
        if batching is not None:
            served = Served(batching, len(took_s), levels=tuple(levels))
        return slice_of(order, 1, took_s, seconds, ended, served)

    def _answered(
        self, order: Measure, offer: Offer, batching: Batching, company: InstanceBarrier | None
    ) -> Slice | None:
        placed = self._placed
        mine = slice(None) if placed is None else slice(placed.rank, None, placed.n_instances)
        draw = np.random.default_rng((offer.seed, 1))
        all_due = due_of(offer)
        numbers = draw.integers(len(self._bodies), size=len(all_due))[mine]
        due = [float(moment) for moment in all_due[mine]]
        least = len(range(offer.n_requests)[mine])
        begun = Begun(company, self._watch)
        start = clock() - begun.late_s
        cpu_before = time.thread_time()
        waited_s, end = self._client.arriving(due, [int(n) for n in numbers], start, least)
        own_s = time.thread_time() - cpu_before
        ended = begun.ended(end - start)
        if company:
            company.keep_up(lambda: time.sleep(0.001))
        if not waited_s:
            return None
        served = Served(
            batching,
            len(waited_s),
            offered=offer.rate,
            seed=None if offer.moments else offer.seed,
            generator=min(1.0, own_s / (end - start)),
        )
        return slice_of(order, 1, waited_s, end - start, ended, served)

    def check(self, order: Check) -> Checked:
        """Compare answers with the default's; raises WrongOutput."""
        self._tell("checking answers")
        before = clock()
        requested = self._asked()
        names = [self._bodies[number].name for number in requested]
        found, fault = answers.compare(self._reference_path, self._client.answers(requested), names)
        if fault:
            raise WrongOutput(fault)
        return Checked(found, clock() - before)

    def _asked(self) -> list[int]:
        """Return the numbers of the requests whose answers are compared."""
        n = min(_N_CHECKED, len(self._bodies))
        return [i * len(self._bodies) // n for i in range(n)]

    def make_reference(self, order: MakeReference) -> None:
        """Request every answer twice from two servers without settings, and write them.

        If that does not answer, under the settings with which it does.
        """
        self._set_variables(order.settings)
        answered = []
        for _ in range(2):  # what differs from process to process is no answer either
            self._start(order.model)
            answered += [self._client.answers(self._asked()) for _ in range(2)]
            self.close()
        answers.write(Path(order.path), answered)

    def close(self) -> None:
        """Kill the server, if one was started."""
        if hasattr(self, "_server"):
            self._server.kill()
            self._client.close()

    def keep_weights(self) -> None:
        """A server's are its own."""

    def facts_of(self, ref: ModelRef) -> dict[str, ModelFacts]:
        """Start it without settings, and return the facts about it, by framework.

        If that does not answer, start it under settings that may help; raises Silent if none does.
        """
        silence, cure, in_force = "", dict[str, Value](), dict[str, dict[str, Value]]()
        try:
            start_s = self._start(ref)
        except Silent as silent:
            silence, in_force = str(silent), self._in_force()  # not what the cure sets
            self.close()
            start_s, cure = self._start_cured(ref, silent)
        warm = until_steady(self._ask_next, clock)
        in_force = {**self._in_force(), **in_force}
        return {
            framework: ModelFacts(
                n_parameters=0,
                input_shapes=(),
                versions={},
                effective_defaults=in_force[framework],
                unread=variables.unread(framework, libraries=self.seen.libraries),
                graph_width=0.0,
                graph_fault="a server shows no graph",
                import_s=0.0,
                build_s=start_s,
                call_s=warm.call_s,
                silence=silence,
                answers_with=cure,
            )
            for framework in self.seen.frameworks()
        }

    def _in_force(self) -> dict[str, dict[str, Value]]:
        """Return what is in force now, by framework."""
        return {each: observed(self._read_back(each)) for each in self.seen.frameworks()}

    def _start_cured(self, ref: ModelRef, silent: Silent) -> tuple[float, dict[str, Value]]:
        """Start a silent server under settings that may help; return the seconds and the settings.

        Raises Silent if none helps.
        """
        tried = ""
        for cure in (cure for each in self.seen.frameworks() for cure in _CURES.get(each, ())):
            shown = self._set_variables(cure)
            self._tell(f"the server does not answer: trying {shown}")
            try:
                return self._start(ref), dict(cure)
            except Silent:
                self.close()
                tried += f"; nor does it with {shown}"
        raise Silent(f"{silent}{tried}") from silent

    def _set_variables(self, settings: Mapping[str, Value]) -> str:
        """Start servers under variables from now on; return them as a shell takes them."""
        variables = {knob.removeprefix("env."): str(value) for knob, value in settings.items()}
        self._settings = dict(settings)
        self._placed = Placed(variables, rank=0, n_instances=1)
        return " ".join(f"{name}={value}" for name, value in variables.items())

    def serve(self, order: Serve) -> Answered:
        """Answer nothing: LoadGen does not speak HTTP."""
        raise UsageError("a server (--serve) is not asked by LoadGen")

    def profile(self, order: Profile) -> Profiled:
        """Report nothing: a server's inside is its own."""
        return Profiled((), 0.0, 0, "a server is not looked into", 0.0)

    def out_of_memory_errors(self) -> tuple[type[BaseException], ...]:
        """Name the errors of exhausted memory here."""
        return (MemoryError,)


def look_at_server(ref: ModelRef, tell: Callable[[str], None], orders: Orders) -> Seen:
    """Start a server once to see which framework it uses, and how long it takes to answer."""
    session = ServiceSession(tell, orders)
    try:
        facts = session.facts_of(ref)
        digest = digest_of(ref, read_requests(ref).bodies)
    except (UsageError, WorkerFailed) as error:
        return Seen(card_of_started(ref, SERVICE, session.seen, "", str(error)), {})
    finally:
        session.close()
    return Seen(card_of_started(ref, SERVICE, session.seen, digest, ""), facts)
