"""Bad input is one line on standard error, says what to do, and exits with 2."""

import os
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.command import Here, run
from tests.made_up import MadeUpFake
from tests.wants import needs
from tuner.cli import report
from tuner.cli.main import app
from tuner.errors import UsageError
from tuner.record.journal import SessionOpened, StudyOpened
from tuner.record.protocol import Command, MakeReference, Reply
from tuner.record.store import Store

CASES = {
    "no model": ((), "name a model"),
    "unknown model": (("--model", "resnet5O"), "did you mean resnet50"),
    "a name too long": (("--model", "x" * 300), "is too long for the name of a model or a file"),
    "unknown goal": (("--model", "fake", "--goal", "robost"), "did you mean robust"),
    "unknown profile": (("--model", "fake", "--hw", "xenon"), "did you mean xeon"),
    "unknown framework": (("--model", "fake", "--framework", "pytorch"), "did you mean torch"),
    "framework without the model": (
        ("--model", "fake", "--hw", "fake", "--framework", "torch"),
        "it is there for fake",
    ),
    "unknown scenario": (("--model", "fake", "--scenario", "of-line"), "did you mean offline"),
    "unknown mode": (("--model", "fake", "--mode", "trainig"), "did you mean training"),
    "training and requests": (
        ("--model", "fake", "--mode", "training", "--scenario", "server"),
        "--mode training contradicts --scenario server",
    ),
    "training and answers": (
        ("--model", "fake", "--mode", "inference", "--scenario", "training"),
        "--mode inference contradicts --scenario training",
    ),
    "training at several batches": (
        ("--model", "fake", "--hw", "fake", "--mode", "training", "--set", "workload.batch=4,16"),
        "another batch trains otherwise, so that training has one: --batch N",
    ),
    "int8 that is not asked for": (
        ("--model", "fake", "--hw", "fake", "--fix", "engine.quantization=int8_static"),
        "engine.quantization computes in int8, which is searched with --numerics int8 alone; "
        "change --numerics, or do not set engine.quantization",
    ),
    "unknown numerics": (("--model", "fake", "--numerics", "some"), "allowed: both, same"),
    "nothing to learn from": (
        ("--model", "fake", "--hw", "fake", "--learn-from", "nowhere"),
        "--learn-from nowhere: there is no such folder",
    ),
    "a share that is no percentage": (
        ("verify", "recommended.toml", "--at-least", "0.9"),
        "--at-least '0.9' is not a percentage: write 90%",
    ),
    "no duration": (("--model", "fake", "--budget", "soon"), "write 90s, 10m or 1h"),
    "a budget that importing uses up": (
        ("--command", "python bench.py", "--budget", "2s"),
        "to import a framework takes up to 20 s, and the default is launched after that; give at "
        "least 30s",
    ),
    "a budget that suffices for one of two frameworks": (
        ("--model", "resnet50", "--hw", "auto", "--budget", "40s"),
        "to import PyTorch and TensorFlow takes, for each, up to 20 s, and the default is launched "
        "after that; give at least 60s",
    ),
    "negative duration": (("--model", "fake", "--budget", "0s"), "is not a duration"),
    "no batch": (("--model", "fake", "--batch", "0"), "'--batch'"),
    "a batch beyond all memory": (
        ("--model", "fake", "--batch", "99999999999999999999"), "'--batch'",
    ),
    "an empty folder": (("--model", "fake", "--hw", "fake", "--out", ""), "'--out': it is empty"),
    "an empty model": (("--model", ""), "names no model"),
    "letters for a number": (("--model", "fake@seed=abc", "--hw", "fake"), "'abc' is none"),
    "a name of two lines": (("--model", "a\nb.py:f"), "has control characters in it"),
    "a file in no folder": (
        ("export", "recommended.toml", "--to", "env", "--out", "/nodir/x"),
        "there is no folder /nodir",
    ),
    "unknown knob": (
        ("--model", "fake", "--hw", "fake", "--fix", "fake.layot=packed"),
        "did you mean fake.layout",
    ),
    "nearly a knob": (
        ("--model", "fake", "--hw", "fake", "--set", "env.FAKE_THREAD=2"),
        "did you mean env.FAKE_THREADS",
    ),
    "a dead knob": (
        ("--model", "fake", "--hw", "fake", "--set", "env.FAKE_BLOCKTIME=1"),
        "has no effect here: the fake framework does not read it",
    ),
    "no setting": (
        ("--model", "fake", "--hw", "fake", "--set", "env.LD_PRELOAD=/x.so"),
        "use launch.allocator",
    ),
    "open quotes": (
        ("--model", "fake", "--hw", "fake", "--set", 'env.A="b,c'), "close the quotes",
    ),
    "no variable's name": (
        ("--model", "fake", "--hw", "fake", "--fix", "env.X;touch owned;Y=1"),
        "unknown knob 'env.X;touch owned;Y'",
    ),
    "control characters": (
        ("--model", "fake", "--hw", "fake", "--set", "env.FAKE_THREADS=2,3\x1b[2J"),
        "holds control characters",
    ),
    "another framework's knob": (
        ("--model", "fake", "--hw", "fake", "--exclude", "tensorflow.frozen"), "is no knob of",
    ),
    "contradiction": (
        ("--model", "fake", "--hw", "fake", "--fix", "fake.layout=packed", "--exclude",
         "fake.layout"),
        "contradicts",
    ),
    "batch contradiction": (
        ("--model", "fake", "--hw", "fake", "--batch", "8", "--fix", "workload.batch=4"),
        "contradicts",
    ),
    "unknown parameter": (("--model", "fake@sed=1", "--hw", "fake"), "takes no parameter 'sed'"),
    "model and program": (("--model", "fake", "--command", "true"), "give one of them"),
    "batch of a program": (("--command", "true", "--batch", "4"), "has its own"),
    "no program": (("--command", "no_program_here"), "there is no program"),
    "no inputs": (("--model", "fake", "--inputs", "no.npz"), "there is no file no.npz"),
    "infinite tolerance": (("--model", "fake", "--tolerance", "inf"), "give a finite number"),
    "a shell's sign": (("--command", "true | cat"), "without a shell"),
    "no tolerance": (("--model", "fake", "--tolerance", "-1"), "'--tolerance'"),
    "missing file": (("--model", "mine.py"), "there is no model file mine.py"),
    "missing space": (("--model", "fake", "--space", "no.toml"), "there is no file no.toml"),
    "space of another kind": (("--model", "fake", "--space", __file__), "does not end in .toml"),
    "space and profile": (
        ("--model", "fake", "--hw", "fake", "--space", "no.toml"), "give one of them",
    ),
    "no result": (("report", "nowhere"), "no result in nowhere"),
    "unknown command": (("reprot", "x"), "No such command 'reprot'"),
    "unknown option": (("--modle", "fake"), "No such option: --modle"),
    "a model for a command": (
        ("resnet50", "--hw", "xeon"),
        "No such command 'resnet50'; to tune a model: tune-framework --model resnet50",
    ),
    "a model for the default command": (
        ("tune", "resnet50"), "'resnet50' is no option; to tune a model: tune-framework --model",
    ),
    "an option twice": (
        ("--model", "fake", "--model=fc"), "'--model': it is given 2 times; give it once",
    ),
    "an option of a command twice": (
        ("verify", "x", "--budget", "1m", "--budget", "2m"), "'--budget': it is given 2 times",
    ),
    "an option before a command": (
        ("--budget", "1m", "verify", "x"), "--budget stands before the command 'verify'",
    ),
    "a missing argument": (("verify",), "(tune-framework verify --help lists what there is)"),
    "a latency without its percentile": (
        ("--model", "fake", "--scenario", "server", "--slo", "15ms"),
        "for a bound on 99 % of the requests write p99=15ms",
    ),
    "no file of options": (("--config", "no.toml"), "cannot read no.toml"),
}  # fmt: skip


