"""What every baseline is on real machines, against values worked out by hand from its publication.

golden_baselines.toml has the values and explains its columns.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest

from tests.host.machine import described, expand
from tests.space.spaces import defaults_on, model, real_machine, resolved, shipped_profile, workload
from tuner.host.identity import Host
from tuner.host.topology import parse_cpu_list
from tuner.record.configuration import Configuration, Value
from tuner.space.baselines import Baseline, resolve_baselines
from tuner.space.launching import LaunchPlan, plan_launch

Tree = Callable[[str], Path]
MACHINES = described()
PROFILES = ("arm", "auto", "epyc", "xeon")
KINDS = ("cnn", "transformer")
OMP, INTER, INTRA = (
    "env.OMP_NUM_THREADS",
    "env.TF_NUM_INTEROP_THREADS",
    "env.TF_NUM_INTRAOP_THREADS",
)
GOMP = "env.GOMP_CPU_AFFINITY"
OF_ENGINES = ("onnxruntime", "openvino", "openvino_bf16")
"""The same on every machine: see test_baselines.py."""


class Published(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a recommendation sets on every machine, beside threads and places."""

    settings: dict[str, Value] = {}
    settings_cnn: dict[str, Value] = {}
    dead: dict[str, Value] = {}
    dead_cnn: dict[str, Value] = {}
    dead_transformer: dict[str, Value] = {}
    dead_with_smt: dict[str, Value] = {}
    dead_without_smt: dict[str, Value] = {}
    reason_transformer: str = ""

    def in_force(self, kind: str) -> dict[str, Value]:
        return self.settings | (self.settings_cnn if kind == "cnn" else {})

    def ignored(self, kind: str, *, smt: bool) -> dict[str, Value]:
        return (
            self.dead
            | (self.dead_cnn if kind == "cnn" else self.dead_transformer)
            | (self.dead_with_smt if smt else self.dead_without_smt)
        )


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A recommendation on one machine."""

    threads: int = 0
    inter: int = 0
    intra: int = 0
    omp: int = 0
    instances: int = 1
    cores: int = 0
    cpus: str = ""
    last: str = ""
    memory: list[str] = []
    gomp: str = ""
    same_as: str | None = None
    reason: str = ""


class Answers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Every recommendation for one machine."""

    profile: str
    torch: dict[str, Row]
    tensorflow: dict[str, Row]
    wide: dict[str, Row]


