"""One contract for every framework, on real ones; and a dead variant of each knob."""

import inspect
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import numpy as np
import pytest

from tests.command import NOTHING
from tests.wants import needs
from tests.worker.settings import (
    ACCEPTED,
    BOUND,
    COMPILED,
    DEAD,
    FRAMEWORKS,
    HALF,
    HOST,
    IN_BF16,
    MAPPED,
    OVERRIDDEN,
    OVERRIDING,
    PROFILED,
    SETTINGS,
    SINGLE,
    TUNED,
    UNREAD,
    only,
    tensorflow,
    torch,
)
from tests.worker.workers import Launched
from tuner.galleries import MODELS
from tuner.launchers.describe import find_model, make_reference
from tuner.launchers.instance_group import Team
from tuner.record.configuration import Configuration, Value
from tuner.record.launch import Built, Checked, Compiled, Prepared, Profiled, ReadBack
from tuner.record.load import OFFLINE, Load
from tuner.record.outcome import Outcome
from tuner.record.protocol import (
    Begin,
    Failed,
    Measured,
    Prepare,
    Profile,
    Reply,
    WarmUp,
)
from tuner.space.launching import plan_launch
from tuner.worker.frameworks import Array
from tuner.worker.frameworks.products import precision_of
from tuner.worker.session import MOST_PROFILED_CALLS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all: the reference is made once per framework."""
    return tmp_path_factory.mktemp("frameworks")


class Told(msgspec.Struct, frozen=True):
    """What one launch told, in the order in which it was asked."""

    prepared: Prepared
    measured: Measured
    checked: Checked | Failed
    profiled: Reply | None = None
    checked_afterwards: Checked | Failed | None = None

    def read_back(self) -> dict[str, ReadBack]:
        return {item.knob: item for item in self.prepared.read_back}


Ask = Callable[..., Told]


@pytest.fixture(scope="module")
def told(folder: Path, compiled: Path) -> Ask:
    """Launch each framework under the same settings and environment once, for all that read it."""
    kept_by_studies = {
        "TORCHINDUCTOR_CACHE_DIR": str(compiled),
        "TUNE_FRAMEWORK_PACKAGES": str(folder),
    }
    kept: dict[str, Told] = {}

    def ask(
        framework: str, settings: Mapping[str, Value], environment: Mapping[str, str] = NOTHING
    ) -> Told:
        launch = (framework, dict(settings), dict(environment))
        key = repr((framework, sorted(settings.items()), sorted(environment.items())))
        if key not in kept:
            reduced = any("bf" in str(value) for value in settings.values())
            n_inputs = 0 if settings else 128
            variables = {**kept_by_studies, **environment}
            with Launched(folder, framework, settings, environment=variables) as launched:
                answers = Told(
                    launched.prepare(),
                    launched.measured(),
                    launched.checked(reduced=reduced, n_inputs=n_inputs),
                )
                if any(profiled.values[:3] == launch for profiled in PROFILED):
                    answers = msgspec.structs.replace(
                        answers,
                        profiled=launched.ask(Profile(0.3)),
                        checked_afterwards=launched.checked(reduced=False),
                    )
            kept[key] = answers
        return kept[key]

    return ask


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_default_runs_is_steady_and_equals_the_reference(told: Ask, framework: str) -> None:
    default = told(framework, {})
    assert all(item.requested is None and item.in_force for item in default.prepared.read_back)
    # what pip installed beside it is not used unasked
    observed = {item.knob: item.observed for item in default.prepared.read_back}
    assert observed["launch.allocator"] == "glibc"
    assert observed.get("launch.openmp", "libgomp") == "libgomp"
    assert default.measured.slice.seconds >= 0.2
    checked = default.checked
    assert isinstance(checked, Checked)
    assert checked.check.drift < 1e-6
    assert checked.check.top1_agreement == 1.0
    assert checked.check.top1_informative


@pytest.mark.parametrize(("framework", "settings", "dead"), SETTINGS)
def test_each_setting_takes_effect_and_keeps_the_outputs(
    told: Ask, framework: str, settings: dict[str, Value], dead: dict[str, Value]
) -> None:
    launch = told(framework, settings | dead)
    read_back = launch.read_back()
    for knob, value in settings.items():
        assert read_back[knob].observed == value, read_back[knob]
        assert read_back[knob].evidence == ("accepted" if knob in ACCEPTED else "effective")
    assert launch.measured.slice.rate > 0
    assert isinstance(launch.checked, Checked), launch.checked


@pytest.mark.parametrize(("framework", "settings", "environment", "operator"), PROFILED)
def test_the_profiler_names_operators_and_times_them_within_the_call(
    told: Ask,
    framework: str,
    settings: dict[str, Value],
    environment: dict[str, str],
    operator: str,
) -> None:
    launch = told(framework, settings, environment)
    profile = launch.profiled
    assert isinstance(profile, Profiled), profile
    assert any(operator in o.name for o in profile.operators), profile.operators
    assert not any(re.search("[0-9a-z]{32}", o.name) for o in profile.operators)  # a hash
    seconds = [o.seconds for o in profile.operators]
    assert seconds == sorted(seconds, reverse=True)
    assert 0 < sum(seconds) <= 1.1 * len(HOST.cpus) * profile.call_s
    assert 1 <= profile.n_calls <= MOST_PROFILED_CALLS  # a quick model makes thousands a second
    assert isinstance(launch.checked_afterwards, Checked)


@pytest.mark.parametrize(("framework", "settings", "dead"), DEAD)
def test_what_nothing_reads_is_not_in_force(
    told: Ask, framework: str, settings: dict[str, Value], dead: dict[str, Value]
) -> None:
    read_back = told(framework, settings | dead).read_back()
    for knob in dead:
        assert not read_back[knob].in_force, read_back[knob]
        assert read_back[knob].evidence == "effective"


@torch
@needs("products without bf16")
def test_a_precision_that_onednn_notes_and_ignores_is_not_in_force(told: Ask) -> None:
    read_back = told("torch", SINGLE | UNREAD).read_back()
    for knob in IN_BF16:
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
@needs("libomp")
def test_an_openmp_runtime_leaves_nothing_of_a_launch(folder: Path) -> None:
    with Launched(folder, "torch", {"launch.openmp": "libomp"}) as launched:
        launched.prepare()
        pattern = f"__KMP_REGISTERED_LIB_{launched.worker.pid}_*"
        assert list(Path("/dev/shm").glob(pattern))
    assert not list(Path("/dev/shm").glob(pattern))


@torch
@needs("a C++ compiler")
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
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's, as TorchInductor is imported
def test_compiled_code_is_kept_apart_by_the_threads_that_it_is_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before 2.13 TorchInductor's cache gave code for one thread to a process with two."""
    import torch
    import torch._inductor.codecache as codecache
    from torch._inductor import config

    from tuner.worker.frameworks.torch.forms import _Compiled

    for name in ("freezing", "max_autotune", "cpp_wrapper"):
        monkeypatch.setattr(config, name, getattr(config, name))
    keys = set()
    tag = torch.compiler.config.cache_key_tag
    try:
        for n_threads in (1, 2):
            monkeypatch.setattr(torch, "get_num_threads", lambda n=n_threads: n)
            _Compiled(torch, torch.nn.Linear(2, 2), {"torch.compile.mode": "default"})
            keys.add(torch.compiler.config.cache_key_tag)
    finally:
        torch.compiler.config.cache_key_tag = tag
    assert len(keys) == 2
    assert "cache_key_tag" in inspect.getsource(codecache.FxGraphHashDetails)


