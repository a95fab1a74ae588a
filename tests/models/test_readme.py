"""What models/README.md shows is run as it stands there: every file, every command."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import of_all_processes
from tests.once import once
from tests.worker.workers import Launched
from tuner.galleries import MODELS
from tuner.host.environment import untuned
from tuner.host.libraries import installed_frameworks
from tuner.record.launch import Checked

README = (MODELS / "README.md").read_text()
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
FILES = {body.split()[1]: body for kind, body in BLOCK.findall(README) if kind == "python"}
LINES = [
    line
    for kind, body in BLOCK.findall(README)
    if kind == "sh"
    for line in body.strip().splitlines()
]
COMMANDS = [line for line in LINES if line.startswith("tune-framework")]
MAKERS = [line for line in LINES if line.startswith("python")]
FRAMEWORK_OF_MAKER = {"save_torch.py": "torch", "save_tensorflow.py": "tensorflow"}


FRAMEWORK_OF_MODEL = dict.fromkeys(("mine.py:scorer", "model.keras", "saved_model"), "tensorflow")


def test_every_line_of_it_is_one_that_is_run_here() -> None:
    assert len(COMMANDS) >= 11
    assert sorted([*COMMANDS, *MAKERS]) == sorted(LINES)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with all that the README has its reader write and run."""
    folder = of_all_processes(tmp_path_factory, "readme")
    with once(folder) as is_first:
        if is_first:
            _make(folder)
    return folder


def _make(folder: Path) -> None:
    for name, body in FILES.items():
        (folder / name).write_text(body)
    for line in MAKERS:
        script = line.split()[1]
        if FRAMEWORK_OF_MAKER.get(script, "torch") not in installed_frameworks():
            continue
        done = subprocess.run(
            [sys.executable, script],
            cwd=folder,
            env=untuned(os.environ),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_of_it_measures_and_checks_a_model(
    tmp_path: Path, shown: Path, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(shown)
    # as in an activated environment: the commands say python
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    words = shlex.split(line)[1:]
    options = dict(zip(words[::2], words[1::2], strict=True))
    model = options.get("--model", "")
    launched = Launched(
        tmp_path,
        FRAMEWORK_OF_MODEL.get(model, "" if "--command" in options else "torch"),
        {},
        model=model,
        inputs=Path(options["--inputs"]) if "--inputs" in options else None,
        program=options.get("--command"),
    )
    with launched:
        assert launched.framework in installed_frameworks()
        launched.prepare()
        assert launched.measured().slice.rate > 0
        assert isinstance(launched.checked(), Checked)
        assert launched.card.fault == ""
