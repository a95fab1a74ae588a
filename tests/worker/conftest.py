"""What the tests of workers share with each other, in all processes of a run."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec
import pytest

from tests.command import NOTHING
from tests.conftest import of_all_processes
from tests.once import locked
from tests.worker.settings import PROFILED
from tests.worker.workers import Launched, torch_imported
from tuner.record.configuration import Value
from tuner.record.launch import Checked, Prepared, ReadBack
from tuner.record.load import OFFLINE, Load
from tuner.record.protocol import Failed, Measured, Profile, Reply


@pytest.fixture
def forked() -> Iterator[None]:
    """Fork the workers of a test from a process that has imported PyTorch."""
    with torch_imported():
        yield


@pytest.fixture(scope="session")
def references(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the references of the tests' own models are made once a run."""
    return of_all_processes(tmp_path_factory, "references")


KEPT = ("TORCHINDUCTOR_CACHE_DIR", "TUNE_FRAMEWORK_PACKAGES")
"""Variables of a study's workers: where is kept what its launches have in common."""


class Told(msgspec.Struct, frozen=True):
    """What one launch told, in the order in which it was asked."""

    prepared: Prepared
    measured: Measured
    checked: Checked | Failed
    profiled: Reply | None = None
    checked_afterwards: Checked | Failed | None = None
    shared: Measured | None = None
    """A slice of three callers, of the default alone."""
    checked_shared: Checked | Failed | None = None
    n_registered: int = 0
    """Files of LLVM's OpenMP runtime, while the process runs."""
    n_left: int = 0
    """Those when it has ended."""

    def read_back(self) -> dict[str, ReadBack]:
        return {item.knob: item for item in self.prepared.read_back}


Ask = Callable[..., Told]


@pytest.fixture(scope="session")
def told(tmp_path_factory: pytest.TempPathFactory, references: Path, compiled: Path) -> Ask:
    """Launch each framework under the same settings and environment once, for all that read it."""
    kept = of_all_processes(tmp_path_factory, "told")
    folder = tmp_path_factory.mktemp("launches")
    of_studies = dict(zip(KEPT, map(str, (compiled, references)), strict=True))

    def ask(
        framework: str, settings: Mapping[str, Value], environment: Mapping[str, str] = NOTHING
    ) -> Told:
        launch = (framework, dict(settings), dict(environment))
        key = repr((framework, sorted(settings.items()), sorted(environment.items())))
        path = kept / f"{hashlib.sha256(key.encode()).hexdigest()}.json"
        with locked(path.with_suffix(".lock")):
            if not path.exists():
                variables = {**of_studies, **environment}
                is_profiled = any(each.values[:3] == launch for each in PROFILED)
                answers = _launch(folder, references, framework, settings, variables, is_profiled)
                path.write_bytes(msgspec.json.encode(answers))
            return msgspec.json.decode(path.read_bytes(), type=Told)

    return ask


def _launch(
    folder: Path,
    references: Path,
    framework: str,
    settings: Mapping[str, Value],
    variables: Mapping[str, str],
    is_profiled: bool,
) -> Told:
    reduced = any("bf" in str(value) for value in settings.values())
    with Launched(
        folder, framework, settings, environment=variables, references=references
    ) as launched:
        answers = Told(
            launched.prepare(),
            launched.measured(),
            launched.checked(reduced=reduced, n_inputs=0 if settings else 128),
            n_registered=_n_registered(launched.worker.pid),
        )
        if not settings and not variables.keys() - KEPT:
            launched.offered(Load("concurrent", 1, callers=3))
            answers = msgspec.structs.replace(
                answers, shared=launched.measured(), checked_shared=launched.checked()
            )
            launched.offered(Load(OFFLINE, launched.card.reference_batch))
        if is_profiled:
            answers = msgspec.structs.replace(
                answers,
                profiled=launched.ask(Profile(0.3)),
                checked_afterwards=launched.checked(reduced=False),
            )
    return msgspec.structs.replace(answers, n_left=_n_registered(launched.worker.pid))


def _n_registered(pid: int) -> int:
    return len(list(Path("/dev/shm").glob(f"__KMP_REGISTERED_LIB_{pid}_*")))
