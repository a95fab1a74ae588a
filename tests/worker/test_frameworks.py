"""One contract for every framework, on real ones; and a dead variant of each knob."""

import shutil
from pathlib import Path

import pytest

from tests.worker.workers import Launched, needs
from tuner.host.identity import probe
from tuner.record.launch import Checked
from tuner.record.outcome import Outcome
from tuner.record.protocol import Failed

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
        assert launched.measured().slice.seconds >= 0.2
        checked = launched.checked()
        assert isinstance(checked, Checked)
        assert checked.check.drift < 1e-6
        assert checked.check.top1_agreement == 1.0
        assert checked.check.top1_informative


SETTINGS = [
    pytest.param("torch", {"env.OMP_NUM_THREADS": 1}, marks=torch),
    pytest.param("torch", {"torch.memory_format": "channels_last"}, marks=torch),
    pytest.param("torch", {"torch.compile.mode": "default"}, marks=[torch, needs_cxx]),
    pytest.param("torch", {"torch.compile.mode": "freezing"}, marks=[torch, needs_cxx]),
    pytest.param("torch", {"torch.autocast": "bf16"}, marks=[torch, needs_bf16]),
    pytest.param(
        "torch",
        {"torch.autocast": "bf16", "torch.compile.mode": "freezing"},
        marks=[torch, needs_bf16, needs_cxx],
    ),
    pytest.param("torch", {"launch.allocator": "tcmalloc"}, marks=[torch, needs_tcmalloc]),
    pytest.param("tensorflow", {"env.TF_NUM_INTRAOP_THREADS": 1}, marks=tensorflow),
    pytest.param("tensorflow", {"env.TF_NUM_INTEROP_THREADS": 1}, marks=tensorflow),
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
        "tensorflow", {"launch.allocator": "tcmalloc"}, marks=[tensorflow, needs_tcmalloc]
    ),
]


@pytest.mark.parametrize(("framework", "settings"), SETTINGS)
def test_each_setting_takes_effect_and_keeps_the_outputs(
    folder: Path, framework: str, settings: dict[str, str | int | bool]
) -> None:
    with Launched(folder, framework, settings) as launched:
        read_back = launched.read_back()
        for knob, value in settings.items():
            assert read_back[knob].observed == value, read_back[knob]
            assert read_back[knob].evidence == "effective"
        assert launched.measured().slice.rate > 0
        checked = launched.checked(reduced="bf16" in settings.values())
        assert isinstance(checked, Checked), checked


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
