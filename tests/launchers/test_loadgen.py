"""The real LoadGen on a real worker of the fake, whose calls take no time of the wall clock."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.wants import needs
from tests.worker.workers import Launched
from tuner.launchers.loadgen import loadgen
from tuner.record.launch import Compiled
from tuner.record.load import Batching, Load
from tuner.record.protocol import Answered, Failed, Prepare, Serve
from tuner.record.serving import LoadgenOrder, LoadgenWord

pytestmark = needs("mlperf_loadgen")
BATCHING = Batching((1, 2, 4))
IN_TIME_S = 10.0
"""Enough for a queue of all requests, on a host however busy."""


def order(rate: float, duration_s: float, seconds: float = 0.05) -> LoadgenOrder:
    return LoadgenOrder(rate, 0.99, seconds, duration_s, int(rate * duration_s), BATCHING, 1)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Launched]:
    with Launched(tmp_path, "fake", {}, model="fake") as launched:
        assert not isinstance(launched.begin(), Failed)
        load = Load("server", BATCHING.largest, batching=BATCHING)
        assert isinstance(launched.ask(Prepare(load)), Compiled)
        yield launched


def asked(server: Launched, wanted: LoadgenOrder, folder: Path) -> LoadgenWord:
    with loadgen(wanted, folder / "loadgen.log") as running:
        answered = server.ask(Serve(running.address))
        assert isinstance(answered, Answered), answered
        word = running.word(30)
    assert isinstance(word, LoadgenWord), word
    assert 0 < answered.n_batches <= word.n_requests
    return word


def test_a_rate_that_is_kept_long_enough_is_valid(server: Launched, tmp_path: Path) -> None:
    word = asked(server, order(400.0, 2.0, IN_TIME_S), tmp_path)
    assert (word.word, word.reason, word.n_over) == ("valid", "", 0)
    assert word.n_requests >= 800
    assert word.scheduled_rate == pytest.approx(400, rel=0.1)
    assert word.latency_s is not None and 0 < word.latency_s < IN_TIME_S


def test_a_run_that_proves_too_little_is_told_from_one_that_is_too_slow(
    server: Launched, tmp_path: Path
) -> None:
    short = asked(server, order(60.0, 1.0, IN_TIME_S), tmp_path)
    assert short.word == "too_short"
    assert "Would need to run at least" in short.reason
    slow = asked(server, order(60.0, 1.0, seconds=1e-6), tmp_path)
    assert slow.word == "too_slow"
    assert slow.n_over > 0


def test_loadgen_that_waits_for_ever_is_killed_and_leaves_nothing(tmp_path: Path) -> None:
    with loadgen(order(60.0, 1.0), tmp_path / "loadgen.log") as running:  # nobody connects
        assert running.word(1.0) == "LoadGen did not end within 1 s"
    assert not Path(running.address).parent.exists()


def test_why_loadgen_failed_is_told(tmp_path: Path) -> None:
    nobody = LoadgenOrder(60.0, 0.99, 0.05, 1.0, 60, Batching((1,), n_servers=0), n_shapes=0)
    with loadgen(nobody, tmp_path / "loadgen.log") as running:
        word = running.word(30)
    assert isinstance(word, str)
    assert word.startswith("LoadGen failed: ")
