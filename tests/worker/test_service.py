"""A user's own server: real processes on the loopback interface, asked by real HTTP."""

import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.wants import needs
from tuner import supervisor
from tuner.errors import Silent, UsageError, WorkerFailed
from tuner.record.configuration import Value
from tuner.record.launch import Slice, packed
from tuner.record.load import Batching, Load, Offer, Slo
from tuner.record.protocol import Begin, MakeReference, Measure, Measured, Placed, Prepare
from tuner.record.service_times import alone_s, crossing, most_answered
from tuner.record.serving import Level, Served
from tuner.record.workload import ModelRef
from tuner.worker import answers, own_server, service
from tuner.worker.evidence.program import Sighting
from tuner.worker.http_client import (
    TURNED_AWAY_S,
    Client,
    Overrun,
    Refused,
    Requests,
    Unreachable,
    read_bodies,
    read_requests,
)
from tuner.worker.instance_barrier import Orders
from tuner.worker.own_server import Server
from tuner.worker.service import ServiceSession, look_at_server

SERVER = """
import json, os, subprocess, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

port, mode = int(sys.argv[1]), sys.argv[2]
PARTS = "multipart/form-data; boundary=tunes"
lock, n = threading.Lock(), 0
if mode == "exits":
    print("no model here")
    sys.exit(3)
if mode == "torch":
    import torch
if mode == "forks":  # maps the library by which a framework is known, and hangs as after a fork
    import mmap
    with open("libtorch_cpu.so", "wb+") as library:
        library.write(bytes(4096))
        library.flush()
        held = mmap.mmap(library.fileno(), 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC)
is_stuck = mode == "silent" or mode == "forks" and os.environ.get("OMP_NUM_THREADS") != "1"
if is_stuck and os.fork():
    threading.Event().wait()
if mode == "late":
    time.sleep(0.5)
if mode == "daemons":
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", os.getcwd()],
                     start_new_session=True)

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or each answer waits for an acknowledgement of its head

    def do_POST(self):
        global n
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if is_stuck:
            threading.Event().wait()
        is_busy = mode == "sheds" and lock.locked()
        until = time.monotonic() + (1.2 if mode == "works" else 0)
        while time.monotonic() < until:
            pass
        with lock:  # one at a time
            n += 1
            time.sleep(0.02)
        code = 500 if mode == "fails" or mode == "fails later" and n > 3 else 200
        code = 503 if mode == "loads" and n < 3 else code
        code = 429 if is_busy else code
        code = 302 if mode == "redirects" else code
        if mode == "asks for a key" and self.headers["X-Key"] != "sesame":
            print(f"no {self.headers['X-Key']}", flush=True)
            code = 401
        if mode == "takes parts" and self.headers.get_all("Content-Type") != [PARTS]:
            code = 422
        if code == 500:
            print("KeyError: 'text'", file=sys.stderr, flush=True)
        said = json.dumps({"got": len(body), "score": 0.5 + n * 1e-9, "id": n}).encode()
        if code == 401:
            said = f"not {self.headers['X-Key']}".encode()
        self.send_response(code)
        if code == 302:
            self.send_header("Location", "http://example.com/")
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


def written(folder: Path, mode: str) -> ModelRef:
    """Write a server and what it is asked."""
    (folder / "server.py").write_text(SERVER)
    (folder / "requests.jsonl").write_text('{"text": "a"}\n\n{"text": "longer"}\n')
    return ModelRef(
        "server",
        str(folder),
        command=(sys.executable, "server.py", "{port}", mode),
        url="http://127.0.0.1:{port}/predict",
        inputs=str(folder / "requests.jsonl"),
    )


class Running:
    """A server of the test's, and a client of it."""

    def __init__(self, folder: Path, mode: str) -> None:
        self.ref = written(folder, mode)
        self.server = Server(self.ref, (), None, folder / "log")
        self.client = Client(self.server.url, read_requests(self.ref))
        self.told: list[str] = []

    def until_ready(self) -> float:
        return self.server.until_ready(self.client, Sighting(), self.told.append)


@pytest.fixture
def running(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Running]:
    made = Running(tmp_path, getattr(request, "param", "answers"))
    yield made
    made.client.close()
    made.server.kill()


@pytest.mark.parametrize("running", ["late", "loads"], indirect=True)
def test_it_is_waited_for(running: Running) -> None:
    assert running.until_ready() > 0.04
    said = [text.removeprefix(f"waiting for {running.server.url}, ") for text in running.told]
    busy = "which answers that it is busy"
    # which of these is seen before it is ready depends on who else uses the host
    assert set(said) <= {
        "where nothing listens (has the command {port}, or reads it $PORT?)",
        "which takes the request and has not answered",
        busy,
    }
    assert (busy in said) is ("loads" in running.ref.command)
    assert json.loads(running.client.answer(1))["got"] == len('{"text": "longer"}')


