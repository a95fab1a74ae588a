"""One contract for every framework, on real ones; and a dead variant of each knob."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.worker.workers import Launched, needs
from tuner.galleries import MODELS
from tuner.host.identity import probe
from tuner.measurement.describe import find_model, make_reference
from tuner.measurement.team import Team
from tuner.record.configuration import Configuration, Value
from tuner.record.launch import Built, Checked, Prepared, Profiled
from tuner.record.outcome import Outcome
from tuner.record.protocol import Begin, Compiled, Failed, Prepare, Profile, WarmUp
from tuner.space.launching import plan_launch
from tuner.worker.frameworks import Array
from tuner.worker.frameworks.products import precision_of

HOST = probe()
HAS_BF16 = "avx512_bf16" in HOST.processor.isa or "amx_bf16" in HOST.processor.isa
needs_bf16 = pytest.mark.skipif(not HAS_BF16, reason="this processor has no bf16 instructions")
needs_cxx = pytest.mark.skipif(HOST.cxx is None, reason="no C++ compiler here")
needs_tcmalloc = pytest.mark.skipif(
    "tcmalloc" not in HOST.libraries, reason="libtcmalloc is not installed here"
)
torch, tensorflow = needs("torch"), needs("tensorflow")
FRAMEWORKS = [pytest.param("torch", marks=torch), pytest.param("tensorflow", marks=tensorflow)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all: the reference is made once per framework."""
    return tmp_path_factory.mktemp("frameworks")


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_default_runs_is_steady_and_equals_the_reference(folder: Path, framework: str) -> None:
    with Launched(folder, framework, {}) as launched:
        prepared = launched.prepare()
        assert all(item.requested is None and item.in_force for item in prepared.read_back)
        # what pip installed beside it is not used unasked
        observed = {item.knob: item.observed for item in prepared.read_back}
        assert observed["launch.allocator"] == "glibc"
        assert observed.get("launch.openmp", "libgomp") == "libgomp"
        assert launched.measured().slice.seconds >= 0.2
        checked = launched.checked(n_inputs=128)
        assert isinstance(checked, Checked)
        assert checked.check.drift < 1e-6
        assert checked.check.top1_agreement == 1.0
        assert checked.check.top1_informative


THP = HOST.observations.transparent_huge_pages == "madvise"
needs_thp = pytest.mark.skipif(not THP, reason="huge pages are not given on advice here")
JEMALLOC = "background_thread:true,metadata_thp:auto,dirty_decay_ms:-1,muzzy_decay_ms:-1"
THRESHOLDS = "glibc.malloc.mmap_threshold=33554432"
BARRIERS = ("FORKJOIN", "PLAIN", "REDUCTION")
KMP = {
    "env.KMP_AFFINITY": "granularity=fine,compact,1,0",
    "env.KMP_BLOCKTIME": 1,
    "env.KMP_TPAUSE": 0,
    **{f"env.KMP_{name}_BARRIER_PATTERN": "dist,dist" for name in BARRIERS},
}


