"""Which CPUs the instances of a team get, on described machines."""

import itertools
from pathlib import Path

import msgspec
import pytest

from tests.host.machine import build
from tests.space.spaces import TENSORFLOW_DEFAULTS, TORCH_DEFAULTS, machine, resolved
from tuner.errors import UsageError
from tuner.host.identity import Host, probe
from tuner.record.configuration import Configuration, Value
from tuner.space.launching import plan_launch
from tuner.space.placement import PLACING, place


def masks(host: Host, **settings: Value) -> list[tuple[int, ...]]:
    placed = place({f"launch.{knob}": value for knob, value in settings.items()}, host)
    assert not placed.fault, placed.fault
    return [instance.cpus for instance in placed.instances]


@pytest.fixture
def xeon(tmp_path: Path) -> Host:
    """Two sockets of four cores with two threads: CPUs 0-3 and 8-11, 4-7 and 12-15."""
    return machine(tmp_path, sockets=2, cores=4, threads=2)


@pytest.fixture
def epyc(tmp_path: Path) -> Host:
    """One node of eight cores in four groups of two that share a cache."""
    return machine(tmp_path, sockets=1, cores=8, cores_per_llc=2)


def test_one_process_has_every_allowed_cpu(xeon: Host) -> None:
    assert masks(xeon) == [tuple(range(16))]
    assert not place({}, xeon).is_pinned


def test_instances_have_whole_cores_of_their_own_next_to_each_other(xeon: Host) -> None:
    assert masks(xeon, instances=4) == [(0, 1, 8, 9), (2, 3, 10, 11), (4, 5, 12, 13),
                                        (6, 7, 14, 15)]  # fmt: skip
    one_thread = masks(xeon, instances=4, cpus="one_per_core")
    assert one_thread == [(0, 1), (2, 3), (4, 5), (6, 7)]


def test_a_number_that_does_not_divide_the_cores_leaves_some_idle(xeon: Host) -> None:
    assert masks(xeon, instances=3, cpus="one_per_core") == [(0, 1), (2, 3), (4, 5)]


def test_one_process_may_have_fewer_cores(xeon: Host) -> None:
    assert masks(xeon, cores_per_instance=3, cpus="one_per_core") == [(0, 1, 2)]
    spread = masks(xeon, cores_per_instance=4, cpus="one_per_core", placement="spread")
    assert spread == [(0, 1, 4, 5)]


def test_per_node_no_instance_spans_two_nodes(xeon: Host) -> None:
    # compact, the second of three instances of two cores would be where the first node ends
    assert masks(xeon, instances=3, cpus="one_per_core", placement="per_node", cores_per_instance=2
                 ) == [(0, 1), (2, 3), (4, 5)]  # fmt: skip
    assert masks(xeon, instances=2, cores_per_instance=1, placement="per_node") == [(0, 8), (4, 12)]
    assert place({"launch.instances": 2, "launch.cores_per_instance": 3}, xeon).instances[
        1
    ].nodes == (0, 1)


