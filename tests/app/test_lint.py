"""A launch file held against this host, and against guidelines."""

import functools
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.command import Here
from tests.space.spaces import TENSORFLOW_DEFAULTS, TORCH_DEFAULTS, model
from tests.wants import needs
from tuner.app import plan
from tuner.app.lint import Note
from tuner.cli.lint import GAPS, KINDS, NOTES, REASONS
from tuner.deploy.launched import Gap
from tuner.deploy.lint_finding import Kind, Why
from tuner.galleries import MODELS
from tuner.launchers.describe import describe_model, find_model
from tuner.record.guidelines import GUIDELINES_VERSION, Guidelines, Rule, write_as_json
from tuner.record.interval import Interval
from tuner.space.as_run import Cause

TOLD = {
    "torch": model(TORCH_DEFAULTS),
    "tensorflow": model(TENSORFLOW_DEFAULTS),
}
"""What a build of each framework reports; a slow test below compares it with real builds."""


@pytest.fixture(autouse=True, scope="module")
def told_beforehand() -> Iterator[None]:
    """What is known of the model that lint builds without building it."""
    found = functools.cache(lambda name: find_model(name, MODELS))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("tuner.app.plan.find_model", lambda name, *given, **more: found(name))
        patched.setattr(
            "tuner.app.plan.describe_model", lambda ref, framework, *given: TOLD[framework]
        )
        yield


def rule(setting: str, advice: Any, mean: float) -> Rule:
    interval = Interval(math.exp(mean), math.exp(mean - 0.1), math.exp(mean + 0.1), 0.95)
    return Rule(
        "torch", setting, None, mean, 0.05, 5, interval, interval, advice, {}, 2, ["a", "b"]
    )


def write_rules(folder: Path) -> None:
    """Guidelines of no study: what lint makes of rules does not depend on where they come from."""
    rules = [
        rule("allocator", "set", 0.1),
        rule("instances", "set", 0.3),  # which no launch file tells
        rule("threads", "leave", -0.2),
        rule("layout", "set", 1.0),
    ]
    write_as_json(
        folder / "guidelines.json", Guidelines(GUIDELINES_VERSION, "0", "", {}, {}, {}, [], rules)
    )


def linted(here: Here, text: str, name: str = "serve.sh", *more: str) -> dict[str, Any]:
    """Lint a file for PyTorch on a target of two CPUs, whatever this host has."""
    Path(name).write_text(text)
    write_rules(Path.cwd())
    framework = () if "--framework" in more else ("--framework", "torch")
    cpus = () if "--cpus" in more or "--image" in more else ("--cpus", "2")
    done = here("lint", name, *framework, *cpus, "--guidelines", ".", *more, "--json")
    assert done.returncode in (0, 4), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (4 if faults(found) else 0)
    return found


def faults(found: dict[str, Any]) -> dict[str, tuple[str, int]]:
    """What is wrong, by what it is about: its reason and its line."""
    return {each["what"]: (each["why"], each["line"]) for each in found["findings"]
            if each["severity"] == "fault"}  # fmt: skip


def notes(found: dict[str, Any]) -> dict[str, str]:
    return {each["what"]: each["why"] for each in found["findings"]
            if each["severity"] == "note" and each["kind"] != "missed"}  # fmt: skip


def listed(found: dict[str, Any]) -> list[tuple[int, str]]:
    return [(each["line"], each["gap"]) for each in found["not_understood"]]


AFFINITY = "granularity=fine,compact,1,0"


# ------------------------------------------------------------------ files that people publish


def test_a_variable_that_is_exported_again_and_a_placement_in_a_variable(here: Here) -> None:
    found = linted(
        here,
        "LAST=`expr $N - 1`\nKMP_BLOCKTIME=1\nBIND='numactl -C 0-'$LAST' -m 0'\n"
        "export KMP_BLOCKTIME=$KMP_BLOCKTIME\nOMP_NUM_THREADS=$N $BIND python bench.py\n",
    )
    assert faults(found) == {"KMP_BLOCKTIME=1": ("ineffective", 4)}
    assert listed(found) == [(5, "not_set_here"), (5, "computed")]


def test_a_setting_that_is_exported_by_way_of_a_variable(here: Here) -> None:
    found = linted(
        here, f"KMP_SETTING='KMP_AFFINITY={AFFINITY}'\nexport $KMP_SETTING\npython serve.py\n"
    )
    assert faults(found) == {f"KMP_AFFINITY={AFFINITY}": ("ineffective", 2)}


