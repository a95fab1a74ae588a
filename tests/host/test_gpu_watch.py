"""What disturbs a slice on a card, by a card whose answers are written here."""

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tuner.host.gpu_watch import GpuReading, GpuWatch, watch_on
from tuner.record.launch import Interference
from tuner.record.workload import CPU, CUDA

MS = 1_000_000


class Card:
    """Answers as it is told to."""

    def __init__(self) -> None:
        self.energy_mj: int | None = 1000
        self.power_ns = self.thermal_ns = 5 * MS
        self.running = [os.getpid()]
        self.samples: list[tuple[int, int]] = []
        self.stamp = 0

    def n_cards(self) -> int:
        return 1

    def of_driver(self, question: str) -> Any:
        return None

    def of_card(self, card: int, question: str, *arguments: int) -> Any:
        match question, arguments:
            case "nvmlDeviceGetTotalEnergyConsumption", ():
                return self.energy_mj
            case "nvmlDeviceGetViolationStatus", (policy,):
                return {"violationTime": [self.power_ns, self.thermal_ns][policy]}
            case "nvmlDeviceGetComputeRunningProcesses", ():
                return [{"pid": pid} for pid in self.running]
            case "nvmlDeviceGetProcessUtilization", (since,):
                stamp = self.stamp or since + 1
                return [{"pid": p, "smUtil": u, "timeStamp": stamp} for p, u in self.samples]
        raise AssertionError(question)


@pytest.fixture
def card() -> Card:
    return Card()


def seen(card: Card, **changes: Any) -> tuple[Interference, float | None]:
    """Return what a slice saw in which the card's answers changed."""
    watch = GpuWatch(card, 0)
    before = watch.read()
    for name, value in changes.items():
        setattr(card, name, value)
    after = watch.read()
    assert isinstance(after, GpuReading)
    return watch.between(before, after), watch.energy_j(before, after)


def of_the_card(found: Interference) -> list[str]:
    return [reason for reason in found.dirty if "GPU" in reason]


def test_energy_is_what_the_counter_moved(card: Card) -> None:
    _, energy_j = seen(card, energy_mj=3500)
    assert energy_j == pytest.approx(2.5)
    _, unknown = seen(card, energy_mj=None)
    assert unknown is None


def test_heat_disturbs_and_the_power_limit_is_noted(card: Card) -> None:
    found, _ = seen(card, power_ns=5 * MS + 1)
    assert found.gpu_power_capped > 0
    assert not of_the_card(found)
    hot, _ = seen(card, thermal_ns=6 * MS)
    assert "heat held the GPU's clocks down" in of_the_card(hot)[0]


@pytest.fixture
def stranger() -> Iterator[int]:
    """Return a process that nobody here started: the kernel's own, or none at all."""
    yield 2


@pytest.fixture
def relative() -> Iterator[int]:
    """Return a process of this one."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process.pid
        process.kill()


def test_what_others_compute_disturbs(card: Card, stranger: int, relative: int) -> None:
    found, _ = seen(card, samples=[(stranger, 40), (os.getpid(), 60)])
    assert of_the_card(found) == ["other processes used 40 % of the GPU"]
    assert found.gpu_foreign == pytest.approx(0.4)
    little, _ = seen(card, samples=[(stranger, 4)])
    assert not of_the_card(little)
    ours, _ = seen(card, samples=[(relative, 90), (os.getpid(), 60)])
    assert not of_the_card(ours)


def test_samples_of_before_the_slice_do_not_count(card: Card, stranger: int) -> None:
    found, _ = seen(card, samples=[(stranger, 40)], stamp=1)
    assert found.gpu_foreign == 0


def test_in_a_container_nobody_can_be_told_apart(card: Card, stranger: int) -> None:
    """NVML names processes by the machine's numbers; this one is not among them there."""
    card.running = [stranger]
    found, _ = seen(card, samples=[(stranger, 90)])
    assert found.gpu_foreign is None
    assert not of_the_card(found)


def test_the_cpus_alone_are_watched_where_they_compute_or_nothing_tells_of_a_card() -> None:
    for device in (CPU, CUDA):
        watch = watch_on(device)
        before = watch.read()
        if not isinstance(before, GpuReading):
            assert watch.energy_j(before, watch.read()) is None
