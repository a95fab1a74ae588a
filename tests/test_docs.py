"""What README.md and docs/ show is so: commands run, options exist, links lead somewhere."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command import Here, run
from tests.made_up import MadeUpFake
from tests.space.spaces import TORCH_DEFAULTS, model
from tests.wants import needs, require
from tuner.galleries import MODELS
from tuner.launchers.describe import find_model
from tuner.record.index import Index, Row, write_index_file
from tuner.record.load import SCENARIOS
from tuner.record.objective import GOALS
from tuner.space.profile_file import gallery

ROOT = Path(__file__).parent.parent
LEARNS = ROOT / "tests" / "models" / "to_target.py"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MOST_WORDS = 1500
"""Of the README: what is worth more words has a page of its own."""
TEXTS = {page.name: page.read_text() for page in PAGES}
COMMAND = re.compile(r"^(?: {4})?(tune-framework .*?)(?:\s{2,}#.*)?$", re.MULTILINE)
COMMANDS = sorted({line for text in TEXTS.values() for line in COMMAND.findall(text)})
TUNING = [line for line in COMMANDS if line.split()[1].startswith("--")]
OTHERS = [line for line in COMMANDS if line not in TUNING]
MINE = re.search(r"```python\n(# mine.py\n.*?)```", TEXTS["README.md"], re.DOTALL)
APP = re.search(r"```python\n(# app.py\n.*?)```", TEXTS["scenarios.md"], re.DOTALL)
TRAIN = """
import time
import torch

