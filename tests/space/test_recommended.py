"""Recommendations from anywhere: only what a study can have written is believed."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tuner
import tuner.app.verify
from tests.deploy.recommendations import recommendation
from tests.space.spaces import machine
from tuner.app.request import Request
from tuner.app.verify import VerifyRequest, run_verify
from tuner.cli import export
from tuner.cli import run as cli_run
from tuner.deploy.run import CannotRun
from tuner.errors import UsageError
from tuner.record.configuration import Value
from tuner.record.files import write_recommendation
from tuner.record.interval import Interval
from tuner.record.objective import Bound
from tuner.record.output_check import OutputCheck
from tuner.record.recommendation import Placement, Recommendation, Setting, Tolerances
from tuner.space.recommended import fault_of, read_recommended

SETTINGS: dict[str, Value] = {
    "env.OMP_NUM_THREADS": 2,
    "launch.allocator": "tcmalloc",
    "launch.instances": 2,
    "torch.memory_format": "channels_last",
    "workload.batch": 8,
}


@pytest.fixture
def sound(tmp_path: Path) -> Recommendation:
    """With a setting of every kind, written on a host of four cores."""
    found = recommendation(SETTINGS, machine(tmp_path, cores=4))
    return with_variables(found, LD_PRELOAD="/usr/lib/libtcmalloc.so.4")


def with_setting(r: Recommendation, which: str, **parts: Any) -> Recommendation:
    """Change a setting, or add one if parts make it whole."""
    changed = [msgspec.structs.replace(s, **parts) if s.knob == which else s for s in r.settings]
    if changed == r.settings:
        changed = [*r.settings, Setting(which, how="", **parts)]
    return msgspec.structs.replace(r, settings=changed)


def with_variables(r: Recommendation, **variables: str | None) -> Recommendation:
    found = {k: v for k, v in {**r.environment, **variables}.items() if v is not None}
    return msgspec.structs.replace(r, environment=found)


def with_package(r: Recommendation, file: str, package: str) -> Recommendation:
    """Preload mimalloc in the allocator's place, as pip's package brings it."""
    found = with_setting(r, "launch.allocator", value="mimalloc")
    return msgspec.structs.replace(with_variables(found, LD_PRELOAD=file), packages={file: package})


def in_environment(value: Value) -> dict[str, Any]:
    return {"value": value, "applies": "launch", "needs_code_change": False}


def test_what_a_study_writes_is_read(tmp_path: Path, sound: Recommendation) -> None:
    write_recommendation(tmp_path / "recommended.toml", sound)
    assert read_recommended(tmp_path) == sound
    written = (tmp_path / "recommended.toml").read_text()
    tables = [line for line in written.splitlines() if line.startswith("[")]
    assert tables[0] == "[[settings]]"  # what a person opens the file for
    for path in (
        "libtcmalloc.so.4",
        "/opt/elsewhere/libtcmalloc.so.4.5",
        "/usr/lib/aarch64-linux-gnu/libtcmalloc_minimal.so.4",
        "/usr/local/lib64/libtcmalloc.so",
        "/lib64/libtcmalloc.so.4",
        f"{sys.prefix}/lib/libtcmalloc.so.4",
    ):
        assert fault_of(with_variables(sound, LD_PRELOAD=path)) is None, path
    for name in ("MY_MODE", "MKL_DYNAMIC", "DNNL_MAX_CPU_ISA", "FAKE_BLOCKTIME", "OMP_NUM_TEAMS"):
        free = with_setting(sound, f"env.{name}", **in_environment("1"))
        assert fault_of(with_variables(free, **{name: "1"})) is None, name
    assert fault_of(with_package(sound, "libmimalloc.so", "cmeel-mimalloc==3.4.3")) is None
    older = msgspec.structs.replace(sound, placements=[Placement()])
    assert fault_of(older) is None
    wait: dict[str, Any] = {"value": 5, "applies": "call", "needs_code_change": False}
    launched = [s for s in sound.settings if not s.needs_code_change]
    older = msgspec.structs.replace(sound, winner_class="no_code", settings=launched)
    older = with_setting(older, "server.max_wait_ms", **wait)
    assert fault_of(older) is None  # as they were written when the program's wait was any class's


def test_outputs_that_a_users_accuracy_judged_were_held_to_no_drift(
    tmp_path: Path, sound: Recommendation
) -> None:
    by_accuracy = msgspec.structs.replace(
        sound,
        tolerances=Tolerances("reduced", None, 0.01),
        outputs=OutputCheck(0.02, 512, accuracy=-0.31, default_accuracy=-0.3, channel_drift=0.04),
    )
    write_recommendation(tmp_path / "recommended.toml", by_accuracy)
    assert read_recommended(tmp_path) == by_accuracy


FAULTS: dict[str, tuple[Callable[[Recommendation], Recommendation], str]] = {
    "an unknown knob": (
        lambda r: with_setting(r, "torch.memory_format", knob="torch.nosuch"),
        "there is no knob 'torch.nosuch'",
    ),
    "a misspelt variable": (
        lambda r: with_variables(
            with_setting(r, "env.OMP_NUM_THREDS", **in_environment("2")), OMP_NUM_THREDS="2"
        ),
        "env.OMP_NUM_THREDS is no setting that is known here; did it mean env.OMP_NUM_THREADS?",
    ),
    "another framework's knob": (
        lambda r: with_setting(r, "torch.memory_format", knob="tensorflow.frozen"),
        "tensorflow.frozen is no knob of torch",
    ),
    "a value of another type": (
        lambda r: with_setting(r, "torch.memory_format", value=17),
        "torch.memory_format cannot be 17; allowed are: contiguous, channels_last",
    ),
    "a value that is code": (
        lambda r: with_setting(r, "torch.memory_format", value="x'; touch x"),
        "torch.memory_format cannot be",
    ),
    "a value of no variable": (
        lambda r: with_variables(
            with_setting(r, "env.OMP_NUM_THREADS", value="banana"), OMP_NUM_THREADS="banana"
        ),
        "env.OMP_NUM_THREADS cannot be 'banana'",
    ),
    "another time to apply": (
        lambda r: with_setting(r, "torch.memory_format", applies="launch"),
        "torch.memory_format applies at 'launch'",
    ),
    "another need of code": (
        lambda r: with_setting(r, "torch.memory_format", needs_code_change=False),
        "needs_code_change = false; it is 'model' and true",
    ),
    "another batch than its workload's": (
        lambda r: with_setting(r, "workload.batch", value=16),
        "workload.batch is 16, and the batch of its workload 8",
    ),
    "a knob twice": (
        lambda r: msgspec.structs.replace(r, settings=[*r.settings, r.settings[0]]),
        "is set twice",
    ),
    "a class that allows less": (
        lambda r: msgspec.structs.replace(r, winner_class="no_code"),
        "the class no_code does not allow",
    ),
    "an unknown class": (
        lambda r: msgspec.structs.replace(r, winner_class="best"),
        "there is no winner class 'best'",
    ),
    "an unknown framework": (
        lambda r: msgspec.structs.replace(
            r, workload=msgspec.structs.replace(r.workload, framework="jax")
        ),
        "there is no framework 'jax'",
    ),
    "a claim of nothing": (
        lambda r: msgspec.structs.replace(
            r, claim=msgspec.structs.replace(r.claim, verdict="ambiguous")
        ),
        "it claims 'ambiguous' and sets",
    ),
    "a smuggled variable": (
        lambda r: with_variables(r, PYTHONPATH="/tmp/x"),
        "[environment] has PYTHONPATH, which no setting sets",
    ),
    "a variable that names a program": (
        lambda r: with_variables(
            with_setting(r, "env.BASH_ENV", **in_environment("/x")), BASH_ENV="/x"
        ),
        "env.BASH_ENV is no setting: it names a program to run",
    ),
    "a variable that is not set": (
        lambda r: with_variables(r, OMP_NUM_THREADS=None),
        "[environment] lacks OMP_NUM_THREADS",
    ),
    "a variable with another value": (
        lambda r: with_variables(r, OMP_NUM_THREADS="3"),
        "[environment] has OMP_NUM_THREADS=3, and env.OMP_NUM_THREADS is 2",
    ),
    "a library more": (
        lambda r: with_variables(r, LD_PRELOAD="/usr/lib/libtcmalloc.so.4:/tmp/evil.so"),
        "LD_PRELOAD loads /tmp/evil.so, which no setting asks for",
    ),
    "another library": (
        lambda r: with_variables(r, LD_PRELOAD="/tmp/evil.so"),
        "does not load tcmalloc, which is a setting",
    ),
    "a library in a folder of anyone": (
        lambda r: with_variables(r, LD_PRELOAD="/tmp/evil/libtcmalloc.so.4"),
        "LD_PRELOAD loads /tmp/evil/libtcmalloc.so.4, which lies in no folder of libraries",
    ),
    "a library by way of a folder of libraries": (
        lambda r: with_variables(r, LD_PRELOAD="/usr/lib/../../tmp/libtcmalloc.so.4"),
        "lies in no folder of libraries",
    ),
    "a library in the folder where one stands": (
        lambda r: with_variables(r, LD_PRELOAD="./libtcmalloc.so.4"),
        "lies in no folder of libraries",
    ),
    "another package": (
        lambda r: with_package(r, "libmimalloc.so", "evil-package==1"),
        "[packages] has evil-package for libmimalloc.so, which cmeel-mimalloc brings",
    ),
    "a package of a library that no package brings": (
        lambda r: msgspec.structs.replace(
            with_variables(r, LD_PRELOAD="libtcmalloc.so"), packages={"libtcmalloc.so": "x==1"}
        ),
        "[packages] has x for libtcmalloc.so, which no package brings",
    ),
    "a package that nothing needs": (
        lambda r: msgspec.structs.replace(r, packages={"libmimalloc.so": "cmeel-mimalloc==3.4.3"}),
        "[packages] has libmimalloc.so, which LD_PRELOAD does not name",
    ),
    "another schema": (
        lambda r: msgspec.structs.replace(r, schema_version=3),
        "its schema_version is 3; this version reads 1 and 2",
    ),
    "CPUs without end": (
        lambda r: msgspec.structs.replace(r, placements=[Placement("0-99999999999")]),
        "names the CPUs 0-99999999999, which no machine has",
    ),
    "CPUs in the wrong order": (
        lambda r: msgspec.structs.replace(r, placements=[Placement("3-1")]),
        "names no CPU: 3-1",
    ),
    "a placement more": (
        lambda r: msgspec.structs.replace(r, placements=[*r.placements, Placement("3")]),
        "it has 3 placements for 2 instances",
    ),
}


@pytest.mark.parametrize(("change", "said"), FAULTS.values(), ids=FAULTS)
def test_what_no_study_can_have_written_is_refused(
    sound: Recommendation, change: Callable[[Recommendation], Recommendation], said: str
) -> None:
    assert said in (fault_of(change(sound)) or "")


IMPOSSIBLE: dict[str, tuple[str, dict[str, Any], str]] = {
    "freedom below none": ("claim", {"launch_freedom": -1}, "claim.launch_freedom is -1"),
    "rounds below none": ("claim", {"n_rounds": -4}, "claim.n_rounds is -4"),
    "bytes below none": ("", {"memory_bytes": -5}, "memory_bytes is -5"),
    "no core": ("host", {"physical_cores": 0}, "host.physical_cores is 0"),
    "no CPU": ("host", {"cpus": 0}, "host.cpus is 0"),
    "no thread": ("host", {"threads_per_core": 0}, "host.threads_per_core is 0"),
    "faster, and by nothing": ("claim", {"speedup": None}, "is 'faster' and has no speedup"),
    "a point outside": ("claim", {"speedup": Interval(3.0, 1.4, 1.6, 0.95)}, "is no interval"),
    "a low above its high": ("claim", {"speedup": Interval(1.5, 1.6, 1.4, 0.95)}, "no interval"),
    "a surety above 1": ("claim", {"speedup": Interval(1.5, 1.4, 1.6, 95.0)}, "no interval"),
    "a boundless high": ("claim", {"speedup": Interval(1.5, 1.4, 1e9, 0.95)}, "claim.speedup.high"),
    "a scatter below none": ("claim", {"launch_sd": -0.1}, "claim.launch_sd is -0.1"),
    "another scenario": (
        "workload",
        {"scenario": "clients"},
        "scenario is 'clients'; allowed are: ",
    ),
    "another metric": ("claim", {"metric": "joy"}, "claim.metric is 'joy'; allowed are: "),
    "a bound of nothing": (
        "",
        {"bounds": [Bound("memory", 0.0, "--max-memory 0G")]},
        "its bound on memory is 0.0",
    ),
    "another form": ("workload", {"form": "weird"}, "form is 'weird'; allowed are: code, script"),
    "other numerics": ("tolerances", {"numerics": "nonsense"}, "numerics is 'nonsense'"),
    "a drift below none": ("tolerances", {"max_drift": -1.0}, "tolerances.max_drift is -1.0"),
    "a loss below none": ("tolerances", {"max_accuracy_loss": -0.1}, "max_accuracy_loss is -0.1"),
}


@pytest.mark.parametrize(("part", "changes", "said"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_what_contradicts_itself_is_refused(
    tmp_path: Path, sound: Recommendation, part: str, changes: dict[str, Any], said: str
) -> None:
    if part:
        changes = {part: msgspec.structs.replace(getattr(sound, part), **changes)}
    write_recommendation(tmp_path / "recommended.toml", msgspec.structs.replace(sound, **changes))
    with pytest.raises(UsageError, match="is not a recommendation") as refused:
        read_recommended(tmp_path)
    assert said in str(refused.value)


@pytest.mark.parametrize("batch", [0, -7, 10**12])
@pytest.mark.parametrize("where", ["batch", "default_batch"])
def test_a_batch_is_one_of_the_catalogue_where_no_setting_says_it_too(
    sound: Recommendation, where: str, batch: int
) -> None:
    settings = [s for s in sound.settings if s.knob != "workload.batch"]
    workload = msgspec.structs.replace(sound.workload, **{where: batch})
    changed = msgspec.structs.replace(sound, settings=settings, workload=workload)
    said = f"its {where} is {batch}, and workload.batch cannot be {batch}"
    assert said in (fault_of(changed) or "")


def test_a_verified_model_is_called_as_it_was_tuned(
    tmp_path: Path,
    sound: Recommendation,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One batch alone where none else was claimed, along the dimension that the user named."""
    monkeypatch.setattr(tuner.app.verify, "refused_here", lambda *_: None)  # whatever this host has
    asked: list[Request] = []

    def plan(request: Request, *_: Any, **__: Any) -> None:
        asked.append(request)
        raise UsageError("enough is known")

    monkeypatch.setattr(tuner.app.verify, "plan", plan)
    settings = [s for s in sound.settings if s.knob != "workload.batch"]
    for batch, default_batch in ((1, 1), (1, 4)):
        workload = msgspec.structs.replace(
            sound.workload, batch=batch, default_batch=default_batch, batch_dim=1
        )
        changed = msgspec.structs.replace(sound, settings=settings, workload=workload)
        write_recommendation(tmp_path / "recommended.toml", changed)
        with pytest.raises(UsageError, match="enough is known"):
            run_verify(VerifyRequest(tmp_path / "recommended.toml", 60.0), lambda event: None)
    assert [(each.batch, each.batch_dim) for each in asked] == [(1, 1), (None, 1)]


def test_too_little_time_to_verify_is_refused_before_a_worker_starts(
    tmp_path: Path, sound: Recommendation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuner.app.verify, "refused_here", lambda *_: None)  # whatever this host has
    write_recommendation(tmp_path / "recommended.toml", sound)
    with pytest.raises(UsageError, match="--budget 20s is too short to measure anything"):
        run_verify(VerifyRequest(tmp_path / "recommended.toml", 20.0), lambda event: None)


def test_every_command_refuses_it(tmp_path: Path, sound: Recommendation) -> None:
    path = tmp_path / "recommended.toml"
    write_recommendation(path, with_setting(sound, "torch.memory_format", knob="torch.nosuch"))
    said = f"{path} is not a recommendation: there is no knob 'torch.nosuch'"
    for reads in (
        lambda: tuner.apply(path),
        lambda: run_verify(VerifyRequest(path, 1.0), lambda event: None),
        lambda: export.main(path, "python", None, ()),
    ):
        with pytest.raises(UsageError, match=said):
            reads()
    with pytest.raises(CannotRun, match=said):
        cli_run.main(str(path), ["true"], model="", framework="", quiet=True)
