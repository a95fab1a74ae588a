from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.space.spaces import (
    FAKE_DEFAULTS,
    TENSORFLOW_DEFAULTS,
    TORCH_DEFAULTS,
    machine,
    model,
    resolved,
    shipped_profile,
    workload,
)
from tuner.engines import ENGINES
from tuner.host.identity import Host
from tuner.host.topology import parse_cpu_list
from tuner.record.configuration import Configuration, Value
from tuner.space.baselines import Baseline, resolve_baselines, to_measure, what_apt_adds
from tuner.space.launching import plan_launch
from tuner.space.restrictions import parse_restrictions


def baselines(
    host: Host, framework: str, defaults: dict[str, Value], profile: str, width: float = 1.0
) -> dict[str, Baseline]:
    loaded = shipped_profile(profile)
    space = resolved(host, framework, defaults, profile)
    found = resolve_baselines(loaded, host, workload(framework), model(defaults, width), space)
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
    assert threads("itex_launch_throughput") == (1, 24)
    assert found["itex_launch_throughput"].configuration.get("launch.instances") == 2


def test_run_cpu_on_two_sockets(tmp_path: Path) -> None:
    host = machine(tmp_path, sockets=2, cores=24, threads=2)
    found = baselines(host, "torch", {**TORCH_DEFAULTS, "env.OMP_NUM_THREADS": 48}, "xeon")
    intel: dict[str, Value] = {
        "launch.openmp": "libiomp5",
        "launch.allocator": "tcmalloc",
        "launch.cpus": "one_per_core",
        "env.KMP_AFFINITY": "granularity=fine,compact,1,0",
        "env.KMP_BLOCKTIME": 1,
    }
    single = found["xeon_run_cpu_single"].configuration
    # as written: the default, 48 here, follows the mask that the recipe narrows
    assert single == Configuration.of({**intel, "env.OMP_NUM_THREADS": 48})
    assert found["xeon_run_cpu_single"].dead_settings == ()
    assert found["xeon_run_cpu_node"].configuration == Configuration.of(
        {**intel, "env.OMP_NUM_THREADS": 24, "launch.numa_node": 0}
    )
    a_node_each: dict[str, Value] = {"launch.instances": 2, "launch.memory_policy": "bind"}
    assert found["xeon_run_cpu_throughput"].configuration == Configuration.of(
        {**intel, "env.OMP_NUM_THREADS": 24, **a_node_each}
    )
    # twelve instances of four cores are what an equal share gives: the cores need no setting
    assert found["xeon_run_cpu_latency"].configuration == Configuration.of(
        {**intel, "env.OMP_NUM_THREADS": 4, **a_node_each, "launch.instances": 12}
    )
    few = baselines(machine(tmp_path / "few", cores=3), "torch", TORCH_DEFAULTS, "xeon")
    assert "starts no instance at all" in few["xeon_run_cpu_latency"].reason


def test_a_library_that_is_missing_is_stood_in_for(tmp_path: Path) -> None:
    host = machine(tmp_path, cores=8)
    fewer = {k: v for k, v in host.libraries.items() if k not in ("libiomp5", "tcmalloc")}
    host = msgspec.structs.replace(host, libraries=fewer)
    iomp = baselines(host, "torch", TORCH_DEFAULTS, "xeon")["torch_guide_iomp"]
    assert iomp.configuration.get("launch.openmp") == "libomp"
    assert iomp.configuration.get("launch.allocator") == "jemalloc"
    assert any("libomp stands in for libiomp5" in text for text in iomp.substituted)
    assert any("jemalloc stands in for tcmalloc" in text for text in iomp.substituted)


def test_the_guideline_of_the_paper_divides_cores_by_the_graphs_width(tmp_path: Path) -> None:
    host = machine(tmp_path, cores=8)
    tensorflow = baselines(host, "tensorflow", TENSORFLOW_DEFAULTS, "auto", width=2.9)
    assert tensorflow["wang2019_guideline"].configuration == Configuration.of(
        {"env.TF_NUM_INTEROP_THREADS": 2, "env.TF_NUM_INTRAOP_THREADS": 4}
    )
    for width, same_as in ((1.1, "default"), (2.9, None), (0.0, None)):
        torch = baselines(host, "torch", TORCH_DEFAULTS, "auto", width=width)
        assert torch["wang2019_guideline_torch"].same_as == same_as
        assert torch["wang2019_guideline_torch"].is_applicable == (width == 1.1)
    assert "has no pools" in torch["wang2019_guideline_torch"].reason


