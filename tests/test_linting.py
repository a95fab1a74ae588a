"""A launch file held against this host, and against guidelines."""

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.command import Here
from tuner.host.identity import probe
from tuner.measurement.describe import describe_model
from tuner.record.guidelines import GUIDELINES_VERSION, Guidelines, Rule, write_as_json
from tuner.record.interval import Interval


@pytest.fixture(autouse=True, scope="module")
def described_once() -> Iterator[None]:
    """The model that lint builds to see what is in force here is the same in each of these."""
    known: dict[object, object] = {}

    def described(ref: Any, framework: str, seed: int, waiting: Any, gpu: Any) -> object:
        key = (ref, framework, seed, gpu)
        if key not in known:
            known[key] = describe_model(ref, framework, seed, waiting, gpu)
        return known[key]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("tuner.plan.describe_model", described)
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
    Path(name).write_text(text)
    write_rules(Path.cwd())
    done = here("lint", name, "--framework", "torch", "--guidelines", ".", *more, "--json")
    assert done.returncode in (0, 4), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    found["code"] = done.returncode
    return found


def kinds(found: dict[str, Any]) -> dict[str, str]:
    return {slip["what"]: slip["kind"] for slip in found["slips"]}


def test_a_vendors_script_with_what_nothing_reads(here: Here) -> None:
    """KMP_* without the OpenMP that reads them, and one preload that is not there."""
    found = linted(
        here,
        "export KMP_BLOCKTIME=1\n"
        "export KMP_AFFINITY=granularity=fine,compact,1,0\n"
        "export LD_PRELOAD=/opt/intel/lib/libiomp5.so:$LD_PRELOAD\n"
        "export TF_NUM_INTRAOP_THREADS=2\n"
        "export OMP_NUM_THREADS=$(nproc)\n"
        "python serve.py\n",
    )
    by_what = kinds(found)
    assert by_what["KMP_BLOCKTIME=1"] == "dead"
    assert by_what["KMP_AFFINITY=granularity=fine,compact,1,0"] == "dead"
    assert by_what["LD_PRELOAD=/opt/intel/lib/libiomp5.so"] == "unusable"
    assert by_what["TF_NUM_INTRAOP_THREADS=2"] == "dead"
    lines = {slip["what"]: slip["line"] for slip in found["slips"]}
    assert lines["KMP_BLOCKTIME=1"] == 1
    assert found["not_understood"] == [[5, "OMP_NUM_THREADS (its value is computed)"]]
    assert found["code"] == 4


def test_more_than_there_is_here(here: Here) -> None:
    n = probe().usable_cpus
    found = linted(
        here,
        f"export OMP_NUM_THREADS={n + 1}\n"
        f'export GOMP_CPU_AFFINITY="0-{max(os.sched_getaffinity(0)) + 4}"\n'
        "taskset -c 4000 python serve.py\n",
    )
    beyond = [slip["what"] for slip in found["slips"] if slip["kind"] == "beyond"]
    assert f"OMP_NUM_THREADS={n + 1}" in beyond
    assert any(what.startswith("GOMP_CPU_AFFINITY") for what in beyond)
    assert "the program is bound to CPUs 4000" in beyond


def test_a_pod_with_more_threads_than_its_limit(here: Here) -> None:
    pod = (
        "containers:\n- name: server\n  resources: {limits: {cpu: 500m}}\n"
        "  env:\n  - {name: OMP_NUM_THREADS, value: '1'}\n"
    )
    found = linted(here, pod, "pod.yaml")
    (slip,) = [slip for slip in found["slips"] if slip["kind"] == "beyond"]
    assert slip["container"] == "server"
    assert "its own limit is 0.5 CPUs" in slip["evidence"]


def test_what_contradicts_itself(here: Here) -> None:
    found = linted(
        here,
        "export OMP_NUM_THREADS=1\nexport OMP_NUM_THREADS=2\n"
        "export GOMP_CPU_AFFINITY=0\nexport KMP_AFFINITY=compact\n",
    )
    what = [slip["what"] for slip in found["slips"] if slip["kind"] == "contradiction"]
    assert what == ["OMP_NUM_THREADS=2", "GOMP_CPU_AFFINITY and KMP_AFFINITY"]


def test_branches_and_single_commands_do_not_contradict_each_other(here: Here) -> None:
    found = linted(
        here,
        "if true; then export OMP_NUM_THREADS=1; else export OMP_NUM_THREADS=2; fi\n"
        "KMP_AFFINITY=compact python a.py\nGOMP_CPU_AFFINITY=0 python b.py\n"
        "export OMP_THREAD_LIMIT=1024\n",
    )
    assert not [s for s in found["slips"] if s["kind"] in ("contradiction", "beyond")]


def test_what_the_shell_keeps_to_itself_has_no_effect(here: Here) -> None:
    found = linted(here, "OMP_NUM_THREADS=4000\nPORT=80\npython serve.py\n")
    (slip,) = [slip for slip in found["slips"] if slip["kind"] != "missed"]
    assert (slip["kind"], slip["line"], slip["what"]) == ("dead", 1, "OMP_NUM_THREADS=4000")
    assert "it is not exported" in slip["evidence"]


