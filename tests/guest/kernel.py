"""The guest's kernel: Debian's cloud kernel, fetched once into build/guest and never installed.

python -m tests.guest.kernel
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
FOLDER = PROJECT / "build" / "guest"
# Everything the guest needs is built into it, NUMA, cpusets, CPU quotas and CPU hotplug included
# (6.1.176-1): it boots without modules.
_META_PACKAGE = "linux-image-cloud-amd64"


class CannotFetch(Exception):
    """The kernel cannot be had here; the text says why."""


def find() -> Path | None:
    """Return the kernel that was fetched, or put there by hand; the newest, or None."""
    found = sorted(FOLDER.glob("vmlinuz-*"), key=lambda path: path.stat().st_mtime)
    return found[-1] if found else None


def _run(*command: str, cwd: Path) -> str:
    """Run a command and return its output; raises CannotFetch."""
    if shutil.which(command[0]) is None:
        raise CannotFetch(f"there is no {command[0]} here: this is not Debian")
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["nothing was said"]
        raise CannotFetch(f"{' '.join(command)} failed: {said[0]}")
    return done.stdout


def fetch() -> Path:
    """Download and unpack the kernel, unless one is there; raises CannotFetch."""
    if (kernel := find()) is not None:
        return kernel
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as name:
        folder = Path(name)
        depends = _run("apt-cache", "depends", _META_PACKAGE, cwd=folder)
        wanted = re.search(r"Depends: (linux-image-\S+)", depends)
        if wanted is None:
            raise CannotFetch(f"apt does not offer {_META_PACKAGE}; as root: apt-get update")
        _run("apt-get", "download", wanted[1], cwd=folder)
        (package,) = folder.glob("*.deb")
        _run("dpkg-deb", "-x", package.name, "unpacked", cwd=folder)
        (image,) = folder.glob("unpacked/boot/vmlinuz-*")
        return image.rename(FOLDER / image.name)


if __name__ == "__main__":
    try:
        print(fetch())
    except CannotFetch as error:
        sys.exit(f"no kernel for the guest: {error}")
