"""What the environment that a study was begun in comes to as a baseline."""

from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from tests.space.spaces import (
    ALL_LIBRARIES,
    FAKE_DEFAULTS,
    TENSORFLOW_DEFAULTS,
    TORCH_DEFAULTS,
    machine,
    model,
    resolved,
    workload,
)
from tuner.galleries import SEARCH_SPACES
from tuner.host.identity import Host
from tuner.host.secrets import KEPT_BACK, stated
from tuner.record.configuration import Configuration, Value
from tuner.space.as_run import AS_RUN, as_run
from tuner.space.baselines import Baseline, resolve_baselines
from tuner.space.launching import plan_launch
from tuner.space.profile_file import load_profile
from tuner.space.restrictions import Restrictions, parse_restrictions

DEFAULTS = {"torch": TORCH_DEFAULTS, "tensorflow": TENSORFLOW_DEFAULTS, "fake": FAKE_DEFAULTS}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """Eight cores; the libraries are files, as a preloaded one must be."""
    described = machine(tmp_path / "machine", cores=8)
    libraries = {name: str(tmp_path / Path(path).name) for name, path in ALL_LIBRARIES.items()}
    for path in libraries.values():
        Path(path).touch()
    return msgspec.structs.replace(described, libraries=libraries)


def found(
    environment: Mapping[str, str],
    host: Host,
    framework: str = "torch",
    restrictions: Restrictions | None = None,
) -> Baseline:
    profile = "fake" if framework == "fake" else "auto"
    defaults, work = DEFAULTS[framework], workload(framework)
    space = resolved(host, framework, defaults, profile, restrictions)
    loaded = load_profile(profile, SEARCH_SPACES)
    earlier = resolve_baselines(loaded, host, work, model(defaults), space)
    baseline = as_run(stated(environment), host, work, space, earlier)
    assert baseline is not None
    assert baseline.name == AS_RUN
    return baseline


def test_where_nothing_is_set_there_is_none(host: Host) -> None:
    space = resolved(host, "torch", TORCH_DEFAULTS)
    assert as_run(stated({"HOME": "/root"}), host, workload("torch"), space, []) is None


@pytest.mark.parametrize(
    ("environment", "settings"),
    [
        ({"OMP_NUM_THREADS": "1"}, {"env.OMP_NUM_THREADS": 1}),
        ({"MKL_NUM_THREADS": "2", "OMP_NUM_THREADS": "3"}, {"env.OMP_NUM_THREADS": 2}),
        ({"OMP_WAIT_POLICY": "active"}, {"env.OMP_WAIT_POLICY": "ACTIVE"}),
        # nobody knows what it does: that is why it is measured, and as it is written
        ({"GOMP_SPINCOUNT": "007"}, {"env.GOMP_SPINCOUNT": "007"}),
        ({"TORCHINDUCTOR_MAX_AUTOTUNE": "1"}, {"env.TORCHINDUCTOR_MAX_AUTOTUNE": 1}),
    ],
)
def test_what_is_set_becomes_settings(
    host: Host, environment: dict[str, str], settings: dict[str, Value]
) -> None:
    baseline = found(environment, host)
    assert baseline.configuration == Configuration.of(settings)
    assert (baseline.same_as, baseline.dead_settings) == (None, ())
    (plan,) = plan_launch(baseline.configuration, host)
    assert plan.environment == {k.removeprefix("env."): str(v) for k, v in settings.items()}


def test_a_misspelt_variable_is_no_setting_of_the_environment(host: Host) -> None:
    baseline = found({"OMP_NUM_THREDS": "2", "OMP_NUM_THREADS": "1"}, host)
    assert "env.OMP_NUM_THREDS" not in baseline.configuration.as_dict()
    assert "it seems a slip of env.OMP_NUM_THREADS" in baseline.dead_settings[0]


@pytest.mark.parametrize(
    ("framework", "environment", "why"),
    [
        ("torch", {"CUDA_VISIBLE_DEVICES": "0"}, "GPU"),
        ("torch", {"OMP_NUM_THREADS": "8"}, ""),  # the default here
        ("torch", {"KMP_BLOCKTIME": "1"}, "only libiomp5 and libomp read KMP_*"),
        ("torch", {"KMP_DUPLICATE_LIB_OK": "TRUE"}, "only libiomp5 and libomp read KMP_*"),
        ("torch", {"TF_NUM_INTEROP_THREADS": "2"}, "not read by this framework"),
        ("torch", {"TF_CPP_MIN_LOG_LEVEL": "3"}, "what is logged"),
        ("torch", {"PYTORCH_VERSION": "2.9"}, "what was built"),
        ("torch", {"OPENBLAS_NUM_THREADS": "1"}, "numpy"),
        ("torch", {"OMP_NUM_THREADS": ""}, "empty"),
        ("torch", {"LD_PRELOAD": "/nowhere/libtcmalloc.so"}, "no file that can be read"),
        ("tensorflow", {"OMP_NUM_THREADS": "1"}, "not read by this framework|reads no OMP_"),
    ],
)
def test_what_has_no_effect_makes_no_arm_and_says_why(
    host: Host, framework: str, environment: dict[str, str], why: str
) -> None:
    baseline = found(environment, host, framework)
    assert baseline.is_applicable
    assert baseline.same_as == "default"
    if why:
        (dead,) = baseline.dead_settings
        assert any(each in dead for each in why.split("|")), dead
    assert baseline.configuration == Configuration()