def test_what_the_user_fixed_joins_recommendations_that_say_nothing_of_it(tmp_path: Path) -> None:
    host = machine(tmp_path, cores=8)
    loaded = shipped_profile("fake")
    fixed = parse_restrictions([], ["fake.layout=packed"], [], "both")
    space = resolved(host, "fake", FAKE_DEFAULTS, "fake", fixed)
    listed = resolve_baselines(loaded, host, workload("fake"), model(FAKE_DEFAULTS), space)
    found = {baseline.name: baseline for baseline in listed}
    assert found["vendor_threads"].configuration == Configuration.of(
        {"env.FAKE_THREADS": 4, "fake.layout": "packed"}
    )
    assert "ruled out by --fix fake.layout=packed" in found["vendor_compiler"].reason


def test_one_variable_that_means_nothing_here_does_not_undo_a_recipe(tmp_path: Path) -> None:
    host = machine(tmp_path, cores=8, flags="avx2")
    found = baselines(host, "tensorflow", TENSORFLOW_DEFAULTS, "arm")["graviton_tf"]
    assert found.is_applicable
    assert any(d.startswith("env.ONEDNN_DEFAULT_FPMATH_MODE=BF16: ") for d in found.dead_settings)


def test_lists_of_cpus_hold_one_of_each_core(tmp_path: Path) -> None:
    host = machine(tmp_path, sockets=2, cores=2, threads=2)
    cores = {cpu.core for cpu in host.cpus if cpu.node == 0}
    found = baselines(host, "torch", TORCH_DEFAULTS, "epyc")
    listed = found["torch_guide_gomp"].configuration.get("env.GOMP_CPU_AFFINITY")
    assert set(parse_cpu_list(str(listed))) == cores
    everywhere = found["amd_zendnn_gomp"].configuration.get("env.GOMP_CPU_AFFINITY")
    assert len(parse_cpu_list(str(everywhere))) == 4


PUBLISHED = {
    "torch": {
        "auto": {"torch_default", "torch_guide_tcmalloc", "torch_guide_jemalloc",
                 "torch_guide_gomp", "torch_guide_iomp", "torch_guide_compile",
                 "torch_guide_bf16", "torch_guide_sockets", "torchserve_workers",
                 "wang2019_guideline_torch", "onnxruntime", "openvino", "openvino_bf16"},
        "xeon": {"xeon_run_cpu_single", "xeon_run_cpu_node", "xeon_run_cpu_latency",
                 "xeon_run_cpu_throughput"},
        "epyc": {"amd_zentorch_env", "amd_zendnn_gomp", "amd_zendnn_instances"},
        "arm": {"graviton_torch"},
    },
    "tensorflow": {
        "auto": {"tf_default", "tf_guide_r1", "tf_physical", "tf_guide_xla", "tf_guide_mixed",
                 "sagemaker_workers", "wang2019_guideline", "wang2019_script", "onnxruntime",
                 "openvino", "openvino_bf16"},
        "xeon": {"intel_tf_article", "intel_tf_article_numa", "intel_zoo_general",
                 "intel_zoo_resnet50", "itex_launch_latency", "itex_launch_throughput"},
        "epyc": {"zentf", "zentf_instances"},
        "arm": {"graviton_tf"},
    },
}  # fmt: skip


@pytest.mark.parametrize("profile", PUBLISHED["torch"])
@pytest.mark.parametrize("framework", PUBLISHED)
def test_every_published_formula_is_listed(tmp_path: Path, framework: str, profile: str) -> None:
    defaults = TORCH_DEFAULTS if framework == "torch" else TENSORFLOW_DEFAULTS
    found = baselines(machine(tmp_path, cores=8), framework, defaults, profile)
    assert set(found) == PUBLISHED[framework]["auto"] | PUBLISHED[framework][profile]
    assert found["torch_default" if framework == "torch" else "tf_default"].same_as == "default"


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


INSTEAD = {"tcmalloc": "jemalloc", "jemalloc": "tcmalloc", "libiomp5": "libomp"}