def needs_library(name: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(name not in HOST.libraries, reason=f"{name} is not installed here")


# Settings that do not touch each other share a launch.
SETTINGS = [
    pytest.param(
        "torch", {"env.OMP_NUM_THREADS": 1, "torch.memory_format": "channels_last"}, marks=torch
    ),
    pytest.param("torch", {"torch.compile.mode": "default"}, marks=[torch, needs_cxx]),
    pytest.param("torch", {"torch.autocast": "bf16"}, marks=[torch, needs_bf16]),
    pytest.param(
        "torch",
        {"torch.autocast": "bf16", "torch.compile.mode": "freezing"},
        marks=[torch, needs_bf16, needs_cxx],
    ),
    pytest.param(
        "torch",
        {"torch.compile.mode": "freezing", "torch.compile.cpp_wrapper": True},
        marks=[torch, needs_cxx],
    ),
    pytest.param("torch", {"torch.export.mode": "aot_inductor"}, marks=[torch, needs_cxx]),
    pytest.param("torch", {"torch.jit.mode": "freeze", "torch.flush_denormal": True}, marks=torch),
    pytest.param("torch", {"torch.jit.mode": "optimize"}, marks=torch),
    # by itself: on a busy host it leaves a single thread, with which other settings have no effect
    pytest.param(
        "torch",
        {"torch.mkldnn": False, "env.OMP_DYNAMIC": "TRUE", "torch.weights": "mapped"},
        marks=torch,
    ),
    pytest.param("torch", {"torch.dtype": "bf16"}, marks=[torch, needs_bf16]),
    pytest.param("torch", {"launch.allocator": "tcmalloc"}, marks=[torch, needs_tcmalloc]),
    pytest.param(
        "torch",
        {
            "launch.openmp": "libomp",
            **KMP,
            "env.OMP_WAIT_POLICY": "ACTIVE",
            "launch.allocator": "jemalloc",
            "env.MALLOC_CONF": JEMALLOC,
            "env.ATEN_CPU_CAPABILITY": "default",
            "env.ONEDNN_MAX_CPU_ISA": "AVX2",
        },
        marks=[torch, needs_library("libomp"), needs_library("jemalloc")],
    ),
    pytest.param(
        "torch",
        {"launch.openmp": "libiomp5", **KMP, "launch.allocator": "mimalloc"},
        marks=[torch, needs_library("libiomp5"), needs_library("mimalloc")],
    ),
    pytest.param(
        "torch",
        {"launch.allocator": "mimalloc", "env.MIMALLOC_LARGE_OS_PAGES": 1},
        marks=[torch, needs_library("mimalloc"), needs_thp],
    ),
    pytest.param(
        "torch",
        {
            "env.OMP_WAIT_POLICY": "PASSIVE",
            "env.OMP_PROC_BIND": "CLOSE",
            "env.OMP_PLACES": "cores",
            "env.OMP_SCHEDULE": "STATIC",
            "env.OMP_THREAD_LIMIT": 2,
            "env.GLIBC_TUNABLES": THRESHOLDS,
        },
        marks=torch,
    ),
    pytest.param(
        "torch",
        {
            "launch.allocator": "tcmalloc",
            "env.TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES": 268435456,
            "env.THP_MEM_ALLOC_ENABLE": 1,
            "env.OMP_WAIT_POLICY": "ACTIVE",
        },
        marks=[torch, needs_tcmalloc, needs_thp],
    ),
    pytest.param(
        "tensorflow",
        {"env.TF_NUM_INTRAOP_THREADS": 1, "env.TF_NUM_INTEROP_THREADS": 3},
        marks=tensorflow,
    ),
    pytest.param("tensorflow", {"tensorflow.frozen": True}, marks=tensorflow),
    pytest.param("tensorflow", {"tensorflow.jit_compile": True}, marks=tensorflow),
    pytest.param(
        "tensorflow", {"tensorflow.frozen": True, "tensorflow.jit_compile": True}, marks=tensorflow
    ),
    pytest.param(
        "tensorflow",
        {"tensorflow.auto_mixed_precision": "bf16"},
        marks=[tensorflow, needs_bf16],
    ),
    pytest.param(
        "tensorflow",
        {"tensorflow.keras_policy": "mixed_bfloat16", "tensorflow.frozen": True},
        marks=[tensorflow, needs_bf16],
    ),
    pytest.param(
        "tensorflow",
        {"env.TF_XLA_FLAGS": "--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit"},
        marks=tensorflow,
    ),
    pytest.param(
        "tensorflow",
        {
            "env.TF_ENABLE_ONEDNN_OPTS": 0,
            "tensorflow.remapping": False,
            "tensorflow.layout_optimizer": False,
        },
        marks=tensorflow,
    ),
    pytest.param(
        "tensorflow", {"launch.allocator": "tcmalloc"}, marks=[tensorflow, needs_tcmalloc]
    ),
]
ACCEPTED = {
    "env.OMP_SCHEDULE",
    "env.KMP_TPAUSE",
    *(f"env.KMP_{name}_BARRIER_PATTERN" for name in BARRIERS),
    "tensorflow.remapping",
    "tensorflow.layout_optimizer",
}
"""The library's own account is all there is."""


@pytest.mark.parametrize(("framework", "settings"), SETTINGS)
def test_each_setting_takes_effect_and_keeps_the_outputs(
    folder: Path, framework: str, settings: dict[str, str | int | bool]
) -> None:
    with Launched(folder, framework, settings) as launched:
        read_back = launched.read_back()
        for knob, value in settings.items():
            assert read_back[knob].observed == value, read_back[knob]
            assert read_back[knob].evidence == ("accepted" if knob in ACCEPTED else "effective")
        assert launched.measured().slice.rate > 0
        reduced = any("bf" in str(value) for value in settings.values())
        checked = launched.checked(reduced=reduced)
        assert isinstance(checked, Checked), checked


@pytest.mark.parametrize(
    ("framework", "settings", "operator"),
    [
        pytest.param("torch", {}, "aten::", marks=torch),
        pytest.param(
            "torch", {"torch.compile.mode": "freezing"}, "mkldnn", marks=[torch, needs_cxx]
        ),
        pytest.param("tensorflow", {}, "Conv2D", marks=tensorflow),
        pytest.param("tensorflow", {"tensorflow.jit_compile": True}, "fusion", marks=tensorflow),
    ],
)
def test_the_profiler_names_operators_and_times_them_within_the_call(
    folder: Path, framework: str, settings: dict[str, str | bool], operator: str
) -> None:
    with Launched(folder, framework, settings) as launched:
        launched.prepare()
        launched.measured()
        profile = launched.ask(Profile(0.3))
        assert isinstance(profile, Profiled), profile
        assert any(operator in o.name for o in profile.operators), profile.operators
        assert not any(re.search("[0-9a-z]{32}", o.name) for o in profile.operators)  # a hash
        seconds = [o.seconds for o in profile.operators]
        assert seconds == sorted(seconds, reverse=True)
        assert 0 < sum(seconds) <= 1.1 * len(HOST.cpus) * profile.call_s
        assert profile.n_calls >= 1
        assert isinstance(launched.checked(reduced=False), Checked)


LLVM = "libomp" if "libomp" in HOST.libraries else "libiomp5"
DEAD = [
    pytest.param(
        "torch",
        {
            "env.KMP_AFFINITY": "granularity=fine,compact,1,0",
            "env.KMP_TPAUSE": 0,
            "env.MALLOC_CONF": JEMALLOC,
            "env.TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES": 1 << 28,
            "env.MIMALLOC_LARGE_OS_PAGES": 1,
            "env.OMP_PLACES": "{-7}",
        },
        marks=torch,
    ),
    pytest.param("torch", {"env.KMP_BLOCKTIME": 1}, marks=torch),
    pytest.param(
        "torch", {"env.OMP_WAIT_POLICY": "PASSIVE", "env.OMP_NUM_THREADS": 1}, marks=torch
    ),
    pytest.param(
        "torch",
        {"launch.allocator": "tcmalloc", "env.GLIBC_TUNABLES": THRESHOLDS},
        marks=[torch, needs_tcmalloc],
    ),
    pytest.param(
        "torch",
        {
            "launch.openmp": LLVM,
            "env.KMP_AFFINITY": "granularity=fine,compact,1,0,no_such_word",
            "env.GOMP_CPU_AFFINITY": "1,0,1",
        },
        marks=[torch, needs_library(LLVM)],
    ),
    pytest.param("tensorflow", {"env.TF_ENABLE_MKL_NATIVE_FORMAT": 1}, marks=tensorflow),
]


LIVE_BESIDE = {"launch.allocator", "launch.openmp", "env.OMP_NUM_THREADS"}


@pytest.mark.parametrize(("framework", "settings"), DEAD)
def test_what_nothing_reads_is_not_in_force(
    folder: Path, framework: str, settings: dict[str, str | int]
) -> None:
    """KMP_* on stock PyTorch first of all: it bundles libgomp, which does not know them."""
    with Launched(folder, framework, settings) as launched:
        read_back = launched.read_back()
        for knob in settings.keys() - LIVE_BESIDE:
            assert not read_back[knob].in_force, read_back[knob]
            assert read_back[knob].evidence == "effective"


HAS_BF16_PRODUCTS = "amx_bf16" in HOST.processor.isa or "bf16" in HOST.processor.isa


@torch
@pytest.mark.skipif(HAS_BF16_PRODUCTS, reason="oneDNN multiplies fp32 in bf16 on this processor")
def test_a_precision_that_onednn_notes_and_ignores_is_not_in_force(folder: Path) -> None:
    """Without AMX or Arm's bf16 instructions oneDNN takes the mode and multiplies in fp32."""
    settings = {"env.ONEDNN_DEFAULT_FPMATH_MODE": "BF16", "torch.fp32_precision": "bf16"}
    with Launched(folder, "torch", settings) as launched:
        read_back = launched.read_back()
        for knob in settings:
            assert (read_back[knob].observed, read_back[knob].in_force) == ("strict", False)


def rounded(x: Array, n_bits: int) -> Array:
    """Keep so many bits of the mantissa, as bf16 (7) and tf32 (10) do."""
    bits = x.view(np.uint32) + np.uint32(1 << (22 - n_bits))
    return (bits & np.uint32(0xFFFFFFFF << (23 - n_bits) & 0xFFFFFFFF)).view(np.float32)


@pytest.mark.parametrize(("n_bits", "name"), [(23, "strict"), (10, "tf32"), (7, "bf16")])
def test_precision_is_told_by_rounding(n_bits: int, name: str) -> None:
    def multiply(a: Array, b: Array) -> Array:
        if n_bits == 23:
            return a @ b
        return rounded(a, n_bits) @ rounded(b, n_bits)

    assert precision_of([multiply])[0] == name


@torch
@needs_library("libomp")
def test_an_openmp_runtime_leaves_nothing_of_a_launch(folder: Path) -> None:
    with Launched(folder, "torch", {"launch.openmp": "libomp"}) as launched:
        launched.prepare()
        pattern = f"__KMP_REGISTERED_LIB_{launched.worker.pid}_*"
        assert list(Path("/dev/shm").glob(pattern))
    assert not list(Path("/dev/shm").glob(pattern))


@torch
@needs_cxx
def test_a_compiler_that_fell_back_is_not_in_force(folder: Path) -> None:
    """The dead variant: Dynamo swallows the error and runs eagerly."""
    broken = {"TORCHDYNAMO_SUPPRESS_ERRORS": "1", "CXX": "/bin/false",
              "TORCHINDUCTOR_CACHE_DIR": str(folder / "never")}  # fmt: skip
    with Launched(
        folder, "torch", {"torch.compile.mode": "default"}, environment=broken
    ) as launched:
        item = launched.read_back()["torch.compile.mode"]
        assert item.observed == "off"
        assert not item.in_force
    shutil.rmtree(folder / "never", ignore_errors=True)


@torch
def test_a_switched_off_compiler_is_not_in_force(folder: Path) -> None:
    off = {"TORCH_COMPILE_DISABLE": "1"}
    with Launched(folder, "torch", {"torch.compile.mode": "freezing"}, environment=off) as launched:
        assert launched.read_back()["torch.compile.mode"].observed == "off"


@torch
@needs_cxx
def test_compiling_without_freezing_does_not_pass_for_freezing(folder: Path) -> None:
    """The dead variant: freezing works without gradients only, and says nothing otherwise."""
    with Launched(folder, "torch", {"torch.compile.mode": "default"}) as launched:
        item = launched.read_back()["torch.compile.mode"]
        assert item.observed == "default"
        assert "0 frozen parameters" in item.how


@torch
@needs_cxx
@pytest.mark.parametrize(("backend", "observed"), [("CPP", True), ("ATEN", False)])
def test_tuned_products_are_in_force_where_the_trial_chose_any(
    folder: Path, backend: str, observed: bool
) -> None:
    """Which kernel wins the trial is a matter of the moment: only one side takes part here."""
    settings: dict[str, str | bool] = {
        "torch.compile.mode": "freezing", "torch.compile.max_autotune": True
    }  # fmt: skip
    rivals = {"TORCHINDUCTOR_MAX_AUTOTUNE_GEMM_BACKENDS": backend}
    with Launched(folder, "torch", settings, environment=rivals) as launched:
        read_back = launched.read_back()
        assert read_back["torch.compile.mode"].observed == "freezing"
        item = read_back["torch.compile.max_autotune"]
        assert (item.observed, item.evidence) == (observed, "effective"), item
        assert isinstance(launched.checked(), Checked)


@torch
def test_threads_that_mkl_overrides_are_not_in_force(folder: Path) -> None:
    """The dead variant: MKL_NUM_THREADS beats OMP_NUM_THREADS in stock PyTorch."""
    with Launched(
        folder, "torch", {"env.OMP_NUM_THREADS": 2}, environment={"MKL_NUM_THREADS": "1"}
    ) as launched:
        item = launched.read_back()["env.OMP_NUM_THREADS"]
        assert (item.observed, item.in_force) == (1, False)


@tensorflow
def test_a_graph_that_is_not_frozen_is_seen_as_such(folder: Path) -> None:
    with Launched(folder, "tensorflow", {}) as launched:
        item = launched.read_back()["tensorflow.frozen"]
        assert item.observed is False
        assert not item.how.startswith("0 variable reads")


@tensorflow
@needs_bf16
def test_bf16_that_the_graph_optimiser_did_not_make_is_not_in_force(folder: Path) -> None:
    """The dead variant: with oneDNN off, the option is accepted and nothing happens."""
    with Launched(
        folder,
        "tensorflow",
        {"tensorflow.auto_mixed_precision": "bf16"},
        environment={"TF_ENABLE_ONEDNN_OPTS": "0"},
    ) as launched:
        item = launched.read_back()["tensorflow.auto_mixed_precision"]
        assert (item.observed, item.in_force) == ("off", False)


@torch
def test_weights_that_were_converted_after_mapping_are_not_in_force(folder: Path) -> None:
    """The dead variant: the file was mapped, and the layout made private copies of it."""
    settings: dict[str, Value] = {"torch.weights": "mapped", "torch.dtype": "bf16"}
    with Launched(folder, "torch", settings) as launched:
        item = launched.read_back()["torch.weights"]
        assert (item.observed, item.in_force) == ("private", False)


@torch
def test_instances_share_the_pages_of_their_weights(folder: Path) -> None:
    if HOST.usable_cores < 2:
        pytest.skip("two instances need two cores; one may be used here")
    ref, card = find_model("matmul@size=1024", MODELS)
    reference = folder / f"{ref.label()}.npz"
    make_reference(ref, "torch", 0, reference, card.n_check_inputs(changes_numerics=False))
    settings: dict[str, Value] = {"launch.instances": 2, "torch.weights": "mapped"}
    plans = plan_launch(Configuration.of(settings), HOST)
    team = Team(plans, folder / "team.log", {"TUNE_FRAMEWORK_PACKAGES": str(folder)})
    try:
        begun = team.ask(Begin(1, ref, "torch", 0, settings, "none", str(reference)), 300, _silent)
        assert isinstance(begun, Built), begun
        compiled = team.ask(Prepare(card.reference_batch), 300, _silent)
        assert isinstance(compiled, Compiled), compiled
        prepared = team.ask(WarmUp(), 300, _silent)
        assert isinstance(prepared, Prepared), prepared
        assert all(item.in_force for item in prepared.read_back)
        mapped = [_mapped_weights_kib(pid) for pid in team.pids]
    finally:
        team.close()
    for resident, proportional in mapped:
        assert resident > 0.9 * 4096  # 1024 x 1024 numbers of four bytes
        assert proportional < 0.6 * resident  # each page counts half for either


def _mapped_weights_kib(pid: int) -> tuple[int, int]:
    """Return how much of mapped weights is resident, and the process's share of it (smaps)."""
    resident = proportional = 0
    is_weights = False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        name, *fields = line.split()
        if not name.endswith(":"):
            is_weights = "/weights-" in line
        elif is_weights and name == "Rss:":
            resident += int(fields[0])
        elif is_weights and name == "Pss:":
            proportional += int(fields[0])
    return resident, proportional


def _silent(stage: str) -> None:
    pass


@torch
def test_numa_binding_is_proven_inside_the_measured_process(folder: Path) -> None:
    if "libnuma" not in HOST.libraries:
        pytest.skip("libnuma.so.1 is not installed here")
    with Launched(folder, "torch", {"launch.numa_node": 0}) as launched:
        item = launched.read_back()["launch.numa_node"]
        assert (item.observed, item.evidence) == (0, "effective")


@torch
def test_a_node_that_is_not_there_is_not_applicable(folder: Path) -> None:
    with Launched(folder, "torch", {}) as launched:
        launched.plan = type(launched.plan)({}, None, "bind:9")
        reply = launched.begin()
        assert isinstance(reply, Failed)
        assert reply.outcome is Outcome.NOT_APPLICABLE
        assert "no NUMA node 9" in reply.reason
