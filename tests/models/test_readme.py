"""What models/README.md shows is run as it stands there: every file, every command."""

import contextlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.conftest import of_all_processes
from tests.once import once
from tests.wants import lack
from tests.worker.describing import Asked, Reply, described
from tests.worker.workers import Launched
from tuner.galleries import MODELS
from tuner.host.environment import untuned
from tuner.host.libraries import installed_frameworks
from tuner.launchers.describe import read_cards, ref_of
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
OF_TENSORFLOW = ("mine.py:scorer", "model.keras", "saved_model")


def test_every_line_of_it_is_one_that_is_run_here() -> None:
    assert len(COMMANDS) >= 11
    assert sorted([*COMMANDS, *MAKERS]) == sorted(LINES)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with all that the README has its reader write and run, and `replies`."""
    folder = of_all_processes(tmp_path_factory, "readme")
    with once(folder) as is_first:
        if is_first:
            for name, body in FILES.items():
                (folder / name).write_text(body)
            for line in MAKERS:
                _made(folder, line.split()[1])
            found = _of_framework(folder, "torch") | _of_framework(folder, "tensorflow")
            (folder / "replies").write_bytes(msgspec.json.encode(found))
    return folder


def _made(folder: Path, script: str) -> None:
    """Run a script that saves a model."""
    if FRAMEWORK_OF_MAKER.get(script, "torch") not in installed_frameworks():
        return
    done = subprocess.run(
        [sys.executable, script],
        cwd=folder,
        env=untuned(os.environ),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def _of_framework(folder: Path, framework: str) -> dict[str, Reply]:
    """Return what came of each command's model: the framework is imported twice for all."""
    if framework not in installed_frameworks():
        return {}
    refs = {}
    with contextlib.chdir(folder):
        for line in COMMANDS:
            options = options_of(line)
            model = options.get("--model", "")
            if model and (model in OF_TENSORFLOW) == (framework == "tensorflow"):
                inputs = Path(options["--inputs"]) if "--inputs" in options else None
                refs[line] = ref_of(model, MODELS, inputs=inputs)
    cards = read_cards(refs.values())
    assert not [card.fault for card in cards if card.fault]
    assert all(framework in card.frameworks for card in cards)
    asked = [
        Asked(ref, (card.reference_batch,), is_measured=True)
        for ref, card in zip(refs.values(), cards, strict=True)
    ]
    return dict(zip(refs, described(asked, framework, folder), strict=True))


def options_of(line: str) -> dict[str, str]:
    words = shlex.split(line)[1:]
    return dict(zip(words[::2], words[1::2], strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_of_it_measures_and_checks_a_model(
    tmp_path: Path, shown: Path, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if program := options_of(line).get("--command"):
        monkeypatch.chdir(shown)
        # as in an activated environment: the commands say python
        monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        with Launched(tmp_path, "", {"env.OMP_NUM_THREADS": 1}, program=program) as launched:
            assert launched.framework == "torch"
            launched.prepare()
            assert launched.measured().slice.rate > 0
            assert isinstance(launched.checked(), Checked)
        return
    replies = msgspec.json.decode((shown / "replies").read_bytes(), type=dict[str, Reply])
    if line not in replies:
        lack("torch", detail="or TensorFlow, whichever the line is of")
    reply = replies[line]
    assert reply.error == ""
    assert [rate > 0 for rate in reply.rates] == [True]
    assert [drift < 1e-4 for drift in reply.drifts] == [True]
