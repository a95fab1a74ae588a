"""What fits in memory beside what runs: in the host's, and in a card's."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tuner.host.limits import Limits
from tuner.launchers.instance_group import _on_the_card
from tuner.launchers.memory import MemoryModel
from tuner.record.configuration import Configuration
from tuner.record.launch import DeviceMemory, LaunchRecord, LaunchRequest, Prepared, Purpose
from tuner.record.store import Store
from tuner.study.resource_costs import resource_costs_of

GIB = 1 << 30
CARD = 80 * GIB


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "study") as opened:
        yield opened


def on_a_card(gib: float, streams: int = 1) -> LaunchRecord:
    held = int(gib * GIB)
    memory = DeviceMemory(held, held, held, CARD)
    prepared = Prepared(0.1, 0.1, 0.5, True, GIB, GIB // 2, (), device_memory=memory)
    settings = Configuration.of({"fake.streams": streams})
    return LaunchRecord(LaunchRequest(1, settings, 4, Purpose.SEARCH), prepared=prepared)


@pytest.mark.parametrize(("gib", "fits"), [(1.0, True), (22.0, True), (24.0, False)])
def test_residents_share_the_cards_memory(store: Store, gib: float, fits: bool) -> None:
    """Two of them and their contexts, in 60 % of 80 GiB."""
    model = MemoryModel(store, Limits((0, 1), None, 64 * GIB, (0,)), CARD)
    assert model.fit([on_a_card(gib), on_a_card(gib)]) is fits


def test_the_hosts_memory_counts_beside_a_card(store: Store) -> None:
    model = MemoryModel(store, Limits((0, 1), None, GIB, (0,)), CARD)
    assert not model.fit([on_a_card(1.0), on_a_card(1.0)])


def test_instances_add_up_on_the_card_that_they_share() -> None:
    one = DeviceMemory(1, 2, 3, CARD)
    assert _on_the_card([one, one]) == DeviceMemory(2, 4, 6, CARD)
    assert _on_the_card([None, None]) is None


@pytest.mark.parametrize(("less", "more", "rises"), [(1.0, 7.9, False), (1.0, 16.0, True)])
def test_what_a_card_has_to_spare_is_no_price(less: float, more: float, rises: bool) -> None:
    """A tenth of 80 GiB: below it workspaces of gigabytes cost nothing."""
    launches = [on_a_card(less), on_a_card(more, streams=2)]
    lean, costly = resource_costs_of(launches).values()
    assert (costly.increases_over(lean)["memory"] > 0.05) is rises