@torch
def test_a_switched_off_compiler_is_not_in_force(told: Ask) -> None:
    read_back = told("torch", OVERRIDDEN, OVERRIDING).read_back()
    assert read_back["torch.compile.mode"].observed == "off"


@torch
def test_threads_that_mkl_overrides_are_not_in_force(told: Ask) -> None:
    """The dead variant: MKL_NUM_THREADS beats OMP_NUM_THREADS in stock PyTorch."""
    item = told("torch", OVERRIDDEN, OVERRIDING).read_back()["env.OMP_NUM_THREADS"]
    assert (item.observed, item.in_force) == (1, False)


@torch
@needs("a C++ compiler")
def test_compiling_without_freezing_does_not_pass_for_freezing(told: Ask) -> None:
    """The dead variant: freezing works without gradients only, and says nothing otherwise."""
    item = told("torch", COMPILED).read_back()["torch.compile.mode"]
    assert item.observed == "default"
    assert "0 frozen parameters" in item.how


@torch
@needs("a C++ compiler")
@pytest.mark.parametrize(("backend", "observed"), [("CPP", True), ("ATEN", False)])
def test_tuned_products_are_in_force_where_the_trial_chose_any(
    told: Ask, backend: str, observed: bool
) -> None:
    """Which kernel wins the trial is a matter of the moment: only one side takes part here."""
    launch = told("torch", TUNED, only(backend))
    read_back = launch.read_back()
    assert read_back["torch.compile.mode"].observed == "freezing"
    item = read_back["torch.compile.max_autotune"]
    assert (item.observed, item.evidence) == (observed, "effective"), item
    assert isinstance(launch.checked, Checked)


