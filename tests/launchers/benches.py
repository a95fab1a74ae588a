"""Benches of the fake model, after which nothing may be left."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from tests.command import MARKER, new_marker, wait_until_gone
from tests.virtual import Forked
from tuner.galleries import MODELS
from tuner.host.identity import probe
from tuner.launchers import supervised
from tuner.launchers.describe import describe_model, find_model, make_reference
from tuner.launchers.process_launch import ProcessLaunch
from tuner.launchers.processes import ProcessLauncher
from tuner.launchers.protocol import Launch
from tuner.launchers.testbed import THIS_HOST
from tuner.measurement.bench import Bench, bench_on
from tuner.record.configuration import Value
from tuner.record.events import Event
from tuner.record.journal import StudyOpened
from tuner.record.objective import THROUGHPUT
from tuner.record.store import Store
from tuner.record.workload import ModelCard, ModelFacts, ModelRef, Workload

Maker = Callable[..., Bench]


class Fake(msgspec.Struct, frozen=True):
    """What three worker processes told of the fake model, and its reference."""

    ref: ModelRef
    card: ModelCard
    facts: ModelFacts
    reference: Path


class OfBenches(Forked):
    """Forks the workers of benches."""


FORKING = SimpleNamespace(Popen=OfBenches, DEVNULL=subprocess.DEVNULL)
"""Stands in for `subprocess` in launchers/supervised.py."""


@pytest.fixture(scope="session")
def seed() -> Iterator[str]:
    """Start what forks workers (tests/seed.py); yield the marker that it and its forks have."""
    marker = new_marker()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(MARKER, marker)
        line = OfBenches._sow()
    yield marker
    line.close()
    OfBenches._seed.wait()
    assert wait_until_gone(marker) == []


@pytest.fixture(scope="session")
def fake(seed: str, tmp_path_factory: pytest.TempPathFactory) -> Fake:
    """Asked once: no parameter of the fake changes its card, nor its outputs with nothing set."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(supervised, "subprocess", FORKING)
        ref, card = find_model("fake", MODELS)
        reference = tmp_path_factory.mktemp("fake") / "reference.npz"
        make_reference(ref, "fake", 0, reference)
        return Fake(ref, card, describe_model(ref, "fake", 0), reference)


@pytest.fixture
def forked(seed: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fork workers, which spares each the start of Python; check that nothing survives them."""
    monkeypatch.setattr(supervised, "subprocess", FORKING)
    yield
    assert wait_until_gone(seed, but=(OfBenches._seed.pid,)) == []


@pytest.fixture
def bench_of(
    fake: Fake, forked: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Maker]:
    """Make benches for the fake model with parameters; check that nothing survives them.

    Their workers are forked; see `started`.
    """
    marker = new_marker()
    monkeypatch.setenv(MARKER, marker)
    benches: list[Bench] = []

    def make(seconds_left: float = 60.0, listen: Callable[[Event], None] = lambda _: None,
             folder: Path | None = None, **parameters: Value) -> Bench:  # fmt: skip
        ref = msgspec.structs.replace(fake.ref, parameters=tuple(sorted(parameters.items())))
        store = Store(folder or tmp_path / f"study{len(benches)}")
        if store.opened is None:
            store.add(StudyOpened("id", {}, "now", "0"))
        shutil.copyfile(fake.reference, store.reference_path)
        workload = Workload(ref, "fake", "offline", fake.card)
        bench = bench_on(
            THIS_HOST,
            store,
            probe(),
            workload,
            fake.facts,
            THROUGHPUT,
            listen,
            session=1,
            seed=0,
            seconds_left=lambda: seconds_left,
            waiting_s=0.0,
        )
        benches.append(bench)
        return bench

    yield make
    for bench in benches:
        bench.close()
        bench.store.close()
    monkeypatch.delenv(MARKER)
    assert wait_until_gone(marker) == []


@pytest.fixture
def started(bench_of: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have workers started from nothing: for what only a new program shows."""
    monkeypatch.setattr(supervised, "subprocess", subprocess)


def pids_of(launch: Launch) -> tuple[int, ...]:
    """Return the processes of a launch, by rank; none once it has ended."""
    assert isinstance(launch, ProcessLaunch)
    return launch._team.pids if launch._team is not None else ()


def launcher_of(bench: Bench) -> ProcessLauncher:
    """Return what starts the processes of a bench."""
    assert isinstance(bench.launcher, ProcessLauncher)
    return bench.launcher


def limit_memory(bench: Bench, memory_bytes: float) -> None:
    memory = launcher_of(bench).memory
    memory._limits = msgspec.structs.replace(memory._limits, memory_bytes=int(memory_bytes))