@pytest.mark.parametrize("missing", INSTEAD)
def test_a_missing_library_never_leaves_the_default_under_a_baselines_name(
    tmp_path: Path, missing: str
) -> None:
    """run_cpu (torch 2.13) warns, goes on with glibc's malloc or libgomp, and exits with 0.

    Here what is measured preloads what it names, and says what stands in for what.
    """
    host = machine(tmp_path, cores=8)
    fewer = {name: path for name, path in host.libraries.items() if name != missing}
    without = msgspec.structs.replace(host, libraries=fewer)
    everything = baselines(host, "torch", TORCH_DEFAULTS, "xeon")
    found = baselines(without, "torch", TORCH_DEFAULTS, "xeon")
    knobs = ("launch.allocator", "launch.openmp")
    affected = [
        name
        for name, baseline in everything.items()
        if missing in [baseline.configuration.get(knob) for knob in knobs]
    ]
    assert affected
    for name in affected:
        baseline = found[name]
        assert any(f"{INSTEAD[missing]} stands in for {missing}" in s for s in baseline.substituted)
        (plan, *_) = plan_launch(baseline.configuration, without)
        assert fewer[INSTEAD[missing]] in plan.environment["LD_PRELOAD"].split(":")


def test_where_only_mimalloc_is_there_it_stands_in_for_both_and_one_line_adds_them(
    tmp_path: Path,
) -> None:
    """As on a machine where nobody is root: pip brings mimalloc and libiomp5."""
    host = msgspec.structs.replace(
        machine(tmp_path, cores=8),
        libraries={"mimalloc": "/venv/libmimalloc.so", "libiomp5": "/venv/libiomp5.so"},
    )
    found = baselines(host, "torch", TORCH_DEFAULTS, "xeon")
    guides = ("torch_guide_tcmalloc", "torch_guide_jemalloc", "torch_guide_iomp")
    for name, asked in zip(guides, ("tcmalloc", "jemalloc", "tcmalloc"), strict=True):
        assert found[name].configuration.get("launch.allocator") == "mimalloc"
        (told,) = found[name].substituted
        assert told.startswith(f"launch.allocator=mimalloc stands in for {asked}: ")
        assert found[name].missing == (asked,)
    # without its allocator's tuning string one guide is the other
    assert found["torch_guide_jemalloc"].same_as == "torch_guide_tcmalloc"
    assert any("only jemalloc reads" in d for d in found["torch_guide_jemalloc"].dead_settings)
    line = what_apt_adds(found.values(), host)
    assert "tcmalloc (torch_guide_tcmalloc and 5 more), jemalloc (torch_guide_jemalloc)" in line
    assert line.endswith(": sudo apt-get install libjemalloc2 libtcmalloc-minimal4")
    assert "\n" not in line


def test_nothing_is_to_be_installed_where_every_named_library_is_there(tmp_path: Path) -> None:
    """mimalloc, which no recommendation names, is missing on this host."""
    found = baselines(machine(tmp_path, cores=8), "torch", TORCH_DEFAULTS, "xeon")
    assert what_apt_adds(found.values(), machine(tmp_path, cores=8)) == ""


def test_an_openmp_runtime_that_no_debian_package_brings_is_stood_in_for(tmp_path: Path) -> None:
    host = machine(tmp_path, cores=8)
    kept = {k: v for k, v in host.libraries.items() if k not in ("libiomp5", "libomp")}
    bare = msgspec.structs.replace(host, libraries=kept)
    found = baselines(bare, "torch", TORCH_DEFAULTS, "auto")
    assert what_apt_adds(found.values(), bare).endswith(": sudo apt-get install libomp5")
    with_libomp = msgspec.structs.replace(bare, libraries={**kept, "libomp": "/l/libomp.so.5"})
    found = baselines(with_libomp, "torch", TORCH_DEFAULTS, "auto")
    assert what_apt_adds(found.values(), with_libomp) == ""