def test_a_known_library_in_ld_preload_is_the_setting_that_loads_it(host: Host) -> None:
    preload = f"{host.libraries['libiomp5']}:{host.libraries['tcmalloc']} "
    baseline = found({"LD_PRELOAD": preload, "KMP_BLOCKTIME": "0"}, host)
    assert baseline.configuration == Configuration.of(
        {"launch.openmp": "libiomp5", "launch.allocator": "tcmalloc", "env.KMP_BLOCKTIME": 0}
    )
    assert (baseline.dead_settings, baseline.substituted) == ((), ())


def test_what_a_guide_recommends_is_the_guides_baseline(host: Host) -> None:
    environment = {"LD_PRELOAD": host.libraries["tcmalloc"], "OMP_NUM_THREADS": "8"}
    assert found(environment, host).same_as == "torch_guide_tcmalloc"


def test_another_file_of_a_known_library_is_stood_in_for(host: Host, tmp_path: Path) -> None:
    own = tmp_path / "own/libjemalloc.so.2"
    own.parent.mkdir()
    own.touch()
    baseline = found({"LD_PRELOAD": str(own)}, host)
    assert baseline.configuration == Configuration.of({"launch.allocator": "jemalloc"})
    assert f"stands in for {own}" in baseline.substituted[0]
    fewer = {name: path for name, path in host.libraries.items() if name != "jemalloc"}
    bare = msgspec.structs.replace(host, libraries=fewer)
    missing = found({"LD_PRELOAD": str(own), "OMP_NUM_THREADS": "1"}, bare)
    assert not missing.is_applicable  # another allocator is no measure of this one
    assert "no jemalloc is found" in missing.reason


def test_an_unknown_library_in_ld_preload_is_left_out_and_said(host: Host, tmp_path: Path) -> None:
    own = tmp_path / "libown.so"
    own.touch()
    both = found({"LD_PRELOAD": str(own), "OMP_NUM_THREADS": "1"}, host)
    assert both.configuration == Configuration.of({"env.OMP_NUM_THREADS": 1})
    assert f"LD_PRELOAD={own}: left out" in both.dead_settings[0]
    alone = found({"LD_PRELOAD": str(own)}, host)
    assert not alone.is_applicable  # it is not known to be the same as the default
    assert str(own) in alone.reason


@pytest.mark.parametrize("threads", ["4,2", "0", "many", "9" * 40])
def test_threads_that_cannot_be_counted_are_not_measured(host: Host, threads: str) -> None:
    """A formula or the surrogate would compute with them."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        baseline = found({name: threads, "OMP_WAIT_POLICY": "ACTIVE"}, host)
        assert not baseline.is_applicable
        assert f"OMP_NUM_THREADS={threads} is no number" in baseline.reason


def test_what_no_library_takes_is_left_out_and_said(host: Host) -> None:
    """Where it wins, it would be shipped in a file that nobody may deploy."""
    baseline = found({"OMP_WAIT_POLICY": "banana", "OMP_NUM_THREADS": "1"}, host)
    assert baseline.configuration == Configuration.of({"env.OMP_NUM_THREADS": 1})
    assert "env.OMP_WAIT_POLICY=banana: left out" in baseline.dead_settings[0]


def test_what_an_option_rules_out_is_not_measured(host: Host) -> None:
    without = parse_restrictions([], [], ["env.FAKE_THREADS"], "both")
    baseline = found({"FAKE_THREADS": "1"}, host, "fake", without)
    assert baseline.reason == "ruled out by --exclude env.FAKE_THREADS"


def test_the_search_does_not_propose_what_the_space_does_not_have(host: Host) -> None:
    space = resolved(host, "torch", TORCH_DEFAULTS)
    configuration = found({"GOMP_SPINCOUNT": "100"}, host).configuration
    assert not space.contains(configuration)


def test_what_a_library_of_ours_sets_in_this_process_is_not_the_users() -> None:
    assert stated({"KMP_DUPLICATE_LIB_OK": "True"}) == {}
    user = {"KMP_DUPLICATE_LIB_OK": "TRUE"}
    assert stated(user) == user


def test_a_value_that_may_be_a_secret_is_not_written_down(host: Host) -> None:
    secrets = {
        "TORCH_API_TOKEN": "s3cr3t",
        "TF_PROXY": "http://me:hunter2@proxy",
        "OMP_PLACES": "a\nb",
        "MALLOC_CONF": "x" * 2000,
    }
    assert stated(secrets) == dict.fromkeys(sorted(secrets), KEPT_BACK)
    baseline = found({**secrets, "OMP_NUM_THREADS": "1"}, host)
    assert baseline.configuration == Configuration.of({"env.OMP_NUM_THREADS": 1})
    assert all("left out" in text for text in baseline.dead_settings)
    assert not found({"TORCH_API_TOKEN": "s3cr3t"}, host).is_applicable