@tensorflow
def test_a_graph_that_is_not_frozen_is_seen_as_such(told: Ask) -> None:
    item = told("tensorflow", {}).read_back()["tensorflow.frozen"]
    assert item.observed is False
    assert not item.how.startswith("0 variable reads")


@tensorflow
@needs("bf16 instructions")
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
def test_weights_that_were_converted_after_mapping_are_not_in_force(told: Ask) -> None:
    """The dead variant: the file was mapped, and the layout made private copies of it."""
    item = told("torch", HALF | MAPPED).read_back()["torch.weights"]
    assert (item.observed, item.in_force) == ("private", False)


@torch
@needs("two cores")
def test_instances_share_the_pages_of_their_weights(folder: Path) -> None:
    ref, card = find_model("matmul@size=1024", MODELS)
    reference = folder / f"{ref.label()}.npz"
    make_reference(ref, "torch", 0, reference, card.n_check_inputs(changes_numerics=False))
    settings: dict[str, Value] = {"launch.instances": 2, "torch.weights": "mapped"}
    plans = plan_launch(Configuration.of(settings), HOST)
    team = Team(plans, folder / "team.log", {"TUNE_FRAMEWORK_PACKAGES": str(folder)})
    try:
        begun = team.ask(Begin(1, ref, "torch", 0, settings, "none", str(reference)), 300, _silent)
        assert isinstance(begun, Built), begun
        compiled = team.ask(Prepare(Load(OFFLINE, card.reference_batch)), 300, _silent)
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


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_callers_in_threads_share_one_model(folder: Path, framework: str) -> None:
    with Launched(folder, framework, {}) as launched:
        launched.prepare(load=Load("concurrent", 1, callers=3))
        taken = launched.measured().slice
        assert len(taken.shares) == 3
        assert taken.calls == sum(share.calls for share in taken.shares) == len(taken.call_s)
        assert taken.rate == pytest.approx(taken.calls / taken.seconds, rel=0.5)
        checked = launched.checked()
        assert isinstance(checked, Checked), checked


@torch
@needs("libnuma")
def test_numa_binding_is_proven_inside_the_measured_process(told: Ask) -> None:
    item = told("torch", BOUND).read_back()["launch.numa_node"]
    assert (item.observed, item.evidence) == (0, "effective")


@torch
def test_a_node_that_is_not_there_is_not_applicable(folder: Path) -> None:
    with Launched(folder, "torch", {}) as launched:
        launched.plan = type(launched.plan)({}, None, "bind:9")
        reply = launched.begin()
        assert isinstance(reply, Failed)
        assert reply.outcome is Outcome.NOT_APPLICABLE
        assert "no NUMA node 9" in reply.reason
