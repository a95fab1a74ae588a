"""Commands on altered files: they end with an exit code and at most a line, as people expect.

In this process, through the entry point of the command line; a few of each command as processes
are in tests/cli. What is read of such files is held to what stands there by test_readers.py.
"""

from pathlib import Path

import pytest
from hypothesis import strategies as st

from tests.fuzz.document import (
    JSON_TOKENS,
    TOML_TOKENS,
    Mutant,
    Seed,
    altered,
    as_json,
    as_toml,
    damaged,
)
from tests.fuzz.oracle import CONTROL
from tests.fuzz.seeds import RESULTS, SPACES, fuzzed, shipped_in
from tuner.cli.main import command

TARGETS = ("env", "shell", "docker", "kubernetes", "systemd", "torchserve", "python", "nothing")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


@pytest.fixture(scope="module")
def shipped(folder: Path) -> Seed:
    return shipped_in(folder)


def exit_code(capsys: pytest.CaptureFixture[str], *arguments: str) -> int:
    """Run a command in this process; it may complain in one line, and in no other way."""
    code = command(arguments)
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert "fault of tune-framework" not in said
    assert not CONTROL.search(said)
    if code in (2, 125):
        assert said.startswith("error: ")
        assert said.count("\n") == 1
    return code


def write(path: Path, mutant: Mutant) -> str:
    is_document = not isinstance(mutant.content, bytes)
    path.write_bytes(as_toml(mutant.content) if is_document else mutant.content)
    return str(path)


def recommendations(shipped: Seed) -> st.SearchStrategy[Mutant]:
    return st.one_of(altered([shipped], TOML_TOKENS), damaged([shipped]))


@fuzzed(120, data=st.data())
def test_export_of_an_altered_recommendation_ends_well(
    folder: Path, shipped: Seed, capsys: pytest.CaptureFixture[str], data: st.DataObject
) -> None:
    path = write(folder / "recommended.toml", data.draw(recommendations(shipped)))
    target = data.draw(st.sampled_from(TARGETS))
    assert exit_code(capsys, "export", path, "--to", target) in (0, 2)


@fuzzed(120, data=st.data())
def test_run_under_an_altered_recommendation_ends_well(
    folder: Path, shipped: Seed, capsys: pytest.CaptureFixture[str], data: st.DataObject
) -> None:
    """It gets as far as the program, which is none."""
    path = write(folder / "recommended.toml", data.draw(recommendations(shipped)))
    assert exit_code(capsys, "run", "--quiet", path, "--", "no_program_here") in (125, 127)


@fuzzed(120, data=st.data())
def test_verify_of_an_altered_recommendation_ends_well(
    folder: Path, shipped: Seed, capsys: pytest.CaptureFixture[str], data: st.DataObject
) -> None:
    """It gets as far as the model, which is none."""
    path = write(folder / "recommended.toml", data.draw(recommendations(shipped)))
    assert exit_code(capsys, "verify", path, "--quick", "--model", "no_model_here.py:f") in (2, 5)


@fuzzed(120, mutant=altered(RESULTS, JSON_TOKENS))
def test_compare_with_an_altered_result_ends_well(
    folder: Path, capsys: pytest.CaptureFixture[str], mutant: Mutant
) -> None:
    (folder / "result.json").write_bytes(as_json(mutant.content))
    assert exit_code(capsys, "compare", str(folder / "result.json")) in (0, 2)
    assert exit_code(capsys, "compare", str(folder), "--json") in (0, 2)


@fuzzed(30, mutant=st.one_of(altered(RESULTS, JSON_TOKENS), damaged(RESULTS)))
def test_report_on_an_altered_result_ends_well(
    folder: Path, capsys: pytest.CaptureFixture[str], mutant: Mutant
) -> None:
    is_document = not isinstance(mutant.content, bytes)
    data = as_json(mutant.content) if is_document else mutant.content
    (folder / "result.json").write_bytes(data)
    assert exit_code(capsys, "report", str(folder)) in (0, 2)


@fuzzed(120, mutant=st.one_of(altered(SPACES, TOML_TOKENS), damaged(SPACES)))
def test_spaces_of_an_altered_space_ends_well(
    folder: Path, capsys: pytest.CaptureFixture[str], mutant: Mutant
) -> None:
    assert exit_code(capsys, "spaces", write(folder / "space.toml", mutant)) in (0, 2)


@fuzzed(30, mutant=st.one_of(altered(SPACES, TOML_TOKENS), damaged(SPACES)))
def test_a_dry_run_over_an_altered_space_ends_well(
    folder: Path, capsys: pytest.CaptureFixture[str], mutant: Mutant
) -> None:
    path = write(folder / "space.toml", mutant)
    assert exit_code(capsys, "--model", "fake", "--space", path, "--dry-run") in (0, 2)
