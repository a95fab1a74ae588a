"""Every warning of doctor is provoked: by a real circumstance where one can be made, else by a
machine of which only /proc and /sys exist."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.command import Here
from tests.host.machine import build, described, raise_tree, write
from tuner.host.checks import examine, look_around
from tuner.host.finding import Finding, Surroundings
from tuner.host.identity import Host, Observations, probe
from tuner.record.launch import Interference

LIBRARIES = {
    "tcmalloc": "a", "jemalloc": "b", "mimalloc": "c", "libnuma": "d", "libomp": "e",
}  # fmt: skip


def surroundings(root: Path, cpus: int = 2) -> Surroundings:
    """Return a faultless place: every test spoils one thing."""
    host = probe(root, allowed=tuple(range(cpus)))
    sound = msgspec.structs.replace(
        host,
        libraries=LIBRARIES,
        cxx="/usr/bin/g++",
        observations=Observations(
            memory_available_bytes=32 << 30,
            swap_used_bytes=0,
            load_1min=0.0,
            frequency_mhz=3000.0,
            governor="performance",
            turbo=False,
            transparent_huge_pages="madvise",
        ),
    )
    return msgspec.structs.replace(
        look_around(sound, root, environment={}, root=root, seconds=0.0),
        frameworks=("torch", "tensorflow"),
        disk_free_bytes=100 << 30,
        idle=Interference(),
    )


def findings(seen: Surroundings) -> dict[str, Finding]:
    return {finding.id: finding for finding in examine(seen)}


def test_a_faultless_place_has_no_finding(tmp_path: Path) -> None:
    assert findings(surroundings(build(tmp_path))) == {}


def observed(**changes: object) -> Callable[[Surroundings], Surroundings]:
    def spoil(seen: Surroundings) -> Surroundings:
        observations = msgspec.structs.replace(seen.host.observations, **changes)
        return msgspec.structs.replace(
            seen, host=msgspec.structs.replace(seen.host, observations=observations)
        )

    return spoil


def host_with(**changes: object) -> Callable[[Surroundings], Surroundings]:
    def spoil(seen: Surroundings) -> Surroundings:
        host: Host = msgspec.structs.replace(seen.host, **changes)
        return msgspec.structs.replace(seen, host=host)

    return spoil


def seen_with(**changes: object) -> Callable[[Surroundings], Surroundings]:
    return lambda seen: msgspec.structs.replace(seen, **changes)


def without(library: str) -> Callable[[Surroundings], Surroundings]:
    return host_with(libraries={k: v for k, v in LIBRARIES.items() if k != library})


SPOILED = {
    "no_torch": (seen_with(frameworks=("tensorflow",)), "pip install"),
    "no_tensorflow": (seen_with(frameworks=("torch",)), "pip install"),
    "no_cxx": (host_with(cxx=None), "apt-get install g++"),
    "no_tcmalloc": (without("tcmalloc"), "libtcmalloc-minimal4"),
    "no_jemalloc": (without("jemalloc"), "libjemalloc2"),
    "no_mimalloc": (without("mimalloc"), "pip install cmeel-mimalloc"),
    "no_libnuma": (without("libnuma"), "libnuma1"),
    "no_openmp": (without("libomp"), "libomp5"),
    "governor": (observed(governor="powersave"), "cpupower"),
    "turbo": (observed(turbo=True), "no_turbo"),
    "memory": (observed(memory_available_bytes=1 << 30), "ps aux"),
    "swap": (observed(swap_used_bytes=5 << 20), "swapoff"),
    "no_huge_pages": (observed(transparent_huge_pages="never"), "madvise"),
    "busy": (seen_with(idle=Interference(foreign=0.4)), "end them"),
    "steal": (seen_with(idle=Interference(steal=0.1)), "dedicated"),
    "no_pressure": (seen_with(has_pressure=False), "psi=1"),
    "clock": (seen_with(clock_source="hpet"), "current_clocksource"),
    "environment": (seen_with(environment={"OMP_NUM_THREADS": "3"}), "unset OMP_NUM_THREADS"),
    "unwritable": (seen_with(is_writable=False), "--out"),
    "disk": (seen_with(disk_free_bytes=1 << 20), "make room"),
}


def test_what_pip_installed_in_vain_is_told_with_what_mends_it(tmp_path: Path) -> None:
    why = "cmeel-mimalloc==3.4.3 is installed, but libatomic.so.1 is missing"
    spoil = host_with(
        libraries={k: v for k, v in LIBRARIES.items() if k != "mimalloc"},
        unusable={"mimalloc": f"{why}: apt-get install libatomic1"},
    )
    (found,) = findings(spoil(surroundings(build(tmp_path)))).values()
    assert found.id == "no_mimalloc"
    assert why in found.message
    assert found.remedy == "apt-get install libatomic1"


def test_without_pytorch_no_openmp_is_missed(tmp_path: Path) -> None:
    seen = surroundings(build(tmp_path))
    bare = seen_with(frameworks=("tensorflow",))(without("libomp")(seen))
    assert list(findings(bare)) == ["no_torch"]


@pytest.mark.parametrize("id", SPOILED)
def test_each_fault_gives_its_finding_alone(id: str, tmp_path: Path) -> None:
    spoil, remedy = SPOILED[id]
    found = findings(spoil(surroundings(build(tmp_path))))
    assert list(found) == [id]
    assert remedy in found[id].remedy


@pytest.mark.parametrize(
    ("names", "ending"),
    [
        (
            ["OMP_NUM_THREADS"],
            "process; OMP_NUM_THREADS measured as a baseline of its own, as_you_run_it",
        ),
        (
            ["CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "TF_CPP_MIN_LOG_LEVEL"],
            "process; OMP_NUM_THREADS measured as a baseline of its own, as_you_run_it",
        ),
        (["CUDA_VISIBLE_DEVICES"], "process; none can change how fast a CPU computes"),
    ],
)
def test_only_variables_that_may_change_the_speed_are_said_to_be_measured(
    names: list[str], ending: str, tmp_path: Path
) -> None:
    spoil = seen_with(environment=dict.fromkeys(names, "1"))
    found = findings(spoil(surroundings(build(tmp_path))))["environment"]
    assert found.message.endswith(ending)
    assert found.remedy == f"unset {' '.join(names)}"


def test_faults_of_the_machine_are_read_from_proc_and_sys(tmp_path: Path) -> None:
    root = build(tmp_path, cores=2, threads=2, flags="avx2 hypervisor")
    write(root, "sys/fs/cgroup/cgroup.controllers", "cpu memory")
    write(root, "sys/fs/cgroup/cpu.max", "150000 100000")
    write(root, "sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet")
    write(root, "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave")
    write(root, "sys/devices/system/cpu/intel_pstate/no_turbo", "0")
    write(root, "sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]")
    (root / "proc/pressure/cpu").unlink()
    host = probe(root, allowed=(0, 1, 2))
    found = findings(look_around(host, root, environment={}, root=root, seconds=0.0))
    assert {"smt", "quota", "affinity", "virtual", "clock", "governor", "turbo", "no_pressure",
            "no_huge_pages"} <= found.keys()  # fmt: skip
    assert "1.5 cores of 3 CPUs" in found["quota"].message


def test_efficient_cores_are_told_with_the_mask_that_leaves_them_out(tmp_path: Path) -> None:
    host = probe(raise_tree(tmp_path, described()["core-i7-1370p"]), allowed=tuple(range(20)))
    seen = look_around(host, tmp_path, environment={}, root=tmp_path, seconds=0.0)
    found = findings(seen)["hybrid"]
    assert "8 of 14 cores" in found.message
    assert "taskset -c 0-11 tune-framework" in found.remedy


def test_a_mask_of_one_kind_of_cores_is_no_hybrid(tmp_path: Path) -> None:
    host = probe(raise_tree(tmp_path, described()["core-i7-1370p"]), allowed=tuple(range(12)))
    seen = look_around(host, tmp_path, environment={}, root=tmp_path, seconds=0.0)
    assert "hybrid" not in findings(seen)


def test_cpus_without_memory_of_their_own_are_told(tmp_path: Path) -> None:
    machine = msgspec.structs.replace(described()["xeon-8180m-2s"], mems_allowed="0")
    host = probe(raise_tree(tmp_path, machine), allowed=(28, 29))
    seen = look_around(host, tmp_path, environment={}, root=tmp_path, seconds=0.0)
    found = findings(seen)["remote_memory"]
    assert "NUMA node 1" in found.message
    assert "--cpuset-mems" in found.remedy


def test_every_finding_is_provoked_somewhere(tmp_path: Path) -> None:
    """The tests above name every id that the checks can give."""
    import inspect
    import re

    from tuner.host import checks

    source = inspect.getsource(checks)
    ids = set(re.findall(r'Finding\(\s*"(\w+)"', source))
    packages = ("torch", "tensorflow", "tcmalloc", "jemalloc", "mimalloc", "libnuma")
    ids |= {f"no_{name}" for name in (*packages, "openmp")}
    of_machines = {"smt", "quota", "affinity", "virtual", "hybrid", "remote_memory"}
    assert ids == SPOILED.keys() | of_machines


def test_doctor_sees_a_variable_set_in_the_shell(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KMP_BLOCKTIME", "1")
    done = here("doctor", "--json")
    found = {f["id"]: f for f in json.loads(done.stdout)}
    assert "KMP_BLOCKTIME" in found["environment"]["message"]


def test_doctor_sees_that_the_folder_cannot_be_written(here: Here, tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.touch()
    done = here("doctor", "--json", "--out", str(blocker / "below"))
    assert "unwritable" in {f["id"] for f in json.loads(done.stdout)}


def test_doctor_sees_a_missing_compiler(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    done = here("doctor", "--json")
    assert "no_cxx" in {f["id"] for f in json.loads(done.stdout)}


def test_doctor_sees_a_busy_machine(here: Here) -> None:
    spinners = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in os.sched_getaffinity(0)
    ]
    time.sleep(0.3)
    try:
        done = here("doctor")
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()
    assert "other programs use" in done.stdout
    assert "mend: end them" in done.stdout