@pytest.mark.parametrize(
    ("running", "kind", "told"),
    [
        ("exits", WorkerFailed, "ended with exit code 3 (its last line: no model here)"),
        ("fails", Refused, "answered 500 to requests.jsonl:1"),
        ("fails", Refused, "(its last line: KeyError: 'text')"),
        ("redirects", Refused, "answered 302"),
    ],
    indirect=["running"],
)
def test_what_does_not_become_ready_says_why(
    running: Running, kind: type[WorkerFailed], told: str
) -> None:
    with pytest.raises(kind) as raised:
        running.until_ready()
    assert told in str(raised.value)


@pytest.mark.parametrize("running", ["sheds"], indirect=True)
def test_what_an_overrun_server_turns_away_is_late_and_no_failure(running: Running) -> None:
    running.until_ready()
    waited, _ = running.client.arriving([0.0] * 6, [0] * 6, time.monotonic(), 6)
    assert waited.count(TURNED_AWAY_S) >= 2
    assert min(waited) < 1
    with pytest.raises(Overrun):
        running.client.closed_loop(6, 0.2)


@pytest.mark.parametrize("running", ["fails later"], indirect=True)
def test_a_refusal_under_load_is_a_failure(running: Running) -> None:
    running.until_ready()
    with pytest.raises(Refused, match="answered 500"):
        running.client.closed_loop(4, 0.5)


@pytest.fixture
def stuck_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_server, "_STUCK_S", 0.6)


@pytest.mark.parametrize("running", ["silent"], indirect=True)
def test_a_server_that_takes_requests_and_never_answers_is_not_called_absent(
    running: Running, stuck_soon: None
) -> None:
    with pytest.raises(Silent) as raised:
        running.until_ready()
    assert "takes requests at http://127.0.0.1:" in str(raised.value)
    assert "its processes have done nothing" in str(raised.value)
    assert "nobody" not in str(raised.value)
    assert any("which takes the request and has not answered" in text for text in running.told)


@pytest.mark.parametrize("running", ["works"], indirect=True)
def test_a_server_that_works_on_its_first_answer_is_waited_for(
    running: Running, stuck_soon: None
) -> None:
    """It computes for longer than one that is stuck is given."""
    assert running.until_ready() > 0.6


@pytest.mark.parametrize("mode", ["forks", "silent"])
def test_a_server_that_hangs_after_a_fork_is_looked_at_under_what_cures_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stuck_soon: None, mode: str
) -> None:
    monkeypatch.setattr(service, "LOG", tmp_path / "log")
    (tmp_path / "log").touch()
    ref = written(tmp_path, mode)
    with open(os.devnull, "rb", buffering=0) as nobody:
        found = look_at_server(ref, lambda _: None, Orders(nobody))
        if mode == "silent":  # and no framework is seen, whose cure could be tried
            assert found.facts == {}
            assert "takes requests" in found.card.fault
            return
        assert found.card.fault == ""
        facts = found.facts["torch"]
        assert facts.answers_with == {"env.OMP_NUM_THREADS": 1}
        assert "threads do not survive a fork" in facts.silence
        assert facts.effective_defaults.get("env.OMP_NUM_THREADS") != 1, "that of the cure"
        session = ServiceSession(lambda _: None, Orders(nobody))
        path = tmp_path / "reference.npz"
        settings = facts.answers_with
        session.make_reference(MakeReference(ref, "torch", 0, str(path), 2, settings=settings))
        assert path.exists()


def test_a_key_is_sent_and_never_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keyed = msgspec.structs.replace(
        written(tmp_path, "asks for a key"), headers=(("X-Key", "env:SHOP"),)
    )
    server = Server(keyed, (), None, tmp_path / "log")
    try:
        for value, is_right in (("sesame", True), ("open!", False)):
            monkeypatch.setenv("SHOP", value)
            client = Client(server.url, read_requests(keyed))
            if is_right:
                server.until_ready(client, Sighting(), lambda _: None)
            else:
                with pytest.raises(Refused) as raised:
                    server.until_ready(client, Sighting(), lambda _: None)
                assert "answered 401" in str(raised.value)
                assert "--header 'NAME: env:VARIABLE'" in str(raised.value)
                assert value not in str(raised.value)
                assert "*** (SHOP)" in str(raised.value)
            client.close()
    finally:
        server.kill()


