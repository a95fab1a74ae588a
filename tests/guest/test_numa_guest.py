"""This tool on a machine with two sockets and two NUMA nodes: a test in the guest is one here."""

import tempfile
from pathlib import Path

import pytest

from tests.guest.boot import boot, missing
from tests.guest.kernel import PROJECT
from tests.guest.results import Outcomes, names
from tests.guest.tree import build, pack
from tests.wants import lack

pytestmark = pytest.mark.numa

# Many times what it takes: a machine may be slow or busy, and a guest that hangs must end.
TIMEOUT_S = 300.0


@pytest.fixture(scope="module")
def needs_a_guest() -> None:
    if reason := missing():
        lack("a guest", detail=reason)


@pytest.fixture(scope="module")
def guest(needs_a_guest: None, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """Boot the guest once for all of this module's tests."""
    folder = tmp_path_factory.mktemp("guest")
    # pytest keeps its folders for three runs; 300 MB of this are not worth it
    with tempfile.TemporaryDirectory(dir=folder) as name:
        archive = Path(name) / "initramfs.cpio"
        root = Path(name) / "root"
        root.mkdir()
        build(root, PROJECT)
        pack(root, archive)
        return boot(archive, folder, TIMEOUT_S)


@pytest.mark.parametrize("test", names())
def test_it_passes_in_the_guest(test: str, guest: Outcomes) -> None:
    if fault := guest.fault(test):
        pytest.fail(fault, pytrace=False)


def test_a_kernel_panic_is_not_taken_for_success(needs_a_guest: None, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    pack(tmp_path / "empty", tmp_path / "initramfs.cpio")
    outcomes = boot(tmp_path / "initramfs.cpio", tmp_path, TIMEOUT_S)
    assert "Kernel panic" in (outcomes.fault(names()[0]) or "")
