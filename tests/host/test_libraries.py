from pathlib import Path

import pytest

from tests.host.libraries import Describe
from tuner.host import libraries
from tuner.host.identity import probe
from tuner.host.libraries import find_libraries, library_folders


def test_versioned_files_in_debians_multiarch_folder_are_found(tmp_path: Path) -> None:
    folder = tmp_path / "usr/lib/x86_64-linux-gnu"
    folder.mkdir(parents=True)
    for name in ("libtcmalloc_minimal.so.4", "libjemalloc.so.2"):
        (folder / name).touch()
    found = find_libraries([folder])
    assert found == {
        "tcmalloc": str(folder / "libtcmalloc_minimal.so.4"),
        "jemalloc": str(folder / "libjemalloc.so.2"),
    }


def test_an_active_environment_comes_before_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path))
    monkeypatch.delenv("TUNE_FRAMEWORK_TEST_LIBRARIES", raising=False)
    folders = library_folders()
    assert folders.index(tmp_path / "lib") < folders.index(Path("/usr/lib"))


def test_a_folder_stands_in_for_the_systems_libraries_and_a_word_hides_them(
    monkeypatch: pytest.MonkeyPatch, system_libraries: Describe
) -> None:
    of_packages = probe().packages
    monkeypatch.setenv("TUNE_FRAMEWORK_TEST_LIBRARIES", "none")
    assert probe().libraries.keys() == of_packages.keys()
    described = system_libraries("tcmalloc", "libnuma")
    found = probe()
    assert found.packages == of_packages
    assert found.libraries.items() >= described.items()
    assert found.libraries.keys() == of_packages.keys() | {"tcmalloc", "libnuma"}


def test_missing_frameworks_come_with_the_command_to_type() -> None:
    text = str(libraries.missing_framework("tensorflow"))
    assert "pip install 'tune-framework[tensorflow]'" in text
