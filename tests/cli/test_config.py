"""Options from a TOML file, the help, and what the shell completes."""

import tomllib
from pathlib import Path

import pytest

from tests.command import Here, run
from tuner.cli.config import write_config

OPTIONS = """
model = "fake@seed=2,noise=0.003"
hw = "fake"
budget = "6s"
seed = 3
set = ["env.FAKE_THREADS=1,2"]
max_memory = "4G"
"""


def test_a_study_keeps_its_options_and_they_begin_it_again(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(OPTIONS)
    arguments = ("--config", "mine.toml", "--budget", "8s", "--out", "study")
    done = run(*arguments, cwd=tmp_path, is_made_up=True)
    assert done.returncode == 0, done.stderr
    kept = tomllib.loads((tmp_path / "study" / "tune.toml").read_text())
    assert kept == {
        "model": "fake@seed=2,noise=0.003",
        "hw": "fake",
        "budget": "8s",  # the command line's
        "seed": 3,
        "set": ["env.FAKE_THREADS=1,2"],
        "max-memory": "4G",
        "out": str(tmp_path / "study"),
    }
    n_launches = len(list((tmp_path / "study" / "launches").iterdir()))
    (tmp_path / "elsewhere").mkdir()
    again = run(
        "tune", "--config", "../study/tune.toml", cwd=tmp_path / "elsewhere", is_made_up=True
    )
    assert again.returncode == 0, again.stderr
    assert len(list((tmp_path / "study" / "launches").iterdir())) == n_launches
    assert tomllib.loads((tmp_path / "study" / "tune.toml").read_text()) == kept


def test_an_option_that_holds_a_secret_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_API_TOKEN", "hunter2hunter2")
    write_config(tmp_path, {"serve": "srv --tok hunter2hunter2", "budget": "5m"})
    text = (tmp_path / "tune.toml").read_text()
    assert "hunter2" not in text
    assert "Left out, because it holds a secret: serve" in text
    assert tomllib.loads(text) == {"budget": "5m", "out": str(tmp_path)}


def test_another_model_leaves_out_what_belongs_to_the_files_server(
    here: Here, tmp_path: Path
) -> None:
    (tmp_path / "mine.toml").write_text(
        'serve = "srv {port}"\nurl = "http://127.0.0.1:{port}/"\nrequests = "r.jsonl"'
    )
    done = here("--config", "mine.toml", "--model", "fake", "--hw", "fake", "--dry-run")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ('modell = "fake"', "no option 'modell'; did you mean model?"),
        ("set = 3", "set = 3: write a list of texts"),
        ("set = [3]", "set = [3]: write a list of texts"),
        ('dry-run = "yes"', "dry-run = 'yes': write true or false"),
        ("budget = [1]", "budget = [1]: write one text or one number"),
        ('batch = "four"', "batch = 'four': Input should be a valid integer"),
        ('seed = "x"', "seed = 'x': Input should be a valid integer"),
        (f"seed = {'1' * 5000}", "is not TOML"),
        ("model =\nhw = 1", "is not TOML: Invalid value (at line 1"),
        ('version = "1"', "no option 'version'"),
    ],
)
def test_a_file_that_is_wrong_is_refused(
    here: Here, tmp_path: Path, written: str, said: str
) -> None:
    (tmp_path / "mine.toml").write_text(written)
    done = here("--config", "mine.toml")
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_command_line_replaces_what_excludes_it(here: Here, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('model = "fake"\nspace = "no.toml"\nbudget = "6s"')
    done = here("--config", "mine.toml", "--hw", "fake", "--extend", "1m", "--out", "nowhere")
    assert "--extend continues a study, and there is none in nowhere" in done.stderr


def test_what_the_command_line_replaces_may_be_wrong_in_the_file(
    here: Here, tmp_path: Path
) -> None:
    (tmp_path / "mine.toml").write_text('model = "fake"\nhw = "fake"\nbatch = "four"')
    done = here("--config", "mine.toml", "--batch", "4", "--dry-run")
    assert done.returncode == 0, done.stderr


def test_another_model_keeps_what_the_file_says_of_models(here: Here, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('model = "fc"\nbatch = 0\nhw = "fake"')
    done = here("--config", "mine.toml", "--model", "fake", "--dry-run")
    assert "batch = 0: Input should be" in done.stderr  # it was read, and refused


def test_the_first_help_fits_a_screen_and_names_the_whole(here: Here) -> None:
    short = here("--help").stdout
    assert len(short.splitlines()) <= 60
    assert "--accept-cost" not in short
    assert "tune-framework tune --help" in short
    assert "--accept-cost" in here("tune", "--help").stdout


@pytest.mark.parametrize(("typed", "completed"), [("--bud", "--budget"), ("ver", "verify")])
def test_a_shell_completes_options_and_commands(tmp_path: Path, typed: str, completed: str) -> None:
    asked = {
        "_TUNE_FRAMEWORK_COMPLETE": "complete_bash",
        "COMP_WORDS": f"tune-framework {typed}",
        "COMP_CWORD": "1",
    }
    done = run(cwd=tmp_path, environment=asked)
    assert done.stdout.split() == [completed]