def test_variables_that_nothing_reads_any_more(here: Here) -> None:
    text = (
        "FROM tensorflow/tensorflow\nENV MKLDNN_VERBOSE=0\nENV VECLIB_MAXIMUM_THREADS=1\n"
        "ENV MKL_DEBUG_CPU_TYPE=5\nENV TF_XLA_FLAGS=--tf_xla_cpu_global_jit\n"
        "ENV TF_ENABLE_ONEDNN_OPTS=1\n"
    )
    found = linted(here, text, "Dockerfile", "--framework", "tensorflow", "--image")
    assert {what: why for what, (why, _) in faults(found).items()} == {
        "MKLDNN_VERBOSE=0": "unread",
        "VECLIB_MAXIMUM_THREADS=1": "unread",
        "MKL_DEBUG_CPU_TYPE=5": "unread",
        "TF_XLA_FLAGS=--tf_xla_cpu_global_jit": "unread",
    }
    assert all(each["reason"] for each in found["findings"])
    both = text.replace("global_jit", 'global_jit --tf_xla_auto_jit=2"').replace("=--", '="--')
    again = linted(here, both, "Dockerfile", "--framework", "tensorflow", "--image")
    assert not any(what.startswith("TF_XLA_FLAGS") for what in faults(again))


def test_a_container_that_a_script_starts_with_options_in_a_variable(here: Here) -> None:
    found = linted(
        here,
        "#!/bin/sh\nTUNING='-e OMP_NUM_THREADS=2 -e KMP_BLOCKTIME=0'\n"
        "nohup docker run --name scorer $TUNING --cpus 1 --cpuset-cpus 0-3 image >out 2>&1 &\n",
    )
    assert faults(found) == {
        "OMP_NUM_THREADS=2": ("threads", 3),
        "--cpuset-cpus 0-3": ("cpus", 3),
        "KMP_BLOCKTIME=0": ("ineffective", 3),
    }
    assert {each["where"] for each in found["findings"]} == {"scorer"}


def test_preloads_that_are_appended_in_an_image(here: Here) -> None:
    """None of them is on this host, which does not matter: the image has them."""
    name = "LD_PRELOAD"
    text = "FROM x AS base\nFROM base AS serve\nENV KMP_BLOCKTIME=0 MALLOC_CONF=thp:never\n"
    for library in ("libiomp5", "libown", "libjemalloc"):
        text += f"ENV {name}=/nowhere/{library}.so${{{name}:+:${{{name}}}}}\n"
    found = linted(here, text, "gpu.Dockerfile", "--image")
    assert faults(found) == {}
    assert notes(found) == {"LD_PRELOAD=/nowhere/libown.so": "unknown_library"}
    assert found["not_understood"] == []


def test_another_name_of_a_setting_keeps_its_name_and_line(here: Here) -> None:
    found = linted(
        here,
        'OMP_NUM_THREADS="2"\nMKL_NUM_THREADS=1 # BLAS\nDNNL_MAX_CPU_ISA=banana\n',
        "zen.env",
    )
    assert faults(found) == {"OMP_NUM_THREADS=2": ("overridden", 1)}
    (hurting,) = [each for each in found["findings"] if each["kind"] == "hurts"]
    assert (hurting["what"], hurting["line"]) == ("MKL_NUM_THREADS=1", 2)


def test_slips_of_known_names_are_faults(here: Here) -> None:
    found = linted(
        here,
        "KMP_AFINITY=compact\nOMP_NUM_THREAD=2\nKMP_SETTING=1\nOPM_NUM_THREADS=2\n"
        "KMP_SETTINGS=1\nKMP_FORKJOIN_BARRIER=1,1\nOMP_NUM_TEAMS=2\nMKL_DYNAMIC=TRUE\n"
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\nMY_NUM_THREADS=2\n",
        "x.env",
    )
    wrong = [each for each in found["findings"] if each["why"] == "misspelt"]
    assert {each["name"]: each["detail"] for each in wrong} == {
        "KMP_AFINITY": "KMP_AFFINITY",
        "OMP_NUM_THREAD": "OMP_NUM_THREADS",
        "KMP_SETTING": "KMP_SETTINGS",
        "OPM_NUM_THREADS": "OMP_NUM_THREADS",
    }
    assert faults(found)["PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"][0] == "irrelevant"