@pytest.mark.parametrize("running", ["takes parts"], indirect=True)
def test_a_content_type_with_its_boundary_stands_in_the_place_of_the_files(
    running: Running, tmp_path: Path
) -> None:
    with pytest.raises(Refused, match="is the content type right"):
        running.until_ready()
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts/0.bin").write_bytes(b"--tunes\r\n\r\nhello\r\n--tunes--\r\n")
    headers = (("content-type", "multipart/form-data; boundary=tunes"),)
    ref = msgspec.structs.replace(running.ref, inputs=str(tmp_path / "parts"), headers=headers)
    client = Client(running.server.url, read_requests(ref))
    assert client.answer(0)
    client.close()
    (tmp_path / "parts/1.bin").write_bytes(b"--other\r\n")
    with pytest.raises(UsageError, match=r"1\.bin has no line --tunes"):
        read_requests(ref)


def test_more_callers_wait_longer_and_get_no_more(running: Running) -> None:
    running.until_ready()
    alone, seconds = running.client.closed_loop(1, 0.3)
    four, seconds_of_four = running.client.closed_loop(4, 0.3)
    assert len(four) / seconds_of_four < 1 / 0.02 + 4 / seconds_of_four
    assert min(alone) >= 0.02 and len(alone) >= 1 and seconds >= 0.3
    assert sorted(four)[len(four) // 2] > 2 * sorted(alone)[len(alone) // 2]


def test_latency_counts_from_the_moment_at_which_a_request_was_due(running: Running) -> None:
    """Ten at once, one at a time in 20 ms: the last waits for all of them."""
    running.until_ready()
    start = time.monotonic()
    waited, end = running.client.arriving([0.1] * 10, [0, 1] * 5, start, 10)
    assert len(waited) == 10
    assert min(waited) >= 0.02 and max(waited) >= 10 * 0.02
    assert end - start >= 0.1 + max(waited) - 0.01


def test_requests_are_posted_until_the_server_is_idle(running: Running) -> None:
    """Each takes 20 ms: the fourth comes while the third is answered, the fifth long after."""
    running.until_ready()
    start = time.monotonic()
    due = [0.1, 0.1, 0.1, 0.1, 2.0, 2.1]
    waited, end = running.client.arriving(due, [0] * 6, start, 3)
    assert len(waited) == 4
    assert end - start < 2.0, "it ended with the last answer"


def test_nobody_there_is_unreachable() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{held.getsockname()[1]}/"
        client = Client(url, Requests(read_bodies(Path(__file__)), {}))
        with pytest.raises(Unreachable, match="gave no answer"):
            client.answer(0)
        client.close()


@pytest.mark.parametrize("running", ["daemons"], indirect=True)
def test_what_it_has_started_ends_with_it(running: Running) -> None:
    running.until_ready()
    (daemon,) = supervisor.descendants(running.server.pid)
    running.server.kill()
    for _ in range(100):  # a signal takes its time
        if (
            not Path(f"/proc/{daemon}").exists()
            or " Z " in Path(f"/proc/{daemon}/stat").read_text()
        ):
            break
        time.sleep(0.05)
    else:
        pytest.fail(f"{daemon} still runs")


@pytest.mark.slow
@needs("torch")
def test_a_launch_tells_what_is_in_force_in_the_server_and_takes_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second of two instances, under a variable that the worker itself does not have."""
    monkeypatch.setattr(service, "LOG", tmp_path / "log")
    with open(os.devnull, "rb", buffering=0) as nobody:
        session = ServiceSession(lambda _: None, Orders(nobody))
        placed = Placed({"OMP_NUM_THREADS": "1"}, rank=1, n_instances=2)
        settings: dict[str, Value] = {"env.OMP_NUM_THREADS": 1}
        reference = str(tmp_path / "reference.npz")
        try:
            session.begin(
                Begin(1, written(tmp_path, "torch"), "torch", 0, settings, "none", reference,
                      placed=placed)
            )  # fmt: skip
            session.prepare(Prepare(Load("server", 1, batching=Batching((1,), n_servers=2))))
            prepared = session.warm_up()
            (known,) = [each for each in prepared.read_back if each.knob == "env.OMP_NUM_THREADS"]
            assert (known.observed, known.in_force) == (1, True)
            assert "OMP_NUM_THREADS" not in os.environ
            assert prepared.memory_peak_bytes >= prepared.memory_private_bytes > 1e7
            closed = session.measure(Measure(0, 0.1, 1))
            assert isinstance(closed, Measured) and closed.slice.served is not None
            assert [each.callers for each in closed.slice.served.levels][:2] == [1, 2]
            offered = session.measure(Measure(1, 0.1, 0, offer=Offer(40.0, 21, 1)))
            assert isinstance(offered, Measured) and offered.slice.served is not None
            assert offered.slice.served.n_requests == 10
            assert offered.slice.served.offered == 40.0
            assert 0 < offered.slice.served.generator < 0.9
        finally:
            session.close()


def test_a_server_without_a_framework_has_nothing_to_tune(
    running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "LOG", tmp_path / "log")
    with open(os.devnull, "rb", buffering=0) as nobody:
        card = look_at_server(running.ref, running.told.append, Orders(nobody)).card
    assert "loads neither PyTorch nor TensorFlow" in card.fault
    assert card.form == "service"


def test_what_the_default_does_not_answer_twice_alike_is_not_compared(
    running: Running, tmp_path: Path
) -> None:
    running.until_ready()
    path = tmp_path / "reference.npz"
    answers.write(path, [running.client.answers([0, 1]), running.client.answers([0, 1])])
    found, fault = answers.compare(path, running.client.answers([0, 1]), ["one", "two"])
    assert (fault, found.n_inputs) == ("", 2)
    assert 0 < found.drift < 1e-6
    wrong = [b'{"got": 13, "score": 0.51, "id": 1}', b'{"got": 18, "score": 0.5}']
    _, fault = answers.compare(path, wrong, ["one", "two"])
    assert fault.startswith("it answers one otherwise: score is 0.51, and with nothing set 0.5")
    wrong = [b'{"got": 13, "score": 0.5}', b"no JSON"]
    _, fault = answers.compare(path, wrong, ["one", "two"])
    assert fault.startswith("it answers two otherwise: got is not there")
    wrong = [b'{"got": 13, "score": 0.5, "more": 1}', b'{"got": 18, "score": 0.5}']
    _, fault = answers.compare(path, wrong, ["one", "two"])
    assert fault == "it answers one otherwise: more is 1, and with nothing set not there"


def test_a_number_is_held_to_others_of_its_kind(tmp_path: Path) -> None:
    """Not to a time in the same answer, of which nothing is left."""
    said = b'{"at": 1764000000.1, "scores": [0.25, 1e-9, 1.0], "class": 3}'
    path = tmp_path / "reference.npz"
    answers.write(path, [[said], [said.replace(b"000.1", b"000.2")]])
    for other, is_same in (
        (b'{"at": 1764000001.1, "scores": [0.25, 2e-9, 1], "class": 3}', True),
        (b'{"at": 1764000000.1, "scores": [0.251, 1e-9, 1.0], "class": 3}', False),
        (b'{"at": 1764000000.1, "scores": [0.25, 1e-9, 1.0], "class": 4}', False),
        (b'{"at": 1764000000.1, "scores": [0.25, 1e-9], "class": 3}', False),
    ):
        _, fault = answers.compare(path, [other], ["one"])
        assert (fault == "") is is_same, other


def test_answers_that_have_nothing_in_common_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="differ each time"):
        answers.write(tmp_path / "reference.npz", [[b"one"], [b"two"]])


@pytest.mark.parametrize(
    ("content", "told"),
    [(b"", "holds no request"), (b"{\n", ":1 is no JSON"), (b'{}\n"\xff"\n', ":2 is no JSON")],
)
def test_requests_that_are_none_are_said(tmp_path: Path, content: bytes, told: str) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_bytes(content)
    with pytest.raises(UsageError) as raised:
        read_bodies(path)
    assert told in str(raised.value)


def test_a_folder_holds_a_request_in_each_file(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"\x89PNG")
    (tmp_path / "b.json").write_text("{}")
    first, second = read_bodies(tmp_path)
    assert (first.content, first.type) == (b"\x89PNG", "image/png")
    assert second.type == "application/json"


def test_where_latencies_cross_the_bound_is_what_a_closed_loop_tells() -> None:
    levels = tuple(
        Level(callers, rate, packed([seconds] * 20))
        for callers, rate, seconds in ((1, 10.0, 0.1), (2, 18.0, 0.11), (4, 20.0, 0.2))
    )
    taken = Slice(0, 1, 60, 6.0, 0.0, packed_calls=packed([0.1] * 60),
                  served=Served(Batching((1,)), 60, levels=levels))  # fmt: skip
    assert most_answered(taken) == 20.0
    assert alone_s(taken) == pytest.approx(0.1)
    found = crossing(taken, Slo(0.99, 0.15, ""))
    assert found is not None and 18.0 < found < 20.0
    assert crossing(taken, Slo(0.99, 0.3, "")) == 20.0
    assert crossing(taken, Slo(0.99, 0.05, "")) is None


def test_no_two_servers_are_given_the_same_port(running: Running, tmp_path: Path) -> None:
    (tmp_path / "others").mkdir()
    others = [Running(tmp_path / "others", "late") for _ in range(4)]
    try:
        assert len({each.server.url for each in (running, *others)}) == 5
    finally:
        for each in others:
            each.client.close()
            each.server.kill()
