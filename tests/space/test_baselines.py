from pathlib import Path
from typing import Any

import msgspec

from tests.space.spaces import (
    FAKE_DEFAULTS,
    TENSORFLOW_DEFAULTS,
    TORCH_DEFAULTS,
    machine,
    resolved,
    workload,
)
from tuner.galleries import SEARCH_SPACES
from tuner.host.identity import Host
from tuner.record.configuration import Configuration, Value
from tuner.space.baselines import Baseline, resolve_baselines, to_measure
from tuner.space.profile import load_profile


def baselines(
    host: Host, framework: str, defaults: dict[str, Value], profile: str
) -> dict[str, Baseline]:
    loaded = load_profile(profile, SEARCH_SPACES)
    space = resolved(host, framework, defaults, profile)
    found = resolve_baselines(loaded, host, workload(framework), space)
    return {baseline.name: baseline for baseline in found}


def test_each_is_told_apart(tmp_path: Path) -> None:
    found = baselines(machine(tmp_path), "fake", FAKE_DEFAULTS, "fake")
    assert found["vendor_threads"].configuration == Configuration.of({"env.FAKE_THREADS": 4})
    assert "does not read" in found["vendor_threads"].dead_settings[0]
    assert found["vendor_threads_again"].same_as == "vendor_threads"
    assert found["vendor_default"].same_as == "default"
    assert not found["vendor_elsewhere"].is_applicable
    assert "does not exist" in found["vendor_elsewhere"].reason
    names = [b.name for b in to_measure(list(found.values()))]
    assert names == ["vendor_threads", "vendor_compiler"]


def test_thread_formulas_on_two_sockets_with_smt(tmp_path: Path) -> None:
    """Golden values of the published formulas for 2 x 24 cores, 96 CPUs."""
    host = machine(tmp_path, sockets=2, cores=24, threads=2)
    defaults = {**TENSORFLOW_DEFAULTS, "env.TF_NUM_INTRAOP_THREADS": 96,
                "env.TF_NUM_INTEROP_THREADS": 96}  # fmt: skip
    found = baselines(host, "tensorflow", defaults, "xeon")

    def threads(name: str) -> tuple[Value | None, Value | None]:
        c = found[name].configuration
        return c.get("env.TF_NUM_INTEROP_THREADS"), c.get("env.TF_NUM_INTRAOP_THREADS")

    assert threads("tf_guide_r1") == (2, 48)
    assert threads("tf_physical") == (48, 48)
    assert threads("intel_tf_article") == (2, 24)
    assert threads("intel_zoo_general") == (2, 48)
    assert not found["itex_launch_throughput"].is_applicable  # one instance per node


def test_run_cpu_on_two_sockets(tmp_path: Path) -> None:
    host = machine(tmp_path, sockets=2, cores=24, threads=2)
    found = baselines(host, "torch", {**TORCH_DEFAULTS, "env.OMP_NUM_THREADS": 48}, "xeon")
    single = found["xeon_run_cpu_single"]
    assert single.configuration == Configuration.of({"launch.allocator": "tcmalloc"})
    assert len(single.dead_settings) == 2  # KMP_* on stock torch
    assert single.same_as == "torch_guide_tcmalloc"
    assert found["xeon_run_cpu_node"].configuration == Configuration.of(
        {"env.OMP_NUM_THREADS": 24, "launch.numa_node": 0, "launch.allocator": "tcmalloc"}
    )
    assert not found["xeon_run_cpu_throughput"].is_applicable
    assert not found["xeon_run_cpu_latency"].is_applicable


def test_openmp_settings_are_dead_on_stock_tensorflow(tmp_path: Path) -> None:
    found = baselines(machine(tmp_path, cores=8), "tensorflow", TENSORFLOW_DEFAULTS, "xeon")
    dead = found["tf_guide_r1"].dead_settings
    assert any(d.startswith("env.OMP_NUM_THREADS") for d in dead)
    assert any(d.startswith("env.KMP_AFFINITY") for d in dead)


def test_a_missing_library_makes_a_baseline_impossible(tmp_path: Path) -> None:
    host = msgspec.structs.replace(machine(tmp_path, cores=8), libraries={})
    found = baselines(host, "torch", TORCH_DEFAULTS, "xeon")
    assert not found["torch_guide_tcmalloc"].is_applicable
    assert "apt-get install" in found["torch_guide_tcmalloc"].reason


def test_every_profile_resolves_on_every_kind_of_host(tmp_path: Path) -> None:
    shapes: list[dict[str, Any]] = [
        dict(cores=1),
        dict(cores=2),
        dict(sockets=2, cores=56, threads=2),
        dict(sockets=2, cores=64, threads=2, nodes_per_socket=4, vendor="AuthenticAMD"),
    ]
    for i, shape in enumerate(shapes):
        host = machine(tmp_path / str(i), **shape)
        for profile in ("xeon", "epyc", "arm", "cuda", "auto"):
            for framework, defaults in (
                ("torch", TORCH_DEFAULTS),
                ("tensorflow", TENSORFLOW_DEFAULTS),
            ):
                found = baselines(host, framework, defaults, profile)
                assert found
                assert all(b.reason for b in found.values() if not b.is_applicable)