def test_a_slip_that_is_not_exported_is_a_slip_first(here: Here) -> None:
    found = linted(here, "#!/bin/sh\nOMP_NUM_THREAD=4\nMKL_NUM_THREADS=2\npython a.py\n", "x.sh")
    whys = {each["name"]: each["why"] for each in found["findings"]}
    assert (whys["OMP_NUM_THREAD"], whys["MKL_NUM_THREADS"]) == ("misspelt", "not_exported")


def test_a_unit_binds_and_limits_what_it_starts(here: Here) -> None:
    found = linted(
        here,
        "[Service]\nEnvironment=OMP_NUM_THREADS=2 KMP_BLOCKTIME=0\nEnvironmentFile=-/etc/x\n"
        "ExecStart=/usr/bin/taskset -c 0-15 \\\n  python serve.py\nCPUAffinity=0-15\n"
        "CPUQuota=150%\n",
        "x.service",
    )
    assert faults(found) == {
        "OMP_NUM_THREADS=2": ("threads", 2),
        "KMP_BLOCKTIME=0": ("ineffective", 2),
        "taskset 0-15": ("cpus", 4),
        "CPUAffinity=0-15": ("cpus", 6),
    }
    (threads,) = [each for each in found["findings"] if each["why"] == "threads"]
    assert (threads["granted"], threads["detail"]) == (1.5, "CPUQuota=150%")
    assert listed(found) == [(3, "elsewhere")]


def test_services_with_limits_of_their_own(here: Here) -> None:
    found = linted(
        here,
        "services:\n  speech:\n    environment:\n    - MKL_NUM_THREADS=${MKL_NUM_THREADS:-8}\n"
        "    deploy: {resources: {limits: {cpus: '1'}}}\n  embed:\n    cpus: 0.5\n"
        "    cpuset: 0-7\n    command: taskset -c 0-7 python\n"
        "    environment: {OMP_NUM_THREADS: 1}\n",
        "compose.yml",
    )
    assert faults(found) == {
        "MKL_NUM_THREADS=8": ("threads", 4),
        "cpuset 0-7": ("cpus", 8),
        "taskset 0-7": ("cpus", 9),
        "OMP_NUM_THREADS=1": ("threads", 10),
    }
    (speech,) = [each for each in found["findings"] if each["name"] == "MKL_NUM_THREADS"]
    assert speech["where"] == "speech"
    assert speech["reason"].startswith("8 unless MKL_NUM_THREADS is set; cpus: 1 grants 1 CPUs")


@pytest.mark.parametrize("then", ["then", "do"])
def test_what_depends_on_a_preload_that_is_not_known_is_no_fault(here: Here, then: str) -> None:
    """Also where the grammar is broken: people publish such files."""
    found = linted(
        here,
        f"f=$CONDA_PREFIX/lib/libiomp5.so\nif [ -f $f ]; {then}\n  export LD_PRELOAD=$f\n"
        f"  export KMP_AFFINITY={AFFINITY}\nfi\nexport MALLOC_CONF=thp:never\n",
    )
    assert faults(found) == {"MALLOC_CONF=thp:never": ("ineffective", 6)}  # that is no jemalloc
    assert notes(found) == {f"KMP_AFFINITY={AFFINITY}": "preload"}
    unknown = linted(here, "export LD_PRELOAD=$ALL\nexport KMP_BLOCKTIME=1 MALLOC_CONF=thp:never\n")
    assert set(notes(unknown).values()) == {"preload"} and not faults(unknown)


def test_a_preload_is_known_by_its_name_where_its_folder_is_not(here: Here) -> None:
    found = linted(
        here,
        "export LD_PRELOAD=${LD_PRELOAD}:${CONDA_PREFIX}/lib/libiomp5.so\n"
        "export LD_PRELOAD=${LD_PRELOAD}:${CONDA_PREFIX}/lib/libjemalloc.so\n"
        f"export MALLOC_CONF=thp:never KMP_BLOCKTIME=1 KMP_AFFINITY={AFFINITY}\n"
        "export OMP_NUM_THREADS=2\nnumactl -m 0 -C 0-1 python serve.py\n",
    )
    assert faults(found) == {}
    assert {gap for _, gap in listed(found)} == {"not_set_here"}


