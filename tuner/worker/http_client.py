"""Requests to a user's own server over HTTP, and their latencies.

From one thread of this process (asyncio), with new connections for every measurement: a server that
was stopped in between has closed idle ones.
"""

from __future__ import annotations

import asyncio
import json
import mimetypes
import os
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from tuner.errors import UsageError, WorkerFailed
from tuner.host.secrets import hold_back, redacted
from tuner.record.headers import CONTENT_TYPE, boundary, filled, variables_of
from tuner.record.workload import ModelRef

clock = time.monotonic
"""The one on which instances agree when to begin (worker/company.py)."""
_MOST_CONNECTIONS = 256
"""At the same time; requests beyond wait here, and the clock runs."""
_KEPT_OPEN_S = 1.0
"""Idle connections: servers close them after some seconds, and a request sent at that moment is
lost."""
WATCHED_EVERY_S = 0.25
_TOO_MUCH = (429, 503)
TURNED_AWAY_S = 3600.0
"""The latency recorded for a refused request: more than any bound."""
_MOST_REQUESTS, _MOST_BYTES = 1000, 1 << 26
_LINES = (".jsonl", ".ndjson")
_KEY = "; give what it asks for with --header 'NAME: env:VARIABLE'"
_TYPE = "; is the content type right? --header 'Content-Type: TYPE' names another"
_HINTS = {401: _KEY, 403: _KEY, 415: _TYPE, 422: _TYPE}
"""Advice by the status of an answer."""
_SHOWN = 200
_T = TypeVar("_T")


class Body(NamedTuple):
    """The body of a request."""

    content: bytes
    type: str
    """As HTTP names it: application/json."""
    name: str
    """Its source: FILE:LINE."""