def test_a_library_without_a_path_is_looked_for_where_the_linker_does(here: Here) -> None:
    found = linted(here, "export LD_PRELOAD=libnothing.so:libc.so.6\n")
    assert kinds(found)["LD_PRELOAD=libnothing.so"] == "unusable"
    assert kinds(found).get("LD_PRELOAD=libc.so.6") != "unusable"


def test_a_finding_names_the_line_that_it_is_about(here: Here) -> None:
    n = probe().usable_cpus
    text = f"export OMP_NUM_THREADS={n + 1}\nOMP_NUM_THREADS={n + 2} python a.py\n"
    beyond = [slip for slip in linted(here, text)["slips"] if slip["kind"] == "beyond"]
    assert [(slip["line"], slip["what"]) for slip in beyond] == [
        (1, f"OMP_NUM_THREADS={n + 1}"), (2, f"OMP_NUM_THREADS={n + 2}"),
    ]  # fmt: skip


def test_what_is_dead_is_said_once(here: Here) -> None:
    found = linted(here, "export TF_NUM_INTRAOP_THREADS=99\nexport TF_CPP_MIN_LOG_LEVEL=2\n")
    assert [(s["kind"], s["what"]) for s in found["slips"] if s["kind"] != "missed"] == [
        ("dead", "TF_NUM_INTRAOP_THREADS=99")
    ]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("OMP_NUM_THREADS=two", "unusable"),
        ("MKL_NUM_THREADS=0", "unusable"),
        ("TF_ENABLE_ONEDNN_OPTS=true", "unknown"),
    ],
)
def test_what_is_no_number(here: Here, text: str, kind: str) -> None:
    Path("x.env").write_text(text + "\n")
    framework = "torch" if kind == "unusable" else "tensorflow"
    done = here("lint", "x.env", "--framework", framework, "--json")
    slips = [s for s in json.loads(done.stdout)["slips"] if s["kind"] != "missed"]
    assert [(slip["kind"], slip["line"], slip["what"]) for slip in slips] == [(kind, 1, text)]


def test_two_names_of_one_setting_are_told_apart(here: Here) -> None:
    Path("x.env").write_text("TF_NUM_INTRAOP_THREADS=0\nMKL_NUM_THREADS=0\nOMP_NUM_THREADS=1\n")
    done = here("lint", "x.env", "--framework", "torch", "--json")
    slips = [s for s in json.loads(done.stdout)["slips"] if s["kind"] in ("unusable", "dead")]
    assert [(slip["kind"], slip["line"], slip["what"]) for slip in slips] == [
        ("dead", 1, "TF_NUM_INTRAOP_THREADS=0"), ("unusable", 2, "MKL_NUM_THREADS=0"),
    ]  # fmt: skip


def test_what_is_preloaded_besides_is_not_judged(here: Here) -> None:
    found = linted(here, "export LD_PRELOAD=/lib/x86_64-linux-gnu/libc.so.6\n")
    assert set(kinds(found).values()) <= {"unknown", "missed"}
    assert found["code"] == 0


def test_guidelines_that_are_missed_and_acted_against(here: Here) -> None:
    half = max(1, probe().usable_cores // 2)
    found = linted(here, f"export OMP_NUM_THREADS={half}\n")
    by_what = kinds(found)
    if probe().usable_cores > 1:
        (hurting,) = [slip for slip in found["slips"] if slip["kind"] == "hurts"]
        assert (hurting["what"], hurting["line"]) == (f"env.OMP_NUM_THREADS={half}", 1)
        assert found["code"] == 0 and found["notes"]  # guidelines of other hosts only advise
        said = here("lint", "serve.sh", "--framework", "torch", "--guidelines", ".").stdout
        assert said.splitlines()[-1].endswith("read, for torch: nothing wrong")
    assert by_what["launch.allocator=tcmalloc"] == "missed"
    assert not any("memory_format" in what for what in by_what)  # no launch file can set it
    (missed,) = [slip for slip in found["slips"] if slip["kind"] == "missed"]
    assert "5 families" in missed["evidence"]


def test_a_clean_file_ends_with_0(here: Here) -> None:
    found = linted(
        here, "PORT=80\nPASSWORD=hunter2\nexport TF_X_TOKEN=hunter2\nexport A_TOKEN='hunter2\n"
    )
    assert found["code"] == 0
    assert found["n_settings"] == 1
    assert "hunter2" not in json.dumps(found)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("lint", "nothing.sh"), "cannot read nothing.sh"),
        (("lint", "bad.yaml"), "is no YAML"),
        (("lint", "recommended.toml"), "is no launch file"),
        (("lint", "good.sh", "--framework", "jax"), "unknown value of --framework 'jax'"),
        (("lint", "good.sh", "--guidelines", "nowhere"), "cannot read nowhere"),
    ],
)
def test_bad_input_is_one_line(here: Here, arguments: tuple[str, ...], told: str) -> None:
    Path("bad.yaml").write_text("a: [")
    Path("good.sh").write_text("A=1\n")
    done = here(*arguments)
    assert done.returncode == 2
    assert told in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_nothing_of_the_file_is_executed(here: Here) -> None:
    linted(here, "touch was_executed\nexport A=$(touch was_executed)\n`touch was_executed`\n")
    assert not Path("was_executed").exists()