def test_defaults_are_judged_as_defaults(here: Here) -> None:
    found = linted(
        here,
        "export OMP_NUM_THREADS=${OMP_NUM_THREADS:-16}\n"
        "export OMP_PROC_BIND=${OMP_PROC_BIND:-true}\n",
    )
    assert faults(found) == {"OMP_NUM_THREADS=16": ("threads", 1)}
    (finding,) = [each for each in found["findings"] if each["severity"] == "fault"]
    assert finding["reason"].startswith("16 unless OMP_NUM_THREADS is set")


def test_settings_and_a_placement_that_are_expanded_later(here: Here) -> None:
    found = linted(
        here,
        "#!/bin/bash\nENVS='OMP_NUM_THREADS=16 KMP_AFFINITY=compact'\nPIN='taskset -c 0-15'\n"
        "env $ENVS $PIN python serve.py\n",
    )
    assert faults(found) == {
        "OMP_NUM_THREADS=16": ("threads", 4),
        "KMP_AFFINITY=compact": ("ineffective", 4),
        "taskset 0-15": ("cpus", 4),
    }


def test_a_preload_that_is_appended_contradicts_nothing(here: Here) -> None:
    for text in (
        "export LD_PRELOAD=libc.so.6\nexport LD_PRELOAD=${LD_PRELOAD}:libm.so.6\n",
        "export LD_PRELOAD=libm.so.6${LD_PRELOAD:+:${LD_PRELOAD}}\n",
    ):
        found = linted(here, text)
        assert faults(found) == {} and found["not_understood"] == []
        assert set(notes(found).values()) == {"unknown_library"}


def test_no_threads_are_no_number(here: Here) -> None:
    found = linted(here, "FROM x\nENV OMP_NUM_THREADS=0 \n", "Dockerfile")
    assert faults(found) == {"OMP_NUM_THREADS=0": ("no_number", 2)}


# ------------------------------------------------------------------ what it is judged for


def test_an_image_is_judged_without_this_host(here: Here) -> None:
    text = (
        "FROM x\nENV OMP_NUM_THREADS=4000 LD_PRELOAD=/nowhere/libtcmalloc.so\n"
        "CMD taskset -c 0-4000 x\n"
    )
    found = linted(here, text, "Dockerfile", "--image")
    assert faults(found) == {} and found["notes"]["image"] == ""
    assert set(faults(linted(here, text, "Dockerfile", "--cpus", "64"))) == {
        "OMP_NUM_THREADS=4000", "taskset 0-4000",
    }  # fmt: skip
    Path("serve.sh").write_text("export LD_PRELOAD=/nowhere/libtcmalloc.so\n")
    on_host = linted(here, Path("serve.sh").read_text())
    assert faults(on_host) == {"LD_PRELOAD=/nowhere/libtcmalloc.so": ("no_file", 1)}
    assert faults(linted(here, Path("serve.sh").read_text(), "serve.sh", "--image")) == {}


def test_the_memory_of_the_target(here: Here) -> None:
    text = (
        f"services:\n  a:\n    mem_limit: 8g\n    environment:\n"
        f"      TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES: {6 * 2**30}\n"
        "      LD_PRELOAD: libtcmalloc.so\n"
    )
    small = linted(here, text, "compose.yaml", "--cpus", "2", "--memory", "4G")
    assert [why for why, _ in faults(small).values()] == ["memory", "memory"]
    assert faults(linted(here, text, "compose.yaml", "--cpus", "2", "--memory", "16G")) == {}


def test_workers_of_torchserve_beyond_the_cpus(here: Here) -> None:
    found = linted(here, "default_workers_per_model=8\n", "config.properties")
    assert faults(found) == {"default_workers_per_model=8": ("workers", 1)}


def test_a_file_that_sets_nothing_is_no_launch_file(here: Here) -> None:
    readme = "# A tool\n\n`it's` fast (see *this*), and\n`taskset` is not needed:\n`$X serve`\n"
    for name, text in (("serve.sh", "PORT=80 python serve.py\n"), ("x.yaml", "a: 1\n"),
                       ("serve.py", (Path(__file__).parents[1] / "command.py").read_text()),
                       ("README.md", readme), ("broken.sh", "if )(\n"),
                       ("x.env", ""), ("Dockerfile", "FROM x\nCMD python\n")):  # fmt: skip
        Path(name).write_text(text)
        done = here("lint", name)
        assert done.returncode == 2 and "is no launch file" in done.stderr