class Refused(WorkerFailed):
    """A server answered with an error or something unexpected."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


class Unreachable(WorkerFailed):
    """Nothing listens at the address."""


class Overrun(WorkerFailed):
    """A server turned a request away, as those do that have too much to do."""


def read_bodies(path: Path, content_type: str = "") -> list[Body]:
    """Read the bodies of requests: the lines of a .jsonl, any other file, or those of a folder.

    content_type: of all of them; empty to derive it from the names. Raises UsageError if there is
    nothing or too much, or if a body lacks the parts that its content type announces.
    """
    parted_by = boundary(content_type)
    try:
        files = sorted(p for p in path.iterdir() if p.is_file()) if path.is_dir() else [path]
        if sum(file.stat().st_size for file in files) > _MOST_BYTES:
            raise UsageError(f"--requests {path} holds more than {_MOST_BYTES >> 20} MiB")
        found = [body for file in files for body in _bodies_of(file)]
    except OSError as error:
        raise UsageError(f"--requests {path} cannot be read: {error.strerror}") from error
    if not found:
        raise UsageError(f"--requests {path} holds no request: write one JSON document per line "
                         "(.jsonl), or a file for each into a folder")  # fmt: skip
    if len(found) > _MOST_REQUESTS:
        raise UsageError(f"--requests {path} holds {len(found)} requests; take {_MOST_REQUESTS} at "
                         "the most: they are sent again and again")  # fmt: skip
    for body in found if parted_by is not None else ():
        if f"--{parted_by}".encode() not in body.content:
            raise UsageError(f"--requests {path}: {body.name} has no line --{parted_by}, the "
                             "boundary that --header Content-Type names")  # fmt: skip
    return [body._replace(type=content_type or body.type) for body in found]


def _bodies_of(path: Path) -> list[Body]:
    content = path.read_bytes()
    if path.suffix not in _LINES:
        kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        return [Body(content, kind, path.name)]
    found = []
    for number, line in enumerate(content.splitlines(), 1):
        if not line.strip():
            continue
        try:
            json.loads(line)
        except ValueError as error:
            raise UsageError(f"--requests {path}:{number} is no JSON: {error}") from error
        found.append(Body(line, "application/json", f"{path.name}:{number}"))
    return found


class Requests(NamedTuple):
    """The requests to a server."""

    bodies: list[Body]
    headers: dict[str, str]
    """The headers of each besides its content type."""


def read_requests(ref: ModelRef) -> Requests:
    """Read the requests to a server, secrets from the environment; raises UsageError."""
    hold_back(variables_of(ref.headers))
    sent = filled(ref.headers, os.environ)
    headers = {name: value for name, value in sent.items() if name.lower() != CONTENT_TYPE}
    kind = next((value for name, value in sent.items() if name not in headers), "")
    return Requests(read_bodies(Path(ref.inputs), kind), headers)


class Client:
    """Posts requests to an address."""

    def __init__(self, url: str, requests: Requests) -> None:
        self.url = url
        self._bodies, self._headers = requests
        self._loop = asyncio.new_event_loop()

    def close(self) -> None:
        """Free the resources of the event loop."""
        self._loop.close()

    def answer(self, number: int) -> bytes:
        """Post one request and return its answer; raises WorkerFailed if there is none."""
        return self._run(lambda ask: ask(number))

    def first_answer(self, meanwhile: Callable[[], None]) -> bytes:
        """Post the first request, and return its answer; raises WorkerFailed if there is none.

        meanwhile: called a few times a second until the answer is there; an error that it raises
        ends the waiting.
        """

        async def watched(ask: _Ask) -> bytes:
            first = asyncio.ensure_future(ask(0))
            try:
                while not (await asyncio.wait({first}, timeout=WATCHED_EVERY_S))[0]:
                    meanwhile()
                return first.result()
            finally:
                first.cancel()

        return self._run(watched)

    def answers(self, numbers: Sequence[int]) -> list[bytes]:
        """Post some requests, one after the other, and return the answers."""

        async def each(ask: _Ask) -> list[bytes]:
            return [await ask(number) for number in numbers]

        return self._run(each)

    def closed_loop(self, callers: int, seconds: float) -> tuple[list[float], float]:
        """Let callers post for a while, each the next request when the last is answered.

        Returns the seconds of each request, and those of all together. Raises Overrun if the server
        takes no more.
        """

        async def calls(ask: _Ask) -> tuple[list[float], float]:
            took_s: list[float] = []
            start = clock()

            async def one(number: int) -> None:
                while (before := clock()) - start < seconds:
                    await ask(number)
                    took_s.append(clock() - before)
                    number += callers

            async def all_callers(group: asyncio.TaskGroup) -> None:
                for caller in range(callers):
                    group.create_task(one(caller))

            await _all(all_callers)
            return took_s, clock() - start

        return self._run(calls)

    def arriving(
        self, due: Sequence[float], numbers: Sequence[int], start: float, least: int
    ) -> tuple[list[float], float]:
        """Post requests when they are due, whatever became of those before.

        due: seconds from `start`, a moment of the clock, ascending. numbers: which request each is.
        least: requests after which none is posted once all are answered. Returns the seconds from
        the moment at which each was due, and when the last was answered. One that an overrun server
        turns away is as late as can be.
        """

        async def calls(ask: _Ask) -> tuple[list[float], float]:
            waited_s: list[float] = []
            n_answered, end = 0, start

            async def one(i: int) -> None:
                nonlocal n_answered, end
                with suppress(Overrun):
                    await ask(numbers[i])
                    waited_s[i] = clock() - start - due[i]
                n_answered, end = n_answered + 1, clock()

            async def each_when_due(group: asyncio.TaskGroup) -> None:
                for i, moment in enumerate(due):  # no task before its time: they would all be begun
                    await asyncio.sleep(max(0.0, start + moment - clock()))
                    if i >= least and n_answered == i:
                        break
                    waited_s.append(TURNED_AWAY_S)
                    group.create_task(one(i))

            await _all(each_when_due)
            return waited_s, end

        return self._run(calls)

    def _run(self, work: Callable[[_Ask], Awaitable[_T]]) -> _T:
        import aiohttp  # only who has a server needs it

        async def connected() -> _T:
            connector = aiohttp.TCPConnector(
                limit=_MOST_CONNECTIONS, keepalive_timeout=_KEPT_OPEN_S
            )
            patience = aiohttp.ClientTimeout(total=None)  # the tool gives up, not this
            async with aiohttp.ClientSession(
                connector=connector, timeout=patience, cookie_jar=aiohttp.DummyCookieJar()
            ) as session:
                return await work(lambda number: self._ask(session, number))

        return self._loop.run_until_complete(connected())

    async def _ask(self, session: Any, number: int) -> bytes:
        import aiohttp

        body = self._bodies[number % len(self._bodies)]
        try:
            # a redirection could lead off this machine
            async with session.post(
                self.url,
                data=body.content,
                headers={**self._headers, "Content-Type": body.type},
                allow_redirects=False,
            ) as answer:
                content: bytes = await answer.read()
                status: int = answer.status
        except (aiohttp.ClientError, OSError) as error:
            why = str(error) or type(error).__name__
            text = f"{self.url} gave no answer to {body.name}: {why}"
            # a server that was there and hangs up has too much to do, or has ended
            kind = Unreachable if isinstance(error, aiohttp.ClientConnectorError) else Overrun
            raise kind(text) from error
        if status in _TOO_MUCH:
            raise Overrun(f"{self.url} answered {status} to {body.name}")
        if not 200 <= status < 300:
            said = redacted(" ".join(content.decode(errors="replace").split()))[:_SHOWN]
            detail = (f": {said}" if said else "") + _HINTS.get(status, "")
            raise Refused(f"{self.url} answered {status} to {body.name}{detail}", status)
        return content


_Ask = Callable[[int], Coroutine[Any, Any, bytes]]


async def _all(begin: Callable[[asyncio.TaskGroup], Awaitable[None]]) -> None:
    """Wait for all tasks; raises the error of the first that failed."""
    try:
        async with asyncio.TaskGroup() as group:
            await begin(group)
    except BaseExceptionGroup as failed:
        first: BaseException = failed
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from None
