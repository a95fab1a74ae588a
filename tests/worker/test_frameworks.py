"""One contract for every framework, on real ones; and a dead variant of each knob.

Whether a library of a framework takes a setting only the framework shows. `told` keeps what each
launch told for all tests of a run; test_canaries.py has the two launches of the fast tier.
"""

import inspect
import re
import shutil
from pathlib import Path

import pytest

from tests.wants import needs
from tests.worker.conftest import Ask
from tests.worker.settings import (
    ACCEPTED,
    AMP,
    BOUND,
    COMPILED,
    DEAD,
    FRAMEWORKS,
    HALF,
    HOST,
    IN_BF16,
    LLVM,
    MAPPED,
    NO_ONEDNN,
    OVERRIDDEN,
    OVERRIDING,
    PROFILED,
    SETTINGS,
    SINGLE,
    TUNED,
    UNKNOWN_TO_LLVM,
    UNREAD,
    only,
    tensorflow,
    torch,
)
from tests.worker.workers import Launched
from tuner.galleries import MODELS
from tuner.launchers.describe import find_model, make_reference
from tuner.launchers.instance_group import InstanceGroup
from tuner.record.configuration import Configuration, Value
from tuner.record.launch import Built, Checked, Compiled, Prepared, Profiled
from tuner.record.load import OFFLINE, Load
from tuner.record.outcome import Outcome
from tuner.record.protocol import (
    Begin,
    Failed,
    Prepare,
    WarmUp,
)
from tuner.space.launching import plan_launch
from tuner.worker.session import MOST_PROFILED_CALLS

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the launches of this file write."""
    return tmp_path_factory.mktemp("frameworks")


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
    assert not any("__inference" in o.name for o in profile.operators)  # the function of them all
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


@torch
@needs(LLVM)
def test_an_openmp_runtime_leaves_nothing_of_a_launch(told: Ask) -> None:
    launch = told("torch", {"launch.openmp": LLVM} | UNKNOWN_TO_LLVM)
    assert (launch.n_registered, launch.n_left) == (1, 0)


@torch
@needs("a C++ compiler")
def test_a_compiler_that_fell_back_is_not_in_force(folder: Path, references: Path) -> None:
    """The dead variant: Dynamo swallows the error and runs eagerly."""
    broken = {"TORCHDYNAMO_SUPPRESS_ERRORS": "1", "CXX": "/bin/false",
              "TORCHINDUCTOR_CACHE_DIR": str(folder / "never")}  # fmt: skip
    with Launched(folder, "torch", COMPILED, environment=broken, references=references) as launched:
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
def test_bf16_that_the_graph_optimiser_did_not_make_is_not_in_force(told: Ask) -> None:
    """The dead variant: with oneDNN off, the option is accepted and nothing happens."""
    item = told("tensorflow", NO_ONEDNN | AMP).read_back()["tensorflow.auto_mixed_precision"]
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
    team = InstanceGroup(plans, folder / "team.log", {"TUNE_FRAMEWORK_PACKAGES": str(folder)})
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
def test_callers_in_threads_share_one_model(told: Ask, framework: str) -> None:
    launch = told(framework, {})
    assert launch.shared is not None
    taken = launch.shared.slice
    assert len(taken.shares) == 3
    assert taken.calls == sum(share.calls for share in taken.shares) == len(taken.call_s)
    assert taken.rate == pytest.approx(taken.calls / taken.seconds, rel=0.5)
    assert isinstance(launch.checked_shared, Checked), launch.checked_shared


@torch
@needs("libnuma")
def test_numa_binding_is_proven_inside_the_measured_process(told: Ask) -> None:
    item = told("torch", BOUND).read_back()["launch.numa_node"]
    assert (item.observed, item.evidence) == (0, "effective")


@torch
def test_a_node_that_is_not_there_is_not_applicable(folder: Path, references: Path) -> None:
    with Launched(folder, "torch", {}, references=references) as launched:
        launched.plan = type(launched.plan)({}, None, "bind:9")
        reply = launched.begin()
        assert isinstance(reply, Failed)
        assert reply.outcome is Outcome.NOT_APPLICABLE
        assert "no NUMA node 9" in reply.reason