AS_COMMANDS = ("unknown model", "an empty folder", "a batch beyond all memory", "unknown option")
"""One of each way to be refused: by the engine, by a parser of ours, by the option's bounds, by the
parser of the command line. The others end in the same way, and in this process."""


def assert_refused(case: str, code: int, said: str, cwd: Path) -> None:
    assert code == 2, said
    assert CASES[case][1] in said
    assert "Traceback" not in said
    assert not (cwd / "reports").exists()
    assert said.count("\n") == 1
    assert said.startswith("error: ")


@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_refused_before_anything_is_measured(
    here: Here, tmp_path: Path, case: str
) -> None:
    done = here(*CASES[case][0])
    assert_refused(case, done.returncode, done.stderr, tmp_path)


@pytest.mark.parametrize("case", AS_COMMANDS)
def test_a_process_that_is_refused_says_the_same(tmp_path: Path, case: str) -> None:
    done = run(*CASES[case][0], cwd=tmp_path)
    assert_refused(case, done.returncode, done.stderr, tmp_path)


@needs("a user who is not root")  # root may write anywhere; the next test serves root
def test_an_unwritable_folder_is_bad_input(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    done = run("--model", "fake", "--hw", "fake", "--out", "out", cwd=tmp_path)
    assert done.returncode == 2
    assert "--out" in done.stderr


def test_a_file_in_the_place_of_the_folder_is_bad_input(here: Here, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = here("--model", "fake", "--hw", "fake", "--out", "file/out")
    assert done.returncode == 2
    assert "--out" in done.stderr


class Refusing(MadeUpFake):
    """A testbed of a model whose reference cannot be made."""

    def ask(self, command: Command, *given: Any, **named: Any) -> Reply:
        if isinstance(command, MakeReference):
            raise UsageError("the outputs do not depend on the inputs")
        return super().ask(command, *given, **named)


@pytest.mark.parametrize("testbed", [Refusing(), pytest.param(None, marks=pytest.mark.slow)])
def test_what_is_refused_once_it_was_built_leaves_no_folder_behind(
    here: Here, tmp_path: Path, testbed: MadeUpFake | None
) -> None:
    np.savez(tmp_path / "same.npz", x=np.ones((9, 16), dtype=np.float32))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/.keep").touch()
    for out in ("new/deep", "mine"):
        given = ("--model", "fake", "--hw", "fake", "--inputs", "same.npz", "--out", out)
        done = here(*given, testbed=testbed)
        assert done.returncode == 2
        assert "the outputs do not depend on the inputs" in done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mine", "same.npz"]
    assert [p.name for p in (tmp_path / "mine").iterdir()] == [".keep"]


def test_a_broken_space_has_file_and_line(here: Here, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('schema_version = 1\ntitle = "x"\nknobs = []\n')
    done = here("--model", "fake", "--space", "mine.toml")
    assert done.returncode == 2
    assert "mine.toml" in done.stderr
    assert "unknown field 'knobs'" in done.stderr


def test_report_names_the_command_that_goes_on_with_an_unfinished_study(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.add(StudyOpened("id", {}, "now", "0"))
        store.add(SessionOpened(1, "now", 60.0, "tune-framework --model fake --budget 60s"))
    with pytest.raises(UsageError, match="resumes it: tune-framework --model fake --budget"):
        report.main(tmp_path, as_json=False)


def test_report_names_the_command_of_a_study_that_was_stopped_before_its_first_session(
    tmp_path: Path,
) -> None:
    with Store(tmp_path) as store:
        store.add(StudyOpened("id", {}, "now", "0", command="tune-framework --model fake"))
    with pytest.raises(UsageError, match="resumes it: tune-framework --model fake"):
        report.main(tmp_path, as_json=False)


def test_an_interrupted_verify_promises_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It waits for what is written into a pipe; whoever opens that for writing sends the signal."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    pipe = tmp_path / "recommended.toml"
    os.mkfifo(pipe)

    def ask() -> None:
        with pipe.open("wb"):  # returns once `verify` reads
            os.kill(os.getpid(), signal.SIGTERM)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        assert app(["verify", str(pipe)], standalone_mode=False) == 130
    finally:
        asking.join()
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
    assert capsys.readouterr().err == (
        "error: stopped by SIGTERM; nothing is kept of it: the same command begins anew\n"
    )


def run_altered(code: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the command in an interpreter that executes `code` first."""
    (cwd / "sitecustomize.py").write_text(code)
    return run(*arguments, cwd=cwd, environment={"PYTHONPATH": str(cwd), "TMPDIR": str(cwd)})


def test_a_missing_framework_comes_with_the_command(tmp_path: Path) -> None:
    """An interpreter that sees everything but torch."""
    code = (
        "import importlib.util as u\n"
        "find = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'torch' else find(name, *a)\n"
    )
    done = run_altered(code, "--model", "resnet50", "--framework", "torch", cwd=tmp_path)
    assert done.returncode == 2
    assert "pip install 'tune-framework[torch]'" in done.stderr


def test_a_fault_of_our_own_is_a_line_with_a_log_to_paste(tmp_path: Path) -> None:
    code = (
        "import tuner.host.identity as m\n"
        "def broken(*a, **k): raise KeyError('boom')\n"
        "m.probe = broken\n"
    )
    done = run_altered(code, "hardware", cwd=tmp_path)
    assert done.returncode == 1
    assert "fault of tune-framework" in done.stderr
    assert "Traceback" not in done.stderr
    (log,) = tmp_path.glob("tune-framework-*.log")
    assert "KeyError" in log.read_text()
