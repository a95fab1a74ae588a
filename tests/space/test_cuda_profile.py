"""The space of a card, resolved for a recorded H100 and for what it is not."""

from pathlib import Path

import msgspec
import pytest

from tests.host.machine import build
from tests.host.test_gpus import tree_with
from tests.space.spaces import ALL_LIBRARIES, model, resolved, workload
from tuner.errors import ProfileError
from tuner.galleries import SEARCH_SPACES
from tuner.host.identity import Host, probe
from tuner.record.configuration import Configuration, Value
from tuner.record.workload import CUDA
from tuner.space.baselines import Baseline, resolve_baselines
from tuner.space.launching import plan_launch
from tuner.space.profile_file import load_profile
from tuner.space.space import Space

DEFAULTS: dict[str, Value] = {
    "launch.allocator": "glibc",
    "launch.cpus": "all",
    "launch.numa_node": "none",
    "env.OMP_NUM_THREADS": 8,
    "torch.memory_format": "contiguous",
    "torch.dtype": "fp32",
    "torch.float32_matmul_precision": "highest",
    "torch.cudnn.benchmark": False,
    "torch.autocast": "off",
    "torch.compile.mode": "off",
    "torch.compile.max_autotune": False,
    "torch.compile.cuda_graphs": False,
}
"""What an H100's default read back, with PyTorch 2.11."""


@pytest.fixture
def host(tmp_path: Path) -> Host:
    build(tmp_path, cores=8)
    found = probe(tree_with(tmp_path), allowed=tuple(range(8)))
    return msgspec.structs.replace(found, libraries=ALL_LIBRARIES, cxx="/usr/bin/g++")


def on_the_card(host: Host, kind: str = "cnn") -> tuple[Space, dict[str, Baseline]]:
    profile = load_profile("cuda", SEARCH_SPACES)
    space = resolved(host, "torch", DEFAULTS, profile, kind=kind)
    found = resolve_baselines(profile, host, workload("torch", kind), model(DEFAULTS), space)
    return space, {baseline.name: baseline for baseline in found}


def test_it_measures_on_the_card_and_names_hosts_that_have_one() -> None:
    profile = load_profile("cuda", SEARCH_SPACES)
    assert (profile.device, profile.matches) == (CUDA, "host.gpus > 0")
    assert not profile.caution


def test_the_guide_is_there_with_and_without_what_changes_numerics(host: Host) -> None:
    _, found = on_the_card(host)
    graphs: dict[str, Value] = {
        "torch.compile.mode": "default",
        "torch.compile.cuda_graphs": True,
        "torch.cudnn.benchmark": True,
        "torch.memory_format": "channels_last",
    }
    high: dict[str, Value] = {"torch.float32_matmul_precision": "high"}
    wanted = {
        "torch_gpu_guide_same": graphs,
        "torch_tf32": high,
        "torch_gpu_guide_tf32": {**graphs, **high},
        "torch_gpu_guide": {**graphs, "torch.autocast": "bf16"},
    }
    assert {n: b.configuration for n, b in found.items()} == {
        name: Configuration.of(settings) for name, settings in wanted.items()
    }
    assert not any(b.dead_settings for b in found.values())


def test_what_is_for_images_is_not_tried_elsewhere(host: Host) -> None:
    space, found = on_the_card(host, kind="transformer")
    assert space.never_live("torch.memory_format")
    assert space.never_live("torch.cudnn.benchmark")
    settings = found["torch_gpu_guide"].configuration.as_dict()
    assert settings.keys() == {"torch.compile.mode", "torch.compile.cuda_graphs", "torch.autocast"}


@pytest.mark.parametrize(
    ("settings", "dead"),
    [
        ({"torch.compile.cuda_graphs": True}, "torch.compile.cuda_graphs"),
        ({"torch.compile.max_autotune": True}, "torch.compile.max_autotune"),
        ({"torch.dtype": "bf16", "torch.autocast": "bf16"}, "torch.autocast"),
        (
            {"torch.autocast": "fp16", "torch.float32_matmul_precision": "high"},
            "torch.float32_matmul_precision",
        ),
    ],
)
def test_what_does_nothing_beside_another_setting_is_dead(
    host: Host, settings: dict[str, Value], dead: str
) -> None:
    space, _ = on_the_card(host)
    assert dead not in space.canonical(settings).as_dict()


def test_an_older_card_has_neither_bf16_nor_tf32(host: Host) -> None:
    old = msgspec.structs.replace(host.gpus[0], compute_capability="7.5")
    space, found = on_the_card(msgspec.structs.replace(host, gpus=(old,)))
    assert not found["torch_tf32"].is_applicable
    assert found["torch_gpu_guide"].configuration.get("torch.autocast") == "fp16"
    assert space.by_id["torch.dtype"].choices == ("fp32", "fp16")


def test_every_instance_computes_on_the_one_card(host: Host) -> None:
    settings = Configuration.of({"launch.instances": 2})
    plans = plan_launch(settings, host, CUDA)
    assert [plan.gpu for plan in plans] == [host.gpus[0].uuid] * 2
    assert {plan.gpu for plan in plan_launch(settings, host)} == {""}


def test_a_device_that_does_not_exist_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('schema_version = 1\ntitle = "t"\ndevice = "tpu"\n')
    with pytest.raises(ProfileError, match=r"mine.toml:3: no device 'tpu'; name cpu or cuda"):
        load_profile(str(path), SEARCH_SPACES)
