from pathlib import Path

import msgspec
import pytest

from tests.space.spaces import machine
from tuner.errors import UsageError
from tuner.record.configuration import Configuration, Value
from tuner.space.launching import plan_launch


def test_launch_knobs_become_environment_mask_and_policy(tmp_path: Path) -> None:
    host = machine(tmp_path, sockets=2, cores=2)
    (plan,) = plan_launch(
        Configuration.of(
            {
                "env.OMP_NUM_THREADS": 2,
                "launch.allocator": "jemalloc",
                "launch.numa_node": 1,
                "torch.compile.mode": "default",
            }
        ),
        host,
    )
    assert plan.environment == {"OMP_NUM_THREADS": "2", "LD_PRELOAD": "/l/libjemalloc.so"}
    assert plan.cpus == (2, 3)
    assert plan.memory_policy == "bind:1"


def test_the_default_changes_nothing(tmp_path: Path) -> None:
    (plan,) = plan_launch(Configuration(), machine(tmp_path))
    assert (plan.environment, plan.cpus, plan.memory_policy) == ({}, None, "none")


def test_a_missing_library_is_refused_with_what_brings_it(tmp_path: Path) -> None:
    host = machine(tmp_path)
    mimalloc = Configuration.of({"launch.allocator": "mimalloc"})
    with pytest.raises(UsageError, match=r"here \(pip install cmeel-mimalloc\)"):
        plan_launch(mimalloc, host)
    why = "cmeel-mimalloc==3.4.3 is installed, but libatomic.so.1 is missing"
    faulty = msgspec.structs.replace(host, unusable={"mimalloc": why})
    with pytest.raises(UsageError, match=why):
        plan_launch(mimalloc, faulty)


def test_what_is_not_here_is_refused(tmp_path: Path) -> None:
    host = machine(tmp_path)
    for setting in ({"launch.allocator": "mimalloc"}, {"launch.numa_node": 3}):
        with pytest.raises(UsageError):
            plan_launch(Configuration.of(setting), host)


def test_two_libraries_are_preloaded_side_by_side(tmp_path: Path) -> None:
    settings: dict[str, Value] = {"launch.allocator": "tcmalloc", "launch.openmp": "libomp"}
    (plan,) = plan_launch(Configuration.of(settings), machine(tmp_path))
    assert plan.environment == {"LD_PRELOAD": "/l/libtcmalloc.so:/l/libomp.so.5"}


def test_one_cpu_of_each_core_and_memory_over_the_nodes(tmp_path: Path) -> None:
    host = machine(tmp_path, sockets=2, cores=2, threads=2)
    settings: dict[str, Value] = {
        "launch.cpus": "one_per_core",
        "launch.memory_policy": "interleave",
    }
    (plan,) = plan_launch(Configuration.of(settings), host)
    cores = {cpu.id: cpu.core for cpu in host.cpus}
    assert plan.cpus is not None
    assert sorted(cores[cpu] for cpu in plan.cpus) == sorted(set(cores.values()))
    assert plan.memory_policy == "interleave:0,1"
    on_node = Configuration.of({"launch.cpus": "one_per_core", "launch.numa_node": 1})
    assert plan_launch(on_node, host)[0].memory_policy == "bind:1"
    assert len(plan_launch(on_node, host)[0].cpus or ()) == 2