class Golden(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file."""

    published: dict[str, Published]
    machine: dict[str, Answers]


Raised = Callable[[str], Host]


@pytest.fixture(scope="session")
def raised(tree: Tree) -> Raised:
    """The described machines as the tool reads them, each once."""
    return functools.cache(lambda name: real_machine(tree(name), MACHINES[name]))


GOLDEN = msgspec.convert(
    tomllib.loads(Path(__file__).with_name("golden_baselines.toml").read_text()), Golden
)


def listed(
    host: Host, framework: str, profile: str, *, kind: str = "cnn", width: float = 1.0
) -> dict[str, Baseline]:
    loaded, defaults = shipped_profile(profile), defaults_on(host, framework)
    space = resolved(host, framework, defaults, loaded, kind=kind)
    found = resolve_baselines(
        loaded, host, workload(framework, kind), model(defaults, width), space
    )
    return {b.name: b for b in found if b.name not in OF_ENGINES}


def cores_of(plan: LaunchPlan, host: Host) -> int:
    """Return the physical cores that a process may run on."""
    return len({cpu.core for cpu in host.cpus if plan.cpus is None or cpu.id in plan.cpus})


def threads_in_force(
    baseline: Baseline, host: Host, knob: str, plans: Sequence[LaunchPlan]
) -> Value:
    """Return what is set, or what the framework takes by itself on the CPUs that it is given."""
    return baseline.configuration.get(knob) or min(
        cores_of(plan, host) if knob == OMP else len(plan.cpus or host.cpus) for plan in plans
    )


def placed(baseline: Baseline, host: Host) -> Row:
    """Return the columns about processes, CPUs and memory."""
    plans = plan_launch(baseline.configuration, host)
    cpus = [",".join(map(str, plan.cpus)) if plan.cpus else "" for plan in plans]
    memory = [] if plans[0].memory_policy == "none" else [plans[0].memory_policy]
    if memory and len(plans) > 1:
        memory.append(plans[-1].memory_policy)
    return Row(
        instances=len(plans),
        cores=cores_of(plans[0], host) if len(plans) > 1 else 0,
        cpus=cpus[0],
        last=cpus[-1] if len(plans) > 1 else "",
        memory=memory,
    )


def check(baseline: Baseline, row: Row, host: Host, framework: str, kind: str) -> None:
    published = GOLDEN.published[baseline.name]
    reason = row.reason or (published.reason_transformer if kind == "transformer" else "")
    assert baseline.is_applicable == (not reason)
    if reason:
        assert reason in baseline.reason
        return
    wanted = {"env.OMP_NUM_THREADS": row.threads} if framework == "torch" else {}
    if framework == "tensorflow":
        wanted = {INTER: row.inter, INTRA: row.intra}
    plans = plan_launch(baseline.configuration, host)
    assert {knob: threads_in_force(baseline, host, knob, plans) for knob in wanted} == wanted
    found = placed(baseline, host)
    spelled = {c: ",".join(map(str, expand(getattr(row, c)))) for c in ("cpus", "last")}
    for column in ("instances", "cores", "cpus", "last", "memory"):
        assert getattr(found, column) == spelled.get(column, getattr(row, column)), column
    placing = ("launch.cpus", "launch.numa_node", "launch.instances", "launch.placement",
               "launch.cores_per_instance", "launch.memory_policy")  # fmt: skip
    settings = {
        knob: value
        for knob, value in baseline.configuration.settings
        if knob not in (*wanted, *placing)
    }
    assert parse_cpu_list(str(settings.pop(GOMP, ""))) == expand(row.gomp)
    assert settings == published.in_force(kind)
    ignored = published.ignored(kind, smt=len(host.cpus) > host.physical_cores)
    if row.omp:
        ignored["env.OMP_NUM_THREADS"] = row.omp
    if row.omp and baseline.name == "wang2019_guideline":
        ignored["env.MKL_NUM_THREADS"] = row.omp
    dead = {text.partition(": ")[0] for text in baseline.dead_settings}
    assert {text for text in dead if not text.startswith("launch.")} == {
        f"{knob}={value}" for knob, value in ignored.items()
    }
    assert baseline.same_as == row.same_as


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
@pytest.mark.parametrize("name", GOLDEN.machine)
def test_a_machines_baselines_are_what_their_publications_say(
    name: str, framework: str, kind: str, raised: Raised
) -> None:
    answers = GOLDEN.machine[name]
    host = raised(name)
    found = listed(host, framework, answers.profile, kind=kind)
    rows: dict[str, Row] = getattr(answers, framework)
    assert found.keys() == rows.keys()
    for baseline in found.values():
        check(baseline, rows[baseline.name], host, framework, kind)


@pytest.mark.parametrize("name", GOLDEN.machine)
def test_the_guideline_of_the_paper_gives_a_wide_graph_two_pools(name: str, raised: Raised) -> None:
    answers = GOLDEN.machine[name]
    host = raised(name)
    found = listed(host, "torch", answers.profile, width=2.9)
    check(
        found["wang2019_guideline_torch"],
        answers.wide["wang2019_guideline_torch"],
        host, "torch", "cnn",
    )  # fmt: skip
    found = listed(host, "tensorflow", answers.profile, width=2.9)
    for baseline in ("wang2019_guideline", "wang2019_script"):
        check(found[baseline], answers.wide[baseline], host, "tensorflow", "cnn")


def check_that_it_can_be_started(baseline: Baseline, host: Host) -> None:
    """Check one plan: its CPUs, its cores, its memory, its threads."""
    allowed = {cpu.id for cpu in host.cpus}
    plans = plan_launch(baseline.configuration, host)
    assert plans
    used = [cpu for plan in plans for cpu in plan.cpus or ()]
    assert len(used) == len(set(used))
    assert set(used) <= allowed
    if len(plans) > 1:
        assert all(plan.cpus for plan in plans)
        assert sum(cores_of(plan, host) for plan in plans) <= host.usable_cores
    for plan in plans:
        policy, _, nodes = plan.memory_policy.partition(":")
        named = {int(node) for node in nodes.split(",") if node}
        assert named <= set(host.memory_nodes), plan.memory_policy
        assert policy != "interleave" or len(named) > 1
    for knob in (OMP, INTER, INTRA):
        threads = threads_in_force(baseline, host, knob, plans)
        assert isinstance(threads, int)
        assert threads >= 1
        if len(plans) > 1:
            assert threads <= min(len(plan.cpus or ()) for plan in plans)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", MACHINES)
def test_a_baseline_can_be_started_or_says_why_not(name: str, profile: str, raised: Raised) -> None:
    host = raised(name)
    for framework in ("torch", "tensorflow"):
        for kind, width in (("cnn", 1.0), ("transformer", 1000.0)):
            found = listed(host, framework, profile, kind=kind, width=width)
            for baseline in found.values():
                if not baseline.is_applicable:
                    assert baseline.reason
                    continue
                check_that_it_can_be_started(baseline, host)
                dead = {text.partition("=")[0] for text in baseline.dead_settings}
                assert not dead & baseline.configuration.as_dict().keys()


@pytest.mark.parametrize("name", MACHINES)
def test_what_is_the_same_as_another_is_started_alike(name: str, raised: Raised) -> None:
    host = raised(name)
    for framework in ("torch", "tensorflow"):
        found = listed(host, framework, "xeon")
        started = {b.name: plan_launch(b.configuration, host) for b in found.values()}
        started["default"] = plan_launch(Configuration(), host)
        for baseline in found.values():
            if baseline.same_as:
                assert started[baseline.name] == started[baseline.same_as], baseline.name


PER_NODE = {"xeon_run_cpu_throughput", "itex_launch_throughput"}


def check_one_instance_each(baseline: Baseline, host: Host) -> None:
    """Check that every node, or socket, has one instance, which is on no other."""
    plans = plan_launch(baseline.configuration, host)
    place_of = {c.id: c.node if baseline.name in PER_NODE else c.socket for c in host.cpus}
    if len(plans) > 1:
        places = [{place_of[cpu] for cpu in plan.cpus or ()} for plan in plans]
        assert [len(place) for place in places] == [1] * len(plans)
        assert set().union(*places) == set(place_of.values())


@pytest.mark.parametrize("name", MACHINES)
def test_one_instance_for_each_node_or_socket_is_meant_literally(name: str, raised: Raised) -> None:
    """Also where nodes interleave their CPUs, sockets differ in size, or a quota grants less."""
    host = raised(name)
    for quota in (None, host.physical_cores / 2, 2.5):
        limits = msgspec.structs.replace(host.limits, quota_cores=quota)
        granted = msgspec.structs.replace(host, limits=limits)
        for framework in ("torch", "tensorflow"):
            for baseline in listed(granted, framework, "xeon").values():
                if baseline.is_applicable:
                    check_that_it_can_be_started(baseline, granted)
                if baseline.name in {*PER_NODE, "torch_guide_sockets"} and baseline.is_applicable:
                    check_one_instance_each(baseline, granted)


def rows(found: dict[str, Baseline], host: Host, *names: str) -> dict[str, tuple[Value, Row]]:
    """Return threads and places of some baselines."""
    return {
        name: (found[name].configuration.get(OMP) or found[name].configuration.get(INTRA) or 0,
               placed(found[name], host))
        for name in names
    }  # fmt: skip


def test_a_mask_that_leaves_more_of_one_node_than_of_the_next(tree: Tree) -> None:
    """Cores 0 to 3 of node 0 and 28, 29 of node 1: Pn is 4 on the node that is bound to."""
    machine = msgspec.structs.replace(MACHINES["xeon-8180m-2s"], mask="0-3,28-29,56,84")
    host = real_machine(tree("xeon-8180m-2s"), machine)
    found = listed(host, "torch", "xeon") | listed(host, "tensorflow", "xeon")
    bound, each = ["bind:0"], ["bind:0", "bind:1"]
    assert rows(
        found, host, "xeon_run_cpu_node", "torch_guide_gomp", "intel_tf_article_numa",
        "xeon_run_cpu_throughput", "torch_guide_sockets",
    ) == {
        "xeon_run_cpu_node": (4, Row(cpus="0,1,2,3", memory=bound)),
        "torch_guide_gomp": (4, Row(cpus="0,1,2,3,56", memory=bound)),
        "intel_tf_article_numa": (4, Row(cpus="0,1,2,3,56", memory=bound)),
        # floor(6 / 2) = 3 cores for each: node 1 has two
        "xeon_run_cpu_throughput": (
            2, Row(instances=2, cores=2, cpus="0,1", last="28,29", memory=each),
        ),
        "torch_guide_sockets": (
            2, Row(instances=2, cores=2, cpus="0,1,56", last="28,29,84", memory=each),
        ),
    }  # fmt: skip
    gomp = found["torch_guide_gomp"].configuration.get(GOMP)
    assert gomp == "0-3"


def test_a_quota_is_shared_by_the_instances_each_where_it_belongs(raised: Raised) -> None:
    """A quota of 20 cores on 2 x 28, and of 32 on 2 x 64 with 16 last-level caches."""
    xeon, epyc = (
        msgspec.structs.replace(
            host, limits=msgspec.structs.replace(host.limits, quota_cores=quota)
        )
        for host, quota in ((raised("xeon-8180m-2s"), 20.0), (raised("epyc-7763-2s-nps1"), 32.0))
    )
    found = listed(xeon, "torch", "xeon") | listed(xeon, "tensorflow", "xeon")
    for name in ("xeon_run_cpu_throughput", "itex_launch_throughput"):  # 20 / 2 = 10
        threads, row = rows(found, xeon, name)[name]
        assert (threads, row.instances, row.cores) == (10, 2, 10)
        assert row.cpus == ",".join(map(str, range(10)))
        assert row.last == ",".join(map(str, range(28, 38)))
    latency = rows(found, xeon, "xeon_run_cpu_latency")["xeon_run_cpu_latency"]
    assert (latency[0], latency[1].instances) == (4, 5)  # 20 / 4
    found = listed(epyc, "torch", "epyc") | listed(epyc, "tensorflow", "epyc")
    for name in ("amd_zendnn_instances", "zentf_instances"):  # 32 / 16 = 2
        threads, row = rows(found, epyc, name)[name]
        assert (threads, row.instances, row.cores) == (2, 16, 2)
        assert (row.cpus, row.last) == ("0,1,128,129", "120,121,248,249")


def test_memory_is_not_bound_where_a_node_has_none(raised: Raised) -> None:
    """Only nodes 0 and 4 of eight have memory: an instance on node 1 cannot be bound to it."""
    name = "epyc-7601-2s-two-nodes-populated"
    host = raised(name)
    for baseline, n in (("xeon_run_cpu_throughput", 8), ("torch_guide_sockets", 2)):
        found = listed(host, "torch", "xeon")[baseline]
        plans = plan_launch(found.configuration, host)
        assert [plan.memory_policy for plan in plans] == ["none"] * n
        assert any(text.startswith("launch.memory_policy=bind: ") for text in found.dead_settings)
        assert "no memory to bind to" in " ".join(found.dead_settings)


@pytest.mark.parametrize(("pages", "is_live"), [("madvise", 1), ("always", 1), ("never", 0)])
def test_gravitons_huge_pages_need_only_that_they_are_not_forbidden(
    pages: str, is_live: bool, raised: Raised
) -> None:
    name = "graviton3-c7g-16xlarge"
    host = raised(name)
    seen = msgspec.structs.replace(host.observations, transparent_huge_pages=pages)
    host = msgspec.structs.replace(host, observations=seen)
    found = listed(host, "torch", "arm")["graviton_torch"]
    assert found.is_applicable
    assert found.configuration.get("env.THP_MEM_ALLOC_ENABLE") == (1 if is_live else None)
