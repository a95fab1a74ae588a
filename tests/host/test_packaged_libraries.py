"""Libraries that pip installed: found by the record of their package, judged by the real loader."""

import ctypes
import shutil
from pathlib import Path

import msgspec
import pytest

from tests.host.machine import build
from tuner.host.identity import probe
from tuner.host.libraries import find_libraries, find_packaged
from tuner.worker.evidence.process import mapped_file


def a_real_library() -> Path:
    """Return a shared library of this system that needs the C library alone."""
    library = ctypes.CDLL("libm.so.6")
    address = ctypes.cast(library.cos, ctypes.c_void_p).value or 0
    return Path(mapped_file(address))


def install(
    packages: Path, package: str, *files: str, needing: bytes = b"libc.so.6"
) -> dict[str, Path]:
    """Lay out what pip leaves of a package: its record, and its libraries.

    needing: the name of what the libraries need, in place of the C library's.
    """
    name, _, version = package.partition("==")
    info = packages / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))
    made = {}
    for file in files:
        path = packages / file
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(a_real_library(), path)
        path.write_bytes(path.read_bytes().replace(b"libc.so.6", needing))
        made[path.name] = path.resolve()
    return made


def test_they_are_found_wherever_their_package_lies_before_the_systems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a .pth file adds a folder: not below sys.prefix, and one of them beside the packages."""
    packages = tmp_path / "elsewhere/lib/python3/site-packages"
    mimalloc = install(packages, "cmeel-mimalloc==9.9", "cmeel.prefix/lib/libmimalloc.so")
    iomp = install(packages, "intel-openmp==9.8", "../../libiomp5.so")
    monkeypatch.syspath_prepend(packages)
    host = probe()
    assert host.libraries["mimalloc"] == str(mimalloc["libmimalloc.so"])
    assert host.libraries["libiomp5"] == str(iomp["libiomp5.so"])
    assert host.packages == {"mimalloc": "cmeel-mimalloc==9.9", "libiomp5": "intel-openmp==9.8"}
    assert host.unusable == {}


def test_variants_for_debugging_are_never_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variants = ("libmimalloc-debug.so", "libmimalloc-secure.so", "libmimalloc.so.3")
    made = install(tmp_path, "cmeel-mimalloc==9.9", *(f"lib/{name}" for name in variants))
    monkeypatch.syspath_prepend(tmp_path)
    assert find_packaged()["mimalloc"].path == str(made["libmimalloc.so.3"])
    for path in made.values():
        if path.name != "libmimalloc.so.3":
            path.rename(path.with_name(f"kept-{path.name}"))
    made["libmimalloc.so.3"].rename(tmp_path / "lib/libmimalloc-debug.so.3")
    assert "mimalloc" not in find_packaged()
    assert "mimalloc" not in find_libraries([tmp_path / "lib"])


def test_what_would_end_every_program_at_its_start_is_not_preloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As libatomic.so.1 on a slim image: ld.so passes over a preload, not over what it needs."""
    install(tmp_path, "cmeel-mimalloc==9.9", "lib/libmimalloc.so", needing=b"libX.so.6")
    monkeypatch.syspath_prepend(tmp_path)
    host = probe()
    assert str(tmp_path) not in host.libraries.get("mimalloc", "")
    if "mimalloc" not in host.libraries:  # this system has none of its own
        why = "cmeel-mimalloc==9.9 is installed, but libX.so.6 is missing: install it"
        assert host.unusable == {"mimalloc": why}
    assert find_packaged()["mimalloc"].fault == "libX.so.6 is missing: install it"


@pytest.mark.parametrize("folder", ["my models", "a:b"])
def test_a_path_at_which_a_preload_would_end_is_told(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = install(tmp_path / folder, "cmeel-mimalloc==9.9", "lib/libmimalloc.so")
    monkeypatch.syspath_prepend(tmp_path / folder)
    fault = find_packaged()["mimalloc"].fault
    assert "which separates names in LD_PRELOAD: make the environment in another folder" in fault
    assert find_libraries([made["libmimalloc.so"].parent]) == {}


def test_where_an_environment_lies_makes_no_other_host_but_its_packages_do(
    tmp_path: Path,
) -> None:
    host = probe(build(tmp_path), allowed=(0, 1))

    def with_package(path: str, package: str) -> str:
        return msgspec.structs.replace(
            host, libraries={"mimalloc": path}, packages={"mimalloc": package}
        ).fingerprint()

    first = with_package("/home/a/.venv/lib/libmimalloc.so", "cmeel-mimalloc==3.4.3")
    assert first == with_package("/srv/b/lib/libmimalloc.so", "cmeel-mimalloc==3.4.3")
    assert first != with_package("/home/a/.venv/lib/libmimalloc.so", "cmeel-mimalloc==3.2.8")
