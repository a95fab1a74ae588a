from pathlib import Path

import pytest

from tests.space.spaces import machine
from tuner.errors import UsageError
from tuner.record.configuration import Configuration
from tuner.space.launching import plan_launch


def test_launch_knobs_become_environment_mask_and_policy(tmp_path: Path) -> None:
    host = machine(tmp_path, sockets=2, cores=2)
    plan = plan_launch(
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
    plan = plan_launch(Configuration(), machine(tmp_path))
    assert (plan.environment, plan.cpus, plan.memory_policy) == ({}, None, "none")


def test_what_is_not_here_is_refused(tmp_path: Path) -> None:
    host = machine(tmp_path)
    for setting in ({"launch.allocator": "mimalloc"}, {"launch.numa_node": 3}):
        with pytest.raises(UsageError):
            plan_launch(Configuration.of(setting), host)