def test_per_last_level_cache(epyc: Host) -> None:
    assert masks(epyc, instances=4, placement="per_llc") == [(0, 1), (2, 3), (4, 5), (6, 7)]
    # fewer instances than groups lie far from each other, and leave the other groups alone
    assert masks(epyc, instances=2, placement="per_llc") == [(0, 1), (4, 5)]
    assert masks(epyc, instances=2, placement="spread") == [(0, 2, 4, 6), (1, 3, 5, 7)]


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"launch.instances": 9}, "9 cores are wanted, and 8 may be used"),
        ({"launch.instances": 3, "launch.cores_per_instance": 4}, "12 cores are wanted"),
        ({"launch.instances": 0}, "0 instances do no work"),
        ({"launch.instances": -2}, "-2 instances do no work"),
        ({"launch.instances": 1, "launch.cores_per_instance": 5, "launch.placement": "per_node"},
         "1 instance(s) of 5 core(s) do not fit into a NUMA node of 4"),
        ({"launch.placement": "nowhere"}, "there is no placement nowhere; allowed are compact"),
        ({"launch.numa_node": 7}, "none of the allowed CPUs belongs to NUMA node 7"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_with_the_numbers(
    xeon: Host, settings: dict[str, Value], fault: str
) -> None:
    assert fault in place(settings, xeon).fault
    with pytest.raises(UsageError, match=r"cannot be placed|at least 1"):
        plan_launch(Configuration.of(settings), xeon)


@pytest.mark.parametrize(
    ("knob", "value"),
    [("instances", "many"), ("instances", 2.5), ("instances", True), ("cores_per_instance", "abc")],
)
def test_a_setting_that_is_no_number_is_bad_input(xeon: Host, knob: str, value: Value) -> None:
    with pytest.raises(UsageError, match=f"launch.{knob} must be a whole number of at least 1"):
        plan_launch(Configuration.of({f"launch.{knob}": value}), xeon)


def test_instances_stay_inside_the_mask_and_the_quota(tmp_path: Path) -> None:
    host = probe(build(tmp_path, sockets=2, cores=4), allowed=(1, 2, 5))
    assert masks(host, instances=3) == [(1,), (2,), (5,)]
    assert masks(host, instances=2) == [(1,), (2,)]
    limits = msgspec.structs.replace(host.limits, quota_cores=2.5)
    host = msgspec.structs.replace(host, limits=limits)
    assert masks(host, instances=2) == [(1,), (2,)]
    assert "3 cores are wanted, and 2 may be used" in place({"launch.instances": 3}, host).fault
    assert masks(host) == [(1, 2, 5)]  # a quota takes time away, and no CPU


def test_a_team_has_a_plan_for_each_instance(xeon: Host) -> None:
    settings: dict[str, Value] = {
        "launch.instances": 2,
        "launch.memory_policy": "bind",
        "env.OMP_NUM_THREADS": 2,
    }
    first, second = plan_launch(Configuration.of(settings), xeon)
    assert (first.cpus, second.cpus) == ((0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15))
    assert (first.memory_policy, second.memory_policy) == ("bind:0", "bind:1")
    assert second.variables() == {
        "OMP_NUM_THREADS": "2",
        "TUNE_FRAMEWORK_RANK": "1",
        "TUNE_FRAMEWORK_INSTANCES": "2",
        "TUNE_FRAMEWORK_CPUS": "4-7,12-15",
    }


def test_settings_with_the_same_effect_are_one_configuration(xeon: Host) -> None:
    torch = resolved(xeon, "torch", TORCH_DEFAULTS)

    def canonical(**settings: Value) -> dict[str, Value]:
        named = {k.replace("__", "."): v for k, v in settings.items()}
        return torch.canonical(named).as_dict()

    two: dict[str, Value] = {"launch.instances": 2}
    assert canonical(launch__instances=2, launch__cores_per_instance=4) == two
    assert canonical(launch__instances=2, launch__placement="per_node") == two
    assert canonical(launch__placement="spread") == {}
    assert canonical(launch__cores_per_instance=8) == {}
    assert canonical(launch__instances=2, env__OMP_NUM_THREADS=4) == two
    # impossible beside the others: the search means the nearest that is possible
    assert canonical(launch__instances=2, launch__cores_per_instance=8) == two
    assert canonical(launch__instances=16) == {}
    assert canonical(launch__instances=4, env__OMP_NUM_THREADS=8) == {"launch.instances": 4}


def test_threads_of_an_instance_stay_within_its_cpus(xeon: Host) -> None:
    torch = resolved(xeon, "torch", TORCH_DEFAULTS)
    four: dict[str, Value] = {"launch.instances": 4, "env.OMP_NUM_THREADS": 16}
    assert torch.ineffective(four) == [("env.OMP_NUM_THREADS", "at most 4 beside these settings")]
    tensorflow = resolved(xeon, "tensorflow", {**TENSORFLOW_DEFAULTS,
                                               "env.TF_NUM_INTRAOP_THREADS": 16})  # fmt: skip
    same_as_left_alone: dict[str, Value] = {"launch.instances": 4, "env.TF_NUM_INTRAOP_THREADS": 4}
    assert tensorflow.canonical(same_as_left_alone) == Configuration.of({"launch.instances": 4})
    half: dict[str, Value] = {"launch.instances": 4, "env.TF_NUM_INTRAOP_THREADS": 2}
    assert tensorflow.canonical(half) == Configuration.of(half)


def test_memory_is_bound_only_where_an_instance_has_not_every_node(xeon: Host) -> None:
    torch = resolved(xeon, "torch", TORCH_DEFAULTS)
    bound: dict[str, Value] = {"launch.memory_policy": "bind"}
    assert torch.canonical(bound) == Configuration()
    assert "nothing to bind" in torch.ineffective(bound)[0][1]
    team: dict[str, Value] = {"launch.instances": 2, **bound}
    assert torch.canonical(team) == Configuration.of(team)


def test_every_configuration_of_the_space_can_be_placed(tmp_path: Path) -> None:
    host = machine(tmp_path, sockets=2, cores=3, threads=2, cores_per_llc=1)
    torch = resolved(host, "torch", TORCH_DEFAULTS)
    placing = {k: torch.by_id[k].choices for k in (*PLACING, "launch.memory_policy")}
    seen = set()
    for values in itertools.product(*placing.values()):
        configuration = torch.canonical(dict(zip(placing, values, strict=True)))
        again = torch.canonical(configuration.as_dict())
        assert again == configuration
        seen.add(configuration)
    plans = {c: plan_launch(c, host) for c in seen}
    for plan in plans.values():
        used = [cpu for instance in plan for cpu in instance.cpus or ()]
        assert len(used) == len(set(used)), plan
    distinct = {tuple(msgspec.json.encode(p) for p in plan) for plan in plans.values()}
    assert len(distinct) == len(plans)