def test_without_any_allocator_what_recommends_one_is_not_measured(tmp_path: Path) -> None:
    """The same defect of run_cpu where nothing can stand in."""
    host = machine(tmp_path, cores=8)
    kept = {k: v for k, v in host.libraries.items() if k not in ("tcmalloc", "jemalloc")}
    bare = msgspec.structs.replace(host, libraries=kept)
    everything = baselines(host, "torch", TORCH_DEFAULTS, "xeon")
    found = baselines(bare, "torch", TORCH_DEFAULTS, "xeon")
    measured = {baseline.name for baseline in to_measure(list(found.values()))}
    recommending = {
        name for name, b in everything.items() if b.configuration.get("launch.allocator")
    }
    assert {"xeon_run_cpu_single", "torch_guide_tcmalloc"} <= recommending
    for name in recommending:
        assert name not in measured
        assert "not installed" in found[name].reason


@pytest.mark.parametrize("n_cores", [1, 2, 3, 4])
@pytest.mark.parametrize("is_quota", [False, True])
def test_fewer_than_four_cores_are_a_reason_and_no_empty_launch(
    tmp_path: Path, n_cores: int, is_quota: bool
) -> None:
    """run_cpu --latency-mode starts 2 // 4 = 0 instances on two cores, and exits with 0."""
    host = machine(tmp_path, cores=8 if is_quota else n_cores)
    if is_quota:
        limits = msgspec.structs.replace(host.limits, quota_cores=n_cores + 0.5)
        host = msgspec.structs.replace(host, limits=limits)
    found = {
        **baselines(host, "torch", TORCH_DEFAULTS, "xeon"),
        **baselines(host, "tensorflow", TENSORFLOW_DEFAULTS, "xeon"),
    }
    for name in ("xeon_run_cpu_latency", "itex_launch_latency"):
        baseline = found[name]
        if n_cores < 4:
            assert "fewer than 4 cores may be used" in baseline.reason
            assert baseline not in to_measure(list(found.values()))
        else:
            assert baseline.is_applicable
            assert len(plan_launch(baseline.configuration, host)) == 1


def test_threads_that_a_recommendation_takes_beyond_its_node_are_not_called_dead(
    tmp_path: Path,
) -> None:
    """Intel's zoo binds to node 0 and counts all cores: as published, so as measured."""
    host = machine(tmp_path, sockets=4, cores=20, threads=2)
    zoo = baselines(host, "tensorflow", TENSORFLOW_DEFAULTS, "xeon")["intel_zoo_general"]
    assert zoo.configuration.get("env.TF_NUM_INTRAOP_THREADS") == 80
    assert not any("TF_NUM_INTRAOP_THREADS" in text for text in zoo.dead_settings)


def test_every_profile_resolves_on_every_kind_of_host(tmp_path: Path) -> None:
    shapes: list[dict[str, Any]] = [
        dict(cores=1),
        dict(cores=2),
        dict(sockets=2, cores=56, threads=2),
        dict(sockets=2, cores=64, threads=2, nodes_per_socket=4, vendor="AuthenticAMD"),
    ]
    for i, shape in enumerate(shapes):
        host = machine(tmp_path / str(i), **shape)
        for profile in ("xeon", "epyc", "arm", "auto"):
            for framework, defaults in (
                ("torch", TORCH_DEFAULTS),
                ("tensorflow", TENSORFLOW_DEFAULTS),
            ):
                found = baselines(host, framework, defaults, profile)
                assert found
                assert all(b.reason for b in found.values() if not b.is_applicable)


@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
def test_engines_are_baselines_where_they_are_installed(tmp_path: Path, framework: str) -> None:
    defaults = TORCH_DEFAULTS if framework == "torch" else TENSORFLOW_DEFAULTS
    threads: dict[str, Value] = {"engine.threads": machine(tmp_path).usable_cores}
    wanted: dict[str, dict[str, Value]] = {
        "onnxruntime": {"engine.name": "onnxruntime", **threads},
        "openvino": {"engine.name": "openvino", **threads},
        "openvino_bf16": {"engine.name": "openvino", "openvino.precision": "bf16", **threads},
    }
    for engines in ((), tuple(ENGINES)):
        host = replace(machine(tmp_path), engines=engines)
        space = resolved(host, framework, defaults, "auto")
        found = {
            b.name: b
            for b in resolve_baselines(
                shipped_profile("auto"), host, workload(framework), model(defaults), space
            )
        }
        for name, settings in wanted.items():
            if not engines:
                assert "is not installed: pip install" in found[name].reason
            else:
                assert found[name].configuration.as_dict() == settings
