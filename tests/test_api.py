"""`import tuner` in a program of one's own: tune and verify, as the command line does it."""

import functools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tuner
import tuner.api
from tests.command import VIRTUAL
from tests.made_up import MadeUpFake
from tuner.errors import NothingMeasured, UsageError
from tuner.record.events import Event, FrameworkEnds, StudyBegins

# no `if __name__`: what is measured are processes of the tool's own, not forks of this program
PROGRAM = """
import json, scipy.linalg, sys, threadpoolctl, tuner
sys.path.insert(0, {tests!r})
import functools, virtual, tuner.api
virtual.spare()
host = virtual.VirtualHost()
tuner.api.tune_request = functools.partial(tuner.api.tune_request, testbed=host)
tuner.api.run_verify = functools.partial(tuner.api.run_verify, testbed=host)
kinds, threads = [], set()

def blas():
    return {{p["num_threads"] for p in threadpoolctl.threadpool_info() if p["user_api"] == "blas"}}

def listen(event):
    kinds.append(type(event).__name__)
    if kinds[-1] == "LaunchDone":
        threads.update(blas())

usual = blas()
(found,) = tuner.tune(
    "fake@seed=2", framework="fake", hw="fake", budget="4s", out="out", batch=4,
    fix={{"env.FAKE_THREADS": 4}}, exclude=["fake.precision", "launch.allocator"],
    set={{"fake.layout": ["packed"]}}, numerics="same", listen=listen,
)
assert threads == {{1}} and blas() == usual, (threads, blas(), usual)
request = tuner.verify(found.folder / "recommended.toml", budget=10)
print(json.dumps([
    found.result.verdict, found.result.speedup.point, request.verdict, request.speedup.point,
    kinds[0], kinds[-1], found.result.command,
]))
"""


def test_a_study_is_tuned_and_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("tune_request", "run_verify"):
        on_it = functools.partial(getattr(tuner.api, name), testbed=MadeUpFake())
        monkeypatch.setattr(tuner.api, name, on_it)
    heard: list[Event] = []
    (found,) = tuner.tune(
        "fake@seed=2", framework="fake", hw="fake", budget="7s", out=tmp_path / "out", batch=4,
        fix={"env.FAKE_THREADS": 4}, exclude=["fake.precision"],
        set={"fake.layout": ["packed"]}, numerics="same", listen=heard.append,
    )  # fmt: skip
    assert found.result is not None
    assert (found.result.verdict, type(heard[0]), type(heard[-1])) == (
        "faster", StudyBegins, FrameworkEnds,
    )  # fmt: skip
    check_asked(found.result.command, tmp_path / "out")
    request = tuner.verify(found.folder / "recommended.toml", budget=20)
    assert request.verdict == "confirmed"
    assert request.speedup is not None and request.speedup.point > 1


def check_asked(command: str, folder: Path) -> None:
    """What the call asks for is told, and was kept to."""
    assert command.startswith("tuner.tune('fake@seed=2', framework='fake', hw='fake', budget=")
    assert "exclude=['fake.precision'" in command
    assert "seed" not in command.replace("seed=2'", "")  # what is at its default is not told
    stored = json.loads((folder / "result.json").read_text())
    assert stored["winners"]["same_precision"]["configuration"]["env.FAKE_THREADS"] == 4
    tried = {value for t in stored["trials"] for value in [t["configuration"].get("fake.layout")]}
    assert tried <= {None, "packed"}
    assert "fake.precision" not in {knob for t in stored["trials"] for knob in t["configuration"]}


@pytest.mark.slow
def test_a_program_tunes_and_verifies(tmp_path: Path) -> None:
    """A process of one's own, and those of the fake."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(tests=str(VIRTUAL.parent)))
    done = subprocess.run(
        [sys.executable, str(program)],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    verdict, speedup, request, again, first, last, command = json.loads(done.stdout)
    assert (verdict, first, last) == ("faster", "StudyBegins", "FrameworkEnds")
    assert speedup > 1
    assert request in ("confirmed", "inconclusive")
    assert again > 1
    check_asked(command, tmp_path / "out")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"framework": "torche"}, "torche"),
        ({"budget": "soon"}, "'soon' is not a duration"),
        ({"budget": -1}, "a budget of -1 is invalid"),
        ({"numerics": "Same"}, "unknown value of --numerics 'Same'"),
        ({"goal": "robusst"}, "did you mean robust"),
        ({"batch": 0}, "--batch 0: workload.batch cannot be 0"),
        ({"seed": -1}, "--seed -1 is invalid"),
        ({"tolerance": float("nan")}, "--tolerance nan is invalid"),
        ({"numerics": "same", "fix": {"torch.dtype": "bf16"}}, "contradicts setting torch.dtype"),
        ({"fix": {"a.b": 1}, "exclude": ["a.b"]}, "--exclude a.b contradicts --fix"),
        ({"accept_cost": ["money"]}, "allowed: memory, latency"),
        ({"accept_cost": "memory"}, r"accept_cost is a sequence; write \['memory'\]"),
        ({"exclude": "a.b"}, r"exclude is a sequence; write \['a.b'\]"),
        ({"set": {"launch.allocator": "tcmalloc"}}, "launch.allocator is a sequence"),
    ],
)
def test_bad_input_is_an_error_with_a_reason_and_measures_nothing(
    tmp_path: Path, arguments: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        tuner.tune("fake", **{"hw": "fake", "out": tmp_path / "out", **arguments})
    assert not (tmp_path / "out").exists()


def test_a_file_that_is_none_cannot_be_verified(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere\.toml"):
        tuner.verify(tmp_path / "nowhere.toml")
    with pytest.raises(UsageError, match="quick is a budget of 60 s"):
        tuner.verify(tmp_path / "nowhere.toml", quick=True, budget="5m")
    for share in (0, 1.5, float("nan"), "150%"):
        with pytest.raises(UsageError, match="of the claimed gain cannot be asked for"):
            tuner.verify(tmp_path / "nowhere.toml", at_least=share)


def test_a_server_is_named_in_the_place_of_a_model_headers_included() -> None:
    server: dict[str, Any] = {
        "serve": "uvicorn app:app --port {port}",
        "url": "http://127.0.0.1:{port}/",
    }
    with pytest.raises(UsageError, match="not given: --requests"):
        tuner.tune(**server)
    with pytest.raises(UsageError, match="one of them"):
        tuner.tune("resnet50", **server, requests="requests.jsonl")
    with pytest.raises(UsageError, match="name a model, or a server"):
        tuner.tune()
    calls: tuple[Callable[..., Any], ...] = (
        tuner.tune,
        functools.partial(tuner.verify, "recommended.toml"),
    )
    for call in calls:
        with pytest.raises(UsageError, match="NOWHERE_SET is not set"):
            call(**server, requests="requests.jsonl", header=["X-Key: env:NOWHERE_SET"])
        with pytest.raises(UsageError, match="header is a sequence"):
            call(**server, requests="requests.jsonl", header="X-Key: env:NOWHERE_SET")


def test_where_no_framework_has_a_result_it_raises(tmp_path: Path) -> None:
    with pytest.raises(NothingMeasured, match="crashed: killed by SIGSEGV"):
        tuner.tune(
            "fake@faults=rank=0:crash", framework="fake", hw="fake", budget=20, out=tmp_path / "out"
        )


def test_what_is_not_there_is_said_as_python_says_it() -> None:
    with pytest.raises(AttributeError, match="module 'tuner' has no attribute 'optimise'"):
        _ = tuner.optimise
    assert {"tune", "verify", "apply"} <= set(tuner.__all__)
