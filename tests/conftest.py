"""What every test starts from: no tuning variable in the environment; described machines."""

import functools
import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from threadpoolctl import threadpool_limits

from tests.command import DESIGNED, FINISHED, NOTHING, Here, run
from tests.described import remembering
from tests.host.libraries import Describe, write_libraries
from tests.host.machine import described, raise_tree
from tests.launchers.benches import (  # noqa: F401  # pytest takes them from here
    bench_of,
    fake,
    forked,
    seed,
    started,
)
from tests.made_up import tuned_here
from tests.once import once
from tests.virtual import DRAWS, unsync
from tests.wants import (  # noqa: F401  # pytest takes them from here
    pytest_configure,
    pytest_runtest_setup,
    pytest_terminal_summary,
)
from tuner.cli.main import command
from tuner.host import identity
from tuner.host.environment import tuning_variables
from tuner.host.libraries import ENGINES_STAND_IN, HIDDEN, STANDS_IN
from tuner.launchers.testbed import Testbed
from tuner.output import report
from tuner.output.figures import drawing

DRAWER = Path(__file__).with_name("drawer.py")


@pytest.fixture(autouse=True)
def untuned_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in tuning_variables(os.environ):
        monkeypatch.delenv(name)


@pytest.fixture(autouse=True, scope="module")
def untuned_module() -> None:
    """What other tests left in this process's environment (TorchInductor sets variables when it is
    imported) is no setting of a shell that a module's studies begin in."""
    for name in tuning_variables(os.environ):
        del os.environ[name]


@pytest.fixture(autouse=True, scope="session")
def signals_as_a_terminal_leaves_them() -> None:
    """Started by nohup or in the background, we ignore them, and so would all that we start."""
    for number, handler in ((signal.SIGINT, signal.default_int_handler),
                            (signal.SIGHUP, signal.SIG_DFL)):  # fmt: skip
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


unsync()
# studies of real models would have other baselines where engines are installed
os.environ[ENGINES_STAND_IN] = HIDDEN


@pytest.fixture(autouse=True, scope="session")
def one_blas_thread() -> Iterator[None]:
    """As in the tool: several threads of each of pytest's processes only wait for each other."""
    import scipy.linalg  # noqa: F401  # its BLAS must be loaded to be limited

    with threadpool_limits(limits=1, user_api="blas"):
        yield


@pytest.fixture(autouse=True, scope="session")
def drawer() -> Iterator[Callable[[Sequence[dict[str, Any]]], list[str]]]:
    """Draw in a process that stays; what draws in one of its own is `drawings` itself."""
    process: subprocess.Popen[str] | None = None
    drawn: dict[str, str] = {}

    def from_drawer(specifications: Sequence[dict[str, Any]]) -> list[str]:
        nonlocal process
        asked = {json.dumps(each): each for each in specifications}
        missing = [each for text, each in asked.items() if text not in drawn]
        if missing:
            if process is None:
                process = subprocess.Popen(
                    [sys.executable, "-P", str(DRAWER), drawing.__file__],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            assert process.stdin is not None
            assert process.stdout is not None
            print(json.dumps(missing), file=process.stdin, flush=True)
            line = process.stdout.readline()
            assert line, f"{DRAWER.name} ended with {process.wait()}"
            made = json.loads(line)
            drawn.update(zip(map(json.dumps, missing), made, strict=True))
        return [drawn[json.dumps(each)] for each in specifications]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "drawings", from_drawer)
        yield from_drawer
    if process is not None:
        process.communicate()


@pytest.fixture
def here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Here:
    """Run commands in this process, which spares each the second in which Python imports it all.

    For what a command says and how it ends; a process's streams and signals need a process.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def told(*arguments: str, testbed: Testbed | None = None) -> subprocess.CompletedProcess[str]:
        capsys.readouterr()
        code = tuned_here(arguments, testbed) if testbed else command(arguments)
        said = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, code, said.out, said.err)

    return told


@pytest.fixture
def described_once(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Have model files described to commands in this process once for the whole run."""
    known = of_all_processes(tmp_path_factory, "described")
    monkeypatch.setattr("tuner.launchers.testbed.ask", remembering(known))


