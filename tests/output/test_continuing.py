"""The command that goes on with one study, made from the one that it was begun with."""

from pathlib import Path

import pytest

from tuner.output.continuing import going_on, model_file


@pytest.mark.parametrize(
    ("command", "kept"),
    [
        ("--model m --budget 10m --out o", "--model m"),
        ("--budget=10m --model m --json", "--model m"),
        ("--model m --extend 5m --framework torch --framework tensorflow", "--model m"),
        ("--model 'a b' --fix torch.compile=none", "--model 'a b' --fix torch.compile=none"),
        ("--models m,n --hw auto --out all", "--hw auto --model m"),
        ("--models=k,own/m.py@a=1 --hw auto", "--hw auto --model own/m.py"),
    ],
)
def test_it_names_one_study_by_its_folder_and_one_time(command: str, kept: str) -> None:
    found = going_on(f"tune-framework {command}", "m", "torch", Path("all/m-torch"), "12m")
    assert found == f"tune-framework {kept} --framework torch --extend 12m --out all/m-torch"


def test_parameters_of_a_model_stay_its_own() -> None:
    found = going_on("tune-framework --models m@a=1,b=2,n", "m@a=1,b=2", "torch", Path("x"), "1m")
    assert "--model m@a=1,b=2 " in found


@pytest.mark.parametrize(
    "command",
    [
        "tune-framework --models m --fleet auto",
        "tune-framework --models m --fleet=auto",
        "tuner.tune('m')",
        "tune-framework 'open",
        "",
    ],
)
def test_there_is_none_where_no_command_line_is_about_one_study(command: str) -> None:
    assert going_on(command, "m", "torch", Path("x"), "12m") == ""


@pytest.mark.parametrize(
    ("command", "file"),
    [
        ("--model m.py@a=1 --mode training", "m.py@a=1"),
        ("--model=own/m.py:function", "own/m.py:function"),
        ("--models k,own/m.py", "own/m.py"),
        ("--model m --mode training", None),
        ("--models m,n", None),
        ("--model 'unfinished", None),
    ],
)
def test_a_file_is_named_again_and_a_built_in_model_is_not(command: str, file: str | None) -> None:
    assert model_file(f"tune-framework {command}", "m") == file