model = torch.nn.Linear(64, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
begun = time.perf_counter()
for _ in range(50):
    optimizer.zero_grad()
    model(torch.ones(16, 64)).square().mean().backward()
    optimizer.step()
print(f"samples={50 * 16} seconds={time.perf_counter() - begun:.3f}")
"""
QUICK = dict.fromkeys(("resnet50", "bert-base", "mobilenet-v1"), "fake")
"""Models whose command is tried on the fake: what it takes to describe them is tested elsewhere."""


def test_the_readme_is_read_to_its_end() -> None:
    assert len(TEXTS["README.md"].split()) <= MOST_WORDS


@needs("torch", "fastapi")
@pytest.mark.slow
def test_the_app_of_the_docs_answers_alike_in_every_process(tmp_path: Path) -> None:
    """Else no setting could be shown to leave its answers as they are, and it is not tuned."""
    assert APP is not None
    (tmp_path / "app.py").write_text(APP[1])
    asked = [sys.executable, "-c", "import app; print(app.predict([0.5] * 64))"]
    first, again = (
        subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    )
    assert first == again and len(first.split(",")) == 8


def test_the_notebook_runs_and_plots(tmp_path: Path) -> None:
    cells = json.loads((ROOT / "docs/data_frames.ipynb").read_text())["cells"]
    code = "\n".join("".join(each["source"]) for each in cells if each["cell_type"] == "code")
    (tmp_path / "reports").symlink_to(ROOT / "reports")
    done = subprocess.run(
        [sys.executable, "-P", "-W", "error", "-c", code],
        cwd=tmp_path,
        env={**os.environ, "MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for name in ("speedups", "trials", "rounds"):
        assert (tmp_path / f"{name}.png").stat().st_size > 5000


@pytest.mark.parametrize("name", TEXTS)
def test_links_lead_somewhere(name: str) -> None:
    page = next(page for page in PAGES if page.name == name)
    for target in re.findall(r"\]\(((?!https?:|#)[^)#]+)", TEXTS[name]):
        assert (page.parent / target).exists(), target


def test_every_page_is_in_the_readme() -> None:
    assert [
        page.name for page in PAGES[1:] if f"(docs/{page.name})" not in TEXTS["README.md"]
    ] == []


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(line, marks=pytest.mark.slow)
        if any(word in line for word in ("mine.py:function", "--serve", "train.py"))  # of PyTorch
        else line
        for line in TUNING
    ],
)
def test_a_tuning_command_could_begin(
    here: Here, described_once: None, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    """Its model, options and values are what the tool takes: all but the measuring is done."""
    words = [QUICK.get(word, word) for word in shlex.split(line)[1:]]
    if "fake" in words and "--hw" in words:
        words[words.index("--hw") + 1] = "fake"
    if "--trace" in words:
        Path("arrivals.csv").write_text("\n".join(map(str, range(1000))))
    if "--serve" in words:
        require("torch", "fastapi", "uvicorn")
        assert APP is not None
        Path("app.py").write_text(APP[1])
        Path("requests.jsonl").write_text(str([0.5] * 64))
        monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if "python train.py" in words:
        require("torch")
        Path("train.py").write_text(TRAIN)
        monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if "mine.py:function" in words:
        require("torch")
        assert MINE is not None
        Path("mine.py").write_text(MINE[1])
    done = here(*words, "--dry-run")
    assert done.returncode == 0, done.stderr


@pytest.fixture
def reports(finished_study: Path, designed_study: Path, tmp_path: Path) -> Path:
    """A folder with what the commands read; a finished study is in reports/study."""
    shutil.copytree(ROOT / "reports/samples", tmp_path / "reports/samples")
    shutil.copytree(finished_study, tmp_path / "reports/study")
    (tmp_path / "serve.py").write_text("")
    (tmp_path / "serve.sh").write_text("export OMP_SCHEDULE=static\npython serve.py\n")
    shutil.copytree(designed_study, tmp_path / "reports/recorded")
    shutil.copytree(finished_study, tmp_path / "reports/fleet/resnet50")
    tuned = Row("resnet50", "torch", "done", folder="resnet50", verdict="keep_default")
    write_index_file(tmp_path / "reports/fleet", Index([tuned]))
    return tmp_path


def words_of(line: str, folder: Path) -> list[str]:
    """Return the arguments of a line as a shell in the folder passes them."""
    words: list[str] = []
    for word in shlex.split(line.replace("$S", "reports/study"))[1:]:
        words += map(str, sorted(folder.glob(word))) if "*" in word else [word]
    return words


def is_slow(line: str) -> bool:
    """Tell whether a command measures, or starts a framework."""
    measures = any(f" {name} " in line for name in ("verify", "time-to-target", "explain"))
    return measures or ("recommend" in line and "--guidelines" not in line)


@pytest.mark.parametrize("line", [line for line in OTHERS if not is_slow(line)])
def test_a_command_about_a_study_does_what_it_says(
    here: Here, reports: Path, described_once: None, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    if "--guidelines" in line:
        made = here("guidelines", "reports/recorded", "--out", "reports/guidelines")
        assert made.returncode == 0, made.stderr
    if " lint " in line:  # of a model that PyTorch would build: see tests/app/test_lint.py
        found = find_model("fc", MODELS)
        monkeypatch.setattr("tuner.app.plan.find_model", lambda *_, **more: found)
        monkeypatch.setattr("tuner.app.plan.describe_model", lambda *_: model(TORCH_DEFAULTS))
    words = words_of(line, reports)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")  # `python`
    # what runs a program becomes that program
    done = run(*words, cwd=reports) if words[0] == "run" else here(*words)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("line", [line for line in OTHERS if " verify " in line])
def test_a_recommendation_is_proved_as_the_docs_say(reports: Path, line: str) -> None:
    done = run(*words_of(line, reports), cwd=reports, is_virtual=True)
    assert done.returncode == 0, done.stderr


def test_a_recommendation_is_trained_as_the_docs_say(here: Here, tmp_path: Path) -> None:
    line, other = sorted(
        (each for each in OTHERS if " time-to-target " in each), key=lambda each: "--fix" in each
    )
    shutil.copy(LEARNS, tmp_path / "mine.py")
    mine = "mine.py@seed=2,noise=0.003"
    study = ("--framework", "fake", "--hw", "fake", "--mode", "training", "--budget", "30s")
    out = ("--out", "reports/mine-torch-training")
    assert here("--model", mine, *study, *out, testbed=MadeUpFake()).returncode == 0
    words = [mine if word == "mine.py" else word for word in words_of(line, tmp_path)]
    done = here(*words, testbed=MadeUpFake())
    assert done.returncode == 0, done.stderr
    settings = {"torch.autocast=bf16": "fake.precision=bf16", "mine.py": mine}
    words = [settings.get(word, word) for word in words_of(other, tmp_path)]
    done = here(*words, "--framework", "fake", testbed=MadeUpFake())
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("line", [line for line in OTHERS if " explain " in line])
def test_what_is_explained_as_the_docs_say(here: Here, reports: Path, line: str) -> None:
    instead = {
        "resnet50": "fake@seed=2,noise=0.003",
        "torch": "fake",
        "torch.memory_format=channels_last": "fake.layout=packed",
    }
    done = here(*(instead.get(word, word) for word in words_of(line, reports)))
    assert done.returncode == 0, done.stderr
    assert "Of the " in done.stdout


@pytest.mark.slow
@needs("torch")
def test_a_recommendation_needs_no_guidelines_of_ones_own(reports: Path) -> None:
    """Each framework builds the model, and launches what the shipped rules recommend."""
    (line,) = (each for each in OTHERS if is_slow(each) and " recommend " in each)
    line = line.replace("--model resnet50", "--model fc")  # built in an instant
    done = run(*words_of(line, reports), "--out", "rec", cwd=reports)
    assert done.returncode == 0, done.stderr
    assert list((reports / "rec").rglob("recommended.toml"))


@pytest.mark.parametrize("name", ["options.md", "scenarios.md"])
def test_what_can_be_chosen_is_named(name: str) -> None:
    text = TEXTS[name]
    for choice in (*SCENARIOS, *GOALS):
        assert f"`{choice}`" in text, choice


def test_every_option_has_its_line(here: Here) -> None:
    options = set(re.findall(r"--[a-z][a-z-]+", here("tune", "--help").stdout)) - {"--help"}
    told = set(re.findall(r"--[a-z][a-z-]+", TEXTS["options.md"]))
    assert options <= told
    names = set(gallery(ROOT / "search_spaces")) - {"fake"}
    assert all(f"`{name}`" in TEXTS["options.md"] for name in names)