@pytest.fixture
def system_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Describe:
    """Hide the libraries of this host's system, and let it have the named ones instead.

    For the tool in this process and in those that it starts. Packages of this Python stay: the
    tests install them.
    """

    def described(*names: str) -> dict[str, str]:
        folder = tmp_path / "system-libraries"
        folder.mkdir()
        monkeypatch.setenv(STANDS_IN, str(folder))
        return write_libraries(folder, names)

    return described


@pytest.fixture
def real_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure on the CPUs that are here, whatever machine is described for the other tests.

    For tests that bind real processes to CPUs.
    """
    monkeypatch.delenv(identity.STANDS_IN, raising=False)


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Trees of the described machines, each raised once for all tests, which only read them."""
    machines = described()

    @functools.cache
    def raised(name: str) -> Path:
        def make(folder: Path) -> None:
            raise_tree(folder / "root", machines[name])

        return made_once(tmp_path_factory, f"machine-{name}", make) / "root"

    return raised


def of_all_processes(tmp_path_factory: pytest.TempPathFactory, name: str) -> Path:
    """Return a folder that all processes of one pytest run have in common."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    folder.mkdir(exist_ok=True)
    return folder


def made_once(
    tmp_path_factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]
) -> Path:
    """Return a folder that `make` has filled, once for all processes of one pytest run."""
    folder = of_all_processes(tmp_path_factory, name)
    with once(folder) as is_to_be_made:
        if is_to_be_made:
            make(folder)
    return folder


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """TorchInductor's cache for all launches that compile.

    In a new one it first finds out which instructions the compiler knows: 11 s of CPU time.
    """
    return of_all_processes(tmp_path_factory, "compiled")


@pytest.fixture(scope="session")
def finished_study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished study of the fake, for whatever only reads one: copy it to change it.

    Its launches are made up, so that it is the same on every host, however busy. Beside it,
    `events` holds the lines that --json printed. All processes of pytest share it.
    """
    return _shared_study(tmp_path_factory, "finished_study", FINISHED, "9s", is_made_up=True)


@pytest.fixture(scope="session")
def designed_study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with a designed part, of the model DESIGNED."""
    return _shared_study(
        tmp_path_factory, "designed_study", DESIGNED, "20s", "--designed", is_made_up=True
    )


@pytest.fixture(scope="session")
def shared_study(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return studies of the fake in real processes; a command that is repeated runs once.

    For whatever only reads one. Called with model, budget, further arguments, and `environment`.
    """

    def shared(*arguments: str, environment: Mapping[str, str] = NOTHING) -> Path:
        asked = json.dumps([arguments, sorted(environment.items())])
        name = f"study-{hashlib.sha256(asked.encode()).hexdigest()[:16]}"
        return _shared_study(tmp_path_factory, name, *arguments, environment=environment)

    return shared


def _shared_study(
    tmp_path_factory: pytest.TempPathFactory,
    name: str,
    model: str,
    budget: str,
    *more: str,
    is_made_up: bool = False,
    environment: Mapping[str, str] = NOTHING,
) -> Path:
    def tune(cwd: Path) -> None:
        for variable in tuning_variables(os.environ):  # of modules before: see untuned_module
            del os.environ[variable]
        arguments = ("--model", model, "--hw", "fake", "--json", "--budget", budget, *more)
        done = run(
            *arguments,
            "--out",
            "out",
            cwd=cwd,
            environment={DRAWS: "1", **environment},
            is_virtual=True,
            is_made_up=is_made_up,
        )
        assert done.returncode == 0, done.stderr
        (cwd / "events").write_text(done.stdout)

    return made_once(tmp_path_factory, name, tune) / "out"