def test_nothing_is_called_right_that_was_not_understood(here: Here) -> None:
    Path("serve.sh").write_text("env $SETTINGS python serve.py\n")
    done = here("lint", "serve.sh", "--framework", "torch")
    assert done.returncode == 0
    assert "line 1: not understood: $SETTINGS (it may hold settings)" in done.stdout
    assert done.stdout.splitlines()[-1].endswith(
        "nothing wrong in what was understood; 1 is not understood"
    )


# ------------------------------------------------------------------ the rest


def test_more_than_there_is(here: Here) -> None:
    found = linted(
        here, "export OMP_NUM_THREADS=3\nexport GOMP_CPU_AFFINITY='0-5'\nOMP_NUM_THREADS=4 a\n"
    )
    assert faults(found) == {
        "OMP_NUM_THREADS=3": ("threads", 1),
        "GOMP_CPU_AFFINITY=0-5": ("cpus", 2),
        "OMP_NUM_THREADS=4": ("threads", 3),
    }


def test_a_pod_with_more_threads_than_its_limit(here: Here) -> None:
    pod = (
        "containers:\n- name: server\n  resources: {limits: {cpu: 500m}}\n"
        "  env:\n  - {name: OMP_NUM_THREADS, value: '1'}\n"
    )
    found = linted(here, pod, "pod.yaml", "--image")
    (finding,) = [each for each in found["findings"] if each["kind"] == "beyond"]
    assert finding["where"] == "server"
    assert finding["reason"] == "cpu: 500m grants 0.5 CPUs: threads wait for each other"


def test_what_contradicts_itself(here: Here) -> None:
    found = linted(
        here,
        "export OMP_NUM_THREADS=1\nexport OMP_NUM_THREADS=2\n"
        "export GOMP_CPU_AFFINITY=0\nexport OMP_PLACES=cores OMP_PROC_BIND=true\n",
    )
    wrong = [each["what"] for each in found["findings"] if each["kind"] == "contradiction"]
    assert wrong == ["OMP_NUM_THREADS=2", "OMP_PLACES=cores"]


def test_branches_and_single_commands_do_not_contradict_each_other(here: Here) -> None:
    found = linted(
        here,
        "if true; then export OMP_NUM_THREADS=1; else export OMP_NUM_THREADS=2; fi\n"
        "KMP_AFFINITY=compact python a.py\nGOMP_CPU_AFFINITY=0 python b.py\n"
        "export OMP_THREAD_LIMIT=1024\n",
    )
    assert not [s for s in found["findings"] if s["kind"] in ("contradiction", "beyond")]


def test_a_command_of_a_unit_that_another_sets_otherwise_is_judged_by_itself(here: Here) -> None:
    found = linted(
        here,
        "[Service]\nExecStartPre=/usr/bin/env OMP_NUM_THREADS=64 python a\n"
        "ExecStart=/usr/bin/env OMP_NUM_THREADS=1 python b\n",
        "x.service",
    )
    assert faults(found) == {"OMP_NUM_THREADS=64": ("threads", 2)}


def test_bytes_of_ten_digits_are_a_number(here: Here) -> None:
    text = "TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES=8589934592\n"
    found = linted(here, text, "x.env", "--image")
    assert "no_number" not in {each["why"] for each in found["findings"]}


def test_libraries_that_are_hidden_are_not_found(
    here: Here, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "libjemalloc.so.2").touch()
    monkeypatch.setattr("tuner.host.libraries._system_folders", lambda root: [tmp_path])
    text = "export LD_PRELOAD=libjemalloc.so.2\n"
    monkeypatch.delenv("TUNE_FRAMEWORK_TEST_LIBRARIES", raising=False)
    assert "no_library" not in {each["why"] for each in linted(here, text)["findings"]}
    monkeypatch.setenv("TUNE_FRAMEWORK_TEST_LIBRARIES", "none")
    assert "no_library" in {each["why"] for each in linted(here, text)["findings"]}


def test_what_the_shell_keeps_to_itself_has_no_effect(here: Here) -> None:
    found = linted(here, "OMP_NUM_THREADS=4000\nPORT=80\npython serve.py\n")
    assert faults(found) == {"OMP_NUM_THREADS=4000": ("not_exported", 1)}


