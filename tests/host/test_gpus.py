"""Cards as NVML tells of them, by recordings of an H100 (tests/host/nvml)."""

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.host.machine import build
from tuner.host.gpus import Gpu, held_back, observe_gpus, read_gpus
from tuner.host.identity import Host, probe
from tuner.host.nvml import RECORDING, STANDS_IN, nvml

RECORDINGS = Path(__file__).with_name("nvml")
H100 = "NVIDIA H100 80GB HBM3"


def tree_with(root: Path, name: str = "h100_idle") -> Path:
    (root / RECORDING).write_text((RECORDINGS / f"{name}.json").read_text())
    return root


@pytest.fixture
def several(tmp_path: Path) -> Path:
    """Return a tree with three cards, by their last digits."""
    recorded = json.loads((RECORDINGS / "h100_idle.json").read_text())
    (card,) = recorded["cards"]
    cards = [{**card, "nvmlDeviceGetUUID": f"GPU-{i}{i}"} for i in range(3)]
    (tmp_path / RECORDING).write_text(json.dumps({**recorded, "cards": cards}))
    return tmp_path


def test_a_card_is_told_in_full(tmp_path: Path) -> None:
    (gpu,) = read_gpus(tree_with(tmp_path))
    assert gpu == Gpu(
        index=0,
        uuid="GPU-00000000-0000-4000-8000-000000000001",
        name=H100,
        memory_bytes=85520809984,
        compute_capability="9.0",
        power_limit_w=700.0,
        max_sm_mhz=1980,
        max_memory_mhz=2619,
        driver="580.159.04",
        pcie="5 x16",
        is_partitioned=False,
        is_ecc=True,
        numa_node=None,
    )


def test_what_varies_stands_apart_from_what_changes_results(tmp_path: Path) -> None:
    idle = tree_with(tmp_path)
    gpus = read_gpus(idle)
    (quiet,) = observe_gpus(gpus, idle)
    (busy,) = observe_gpus(gpus, tree_with(tmp_path, "h100_busy"))
    assert gpus == read_gpus(tmp_path)
    assert (quiet.sm_mhz, quiet.held_back_by, quiet.n_processes) == (345, ("idle",), 0)
    assert (busy.sm_mhz, busy.held_back_by, busy.n_processes) == (1395, ("power cap",), 1)
    assert busy.power_w == pytest.approx(702.192)
    assert not {"index", "uuid"} & gpus[0].identity().keys()


def test_every_reason_of_nvml_has_its_words() -> None:
    assert held_back(0) == held_back(None) == ()
    assert len(held_back(0x1FF)) == 9
    assert held_back(0x68) == ("hardware slowdown", "thermal limit (driver)",
                               "thermal limit (hardware)")  # fmt: skip


@pytest.mark.parametrize(
    ("listed", "chosen"),
    [
        (None, "012"), ("1", "1"), ("2,0", "20"), ("GPU-1", "1"), (" 1 , GPU-00 ", "10"),
        ("", ""), ("-1", ""), ("0,-1,1", "0"), ("7", ""), ("0,7,1", "0"), ("GPU-", ""),
    ],
)  # fmt: skip
def test_the_cards_that_cuda_sees_are_those_that_count(
    several: Path, listed: str | None, chosen: str
) -> None:
    assert "".join(gpu.uuid[-1] for gpu in read_gpus(several, listed)) == chosen


def test_the_node_of_a_card_is_the_kernels_word(tmp_path: Path) -> None:
    node = tmp_path / "sys/bus/pci/devices/0000:00:06.0/numa_node"
    node.parent.mkdir(parents=True)
    for written, found in (("1\n", 1), ("-1\n", None), ("", None)):
        node.write_text(written)
        assert read_gpus(tree_with(tmp_path))[0].numa_node == found


def test_what_a_card_does_not_tell_is_left_open(tmp_path: Path) -> None:
    few = {"nvmlDeviceGetName": "An old card", "nvmlDeviceGetUUID": "GPU-1",
           "nvmlDeviceGetMemoryInfo": {"total": 1 << 30}}  # fmt: skip
    (tmp_path / RECORDING).write_text(json.dumps({"driver": {}, "cards": [few]}))
    (gpu,) = read_gpus(tmp_path)
    assert (gpu.power_limit_w, gpu.max_sm_mhz, gpu.pcie, gpu.is_ecc) == (None, None, "", None)
    assert gpu.compute_capability == "0.0"
    (seen,) = observe_gpus([gpu], tmp_path)
    assert (seen.power_w, seen.n_processes, seen.held_back_by) == (None, None, ())


def test_multi_instance_mode_is_seen(tmp_path: Path) -> None:
    recorded = json.loads((RECORDINGS / "h100_idle.json").read_text())
    recorded["cards"][0]["nvmlDeviceGetMigMode"] = [1, 1]
    (tmp_path / RECORDING).write_text(json.dumps(recorded))
    assert read_gpus(tmp_path)[0].is_partitioned


def test_without_a_driver_there_is_no_card(tmp_path: Path) -> None:
    assert not read_gpus(tmp_path)
    assert not observe_gpus([], tmp_path)


def test_a_recording_stands_in_for_this_machines_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STANDS_IN, str(RECORDINGS / "h100_busy.json"))
    library = nvml()
    assert library is not None
    assert library.of_card(0, "nvmlDeviceGetName") == H100
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert probe().gpus == ()


@pytest.fixture
def host(tmp_path: Path) -> Callable[[str], Host]:
    root = build(tmp_path)
    return lambda name: probe(tree_with(root, name), allowed=(0, 1))


def test_a_card_is_a_part_of_the_host(host: Callable[[str], Host]) -> None:
    idle, busy = host("h100_idle"), host("h100_busy")
    assert idle.fingerprint() == busy.fingerprint()
    assert idle.facts()["host.gpus"] == 1
    assert idle.facts()["host.compute_capability"] == 9.0
    assert idle.facts()["host.gpu_memory_gib"] == pytest.approx(79.6, abs=0.1)
    assert idle.summary().endswith(f", 1 x {H100}")
    other = msgspec.structs.replace(idle.gpus[0], power_limit_w=350.0)
    assert msgspec.structs.replace(idle, gpus=(other,)).fingerprint() != idle.fingerprint()
    twin = msgspec.structs.replace(idle.gpus[0], uuid="GPU-2", index=3)
    assert msgspec.structs.replace(idle, gpus=(twin,)).fingerprint() == idle.fingerprint()
