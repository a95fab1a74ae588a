"""The guest's root: this interpreter, the wanted packages and the working tree, in one archive.

Everything keeps its absolute path, so that the interpreter finds its library without being told.
"""

from __future__ import annotations

import compileall
import importlib.metadata
import os
import py_compile
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from tuner.host.libraries import find_libraries, library_folders

# What tuner.host, tuner.launchers.worker_process and tuner.worker import with the fake framework,
# and pytest with what it requires.
_DISTRIBUTIONS = ("msgspec", "numpy", "psutil", "py-libnuma",
                  "pytest", "pluggy", "iniconfig", "packaging", "pygments")  # fmt: skip
# "tests" also keeps away the package of that name that py-libnuma 1.2 installs beside its own.
_UNUSED_FOLDERS = {"tests", "__pycache__", "include", "f2py"}
_UNUSED_SUFFIXES = {".a", ".c", ".h", ".pxd", ".pyc", ".pyi", ".pyx"}
_UNUSED_LIBRARY = ("test", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3", "distutils",
                   "pydoc_data", "config-*", "site-packages", "dist-packages", "__pycache__",
                   "_tkinter*", "_test*")  # fmt: skip
_INSIDE = "tests/guest/inside"
_PROJECT = ("tuner", "models", "search_spaces", _INSIDE, "tests/__init__.py",
            "tests/guest/__init__.py", "pyproject.toml")  # fmt: skip
_RESULTS = "/dev/ttyS1"

_INIT = """\
#!/bin/busybox sh
bb=/bin/busybox
$bb mount -t proc proc /proc
$bb mount -t sysfs sysfs /sys
$bb mount -t devtmpfs devtmpfs /dev
$bb mkdir /dev/shm
$bb mount -t tmpfs tmpfs /dev/shm
$bb mount -t cgroup2 cgroup2 /sys/fs/cgroup
$bb stty -F {results} raw
# ctypes.util.find_library, by which py-libnuma looks for libnuma, asks the loader's cache
/sbin/ldconfig
export PATH=/bin:/sbin HOME=/tmp USER=root GUEST_RESULTS={results}
cd {project}
{python} -P -m pytest --color=no -p no:cacheprovider {project}/{inside}
$bb poweroff -f
"""


def missing() -> str | None:
    """Return why the tree cannot be built here, or None."""
    if "libnuma" not in find_libraries(library_folders()):
        return "libnuma.so.1 is not installed here: apt-get install libnuma1"
    if _ldconfig() is None:
        return "there is no ldconfig here: the C library is not glibc"
    return None


def _ldconfig() -> str | None:
    return shutil.which("ldconfig", path=os.defpath + ":/sbin:/usr/sbin")


def build(root: Path, project: Path) -> None:
    """Fill an empty folder with all that the guest needs."""
    copied = [*_copy_interpreter(root), *_copy_packages(root, project), *_copy_tools(root)]
    _copy_project(root, project)
    _copy_libraries(root, copied)
    _compile(root)
    _write_init(root, project)


def pack(root: Path, archive: Path) -> None:
    """Write the tree as an initramfs that belongs to root, whoever packs it.

    Without compression: to unpack takes longer in the guest than to read.
    """
    names = "\0".join(str(path.relative_to(root)) for path in sorted(root.rglob("*")))
    with archive.open("wb") as file:
        subprocess.run(
            ["cpio", "--quiet", "-0", "-o", "-H", "newc", "-R", "0:0"],
            input=names.encode(),
            stdout=file,
            cwd=root,
            check=True,
        )


def _place(root: Path, path: Path) -> Path:
    """Return where a file of the host lies in the tree; its folder is made."""
    place = root / path.relative_to("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    return place


def _copy(root: Path, path: Path) -> Path:
    """Copy a file, or what a link stands for, to its own path in the tree; return the original."""
    place = _place(root, path)
    if not place.exists():
        shutil.copy2(path, place)
    return path


def _copy_interpreter(root: Path) -> Iterator[Path]:
    """Copy the interpreter with its standard library; yield what may need shared libraries."""
    executable = Path(sys.executable)
    yield _copy(root, executable.resolve())
    if executable.is_symlink():
        _place(root, executable).symlink_to(executable.resolve())
    configuration = Path(sys.prefix) / "pyvenv.cfg"
    if configuration.exists():
        _copy(root, configuration)
    library = Path(sysconfig.get_path("stdlib"))
    place = _place(root, library)
    shutil.copytree(library, place, ignore=shutil.ignore_patterns(*_UNUSED_LIBRARY))
    for copy in place.rglob("*.so"):
        yield library / copy.relative_to(place)


def _copy_packages(root: Path, project: Path) -> Iterator[Path]:
    """Copy the distributions from wherever they lie, and say so in a .pth file."""
    folders = [project]
    for name in _DISTRIBUTIONS:
        distribution = importlib.metadata.distribution(name)
        folders.append(Path(str(distribution.locate_file(""))))
        for file in distribution.files or ():
            path = Path(str(distribution.locate_file(file)))
            unused = _UNUSED_FOLDERS.intersection(file.parts) or ".." in file.parts  # ..: bin/
            if unused or path.suffix in _UNUSED_SUFFIXES or not path.is_file():
                continue
            _copy(root, path)
            if ".so" in path.name:
                yield path
    listed = _place(root, Path(sysconfig.get_path("purelib")) / "guest.pth")
    listed.write_text("\n".join(map(str, dict.fromkeys(folders))) + "\n")


def _copy_tools(root: Path) -> Iterator[Path]:
    """Copy busybox and ldconfig to where _INIT calls them."""
    for name, path in (("bin/busybox", shutil.which("busybox")), ("sbin/ldconfig", _ldconfig())):
        assert path is not None
        place = root / name
        place.parent.mkdir(exist_ok=True)
        shutil.copy2(path, place)
        yield Path(path)


def _copy_project(root: Path, project: Path) -> None:
    for name in _PROJECT:
        path = project / name
        if path.is_dir():
            unused = shutil.ignore_patterns("__pycache__")
            shutil.copytree(path, _place(root, path), ignore=unused)
        else:
            _copy(root, path)


def _copy_libraries(root: Path, binaries: list[Path]) -> None:
    """Copy the shared libraries that the binaries need, and libnuma, which ctypes alone loads."""
    # ldd ends non-zero where one of its arguments is static
    listing = subprocess.run(["ldd", *binaries], capture_output=True, text=True, check=False)
    needed = set(re.findall(r"^\t(?:\S+ => )?(/.+) \(0x", listing.stdout, re.MULTILINE))
    needed.add(find_libraries(library_folders())["libnuma"])
    for name in sorted(needed):
        _copy(root, Path(name))
    folders = root / "etc/ld.so.conf"  # Debian's folders are not ldconfig's own
    folders.parent.mkdir(exist_ok=True)
    folders.write_text("".join(f"{f}\n" for f in sorted({str(Path(n).parent) for n in needed})))


def _compile(root: Path) -> None:
    """Compile everything here, once: the guest, some twenty times slower, then compiles nothing."""
    compileall.compile_dir(
        root,
        quiet=2,
        stripdir=str(root),
        prependdir="/",
        maxlevels=30,
        workers=os.cpu_count() or 1,
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )


def _write_init(root: Path, project: Path) -> None:
    for name in ("proc", "sys", "dev", "tmp"):
        (root / name).mkdir(exist_ok=True)
    init = root / "init"
    init.write_text(
        _INIT.format(
            results=_RESULTS,
            project=shlex.quote(str(project)),
            python=shlex.quote(sys.executable),
            inside=_INSIDE,
        )
    )
    init.chmod(0o755)