def test_a_library_without_a_path_is_looked_for_where_the_linker_does(here: Here) -> None:
    found = linted(here, "export LD_PRELOAD=libnothing.so:libc.so.6\n")
    assert faults(found) == {"LD_PRELOAD=libnothing.so": ("no_library", 1)}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("OMP_NUM_THREADS=two", "unusable"),
        ("MKL_NUM_THREADS=0", "unusable"),
        ("TF_ENABLE_ONEDNN_OPTS=true", "unknown"),
    ],
)
def test_what_is_no_number(here: Here, text: str, kind: str) -> None:
    framework = "torch" if kind == "unusable" else "tensorflow"
    found = linted(here, text + "\n", "x.env", "--framework", framework)
    own = [s for s in found["findings"] if s["kind"] != "missed"]
    assert [(each["kind"], each["line"], each["what"]) for each in own] == [(kind, 1, text)]


def test_guidelines_that_are_missed_and_acted_against(here: Here) -> None:
    found = linted(here, "export OMP_NUM_THREADS=1\n")
    (hurting,) = [each for each in found["findings"] if each["kind"] == "hurts"]
    assert (hurting["what"], hurting["line"]) == ("OMP_NUM_THREADS=1", 1)
    assert not faults(found) and "other_hosts" in found["notes"]  # others' guidelines only advise
    missed = [each for each in found["findings"] if each["kind"] == "missed"]
    assert all("5 families" in each["reason"] for each in missed)
    assert not any("memory_format" in each["what"] for each in missed)  # no launch file can set it


def test_a_clean_file_ends_with_0(here: Here) -> None:
    found = linted(
        here, "PORT=80\nPASSWORD=hunter2\nexport TF_X_TOKEN=hunter2\nexport A_TOKEN='hunter2\n"
    )
    assert not faults(found)
    assert found["n_settings"] == 1
    assert "hunter2" not in json.dumps(found)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("lint", "nothing.sh"), "cannot read nothing.sh"),
        (("lint", "bad.yaml"), "is no YAML"),
        (("lint", "recommended.toml"), "is no launch file"),
        (("lint", "good.sh", "--memory", "4"), "lacks its K, M, G or T"),
        (("lint", "good.sh", "--framework", "jax"), "unknown value of --framework 'jax'"),
        (("lint", "good.sh", "--guidelines", "nowhere"), "cannot read nowhere"),
    ],
)
def test_bad_input_is_one_line(here: Here, arguments: tuple[str, ...], told: str) -> None:
    Path("bad.yaml").write_text("a: [")
    Path("good.sh").write_text("export OMP_NUM_THREADS=1\n")
    done = here(*arguments)
    assert done.returncode == 2
    assert told in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_nothing_of_the_file_is_executed(here: Here) -> None:
    linted(
        here,
        "touch was_executed\nexport OMP_NUM_THREADS=$(touch was_executed)\n`touch was_executed`\n"
        "eval 'touch was_executed'\n",
    )
    assert not Path("was_executed").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "framework", [pytest.param(name, marks=needs(name)) for name in ("torch", "tensorflow")]
)
def test_a_framework_that_builds_a_model_tells_the_same(
    here: Here, framework: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which variables a build reads, and what is in force with nothing set, it alone can tell.

    But TensorFlow decides by the processor whether oneDNN is on: where it is off, setting it is no
    repetition of the default.
    """
    text = (
        "OMP_NUM_THREADS=2\nKMP_BLOCKTIME=1\nKMP_AFFINITY=compact\nGOMP_SPINCOUNT=0\n"
        "TF_ENABLE_ONEDNN_OPTS=1\nTF_NUM_INTEROP_THREADS=two\nMKLDNN_VERBOSE=0\n"
    )
    told = linted(here, text, "x.env", "--framework", framework)
    monkeypatch.setattr(plan, "describe_model", describe_model)
    monkeypatch.setattr(plan, "find_model", find_model)
    built = linted(here, text, "x.env", "--framework", framework)
    assert faults(told)
    if framework == "tensorflow" and "TF_ENABLE_ONEDNN_OPTS=1" not in notes(built):
        repeated = [each for each in told["findings"] if each["name"] == "TF_ENABLE_ONEDNN_OPTS"]
        assert [each["why"] for each in repeated] == ["default"]
        told["findings"].remove(repeated[0])
    assert built == told


def test_every_reason_has_its_sentence() -> None:
    assert set(REASONS) == {*Cause, *Why} - {Cause.STANDS_IN}
    assert (set(KINDS), set(GAPS), set(NOTES)) == (set(Kind), set(Gap), set(Note))
