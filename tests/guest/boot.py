"""Run the guest under qemu's software emulation: two sockets, two NUMA nodes, eight CPUs."""

from __future__ import annotations

import platform
import shutil
import subprocess
import time
from pathlib import Path

from tests.guest import kernel, tree
from tests.guest.results import Outcomes, read

# Software emulation has the topology and the placement of pages, not their speed: no test in the
# guest may compare times of nodes.
_MACHINE = (
    "qemu-system-x86_64",
    # one host thread for all CPUs: faster than one each where the host has fewer cores
    *("-accel", "tcg,thread=single"),
    # one that calls itself AMD loses its SMT siblings (qemu 7.2 does not emulate topoext)
    *("-cpu", "max,vendor=GenuineIntel"),
    *("-m", "1024"),
    *("-smp", "8,sockets=2,cores=2,threads=2"),
    *("-object", "memory-backend-ram,id=m0,size=512M"),
    *("-object", "memory-backend-ram,id=m1,size=512M"),
    *("-numa", "node,nodeid=0,cpus=0-3,memdev=m0"),
    *("-numa", "node,nodeid=1,cpus=4-7,memdev=m1"),
    *("-numa", "dist,src=0,dst=1,val=21"),
    *("-nographic", "-nodefaults", "-no-reboot"),
    *("-serial", "stdio"),
)
_KERNEL_LINE = (
    "console=ttyS0 quiet panic=-1 mitigations=off nokaslr "
    "numa_balancing=disable"  # else the kernel may move pages that a test has just placed
)
_PROGRAMS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "busybox": "busybox-static",
    "cpio": "cpio",
    "ldd": "libc-bin",
    "setpriv": "util-linux",
}


def missing() -> str | None:
    """Return why no guest can be run here, with what mends it, or None."""
    if platform.machine() != "x86_64":
        return f"the guest runs this interpreter on x86_64, and this is {platform.machine()}"
    for program, package in _PROGRAMS.items():
        if shutil.which(program) is None:
            return f"{program} is not installed here: apt-get install {package}"
    if kernel.find() is None:
        return "there is no kernel for the guest: python -m tests.guest.kernel"
    return tree.missing()


def boot(archive: Path, folder: Path, timeout_s: float) -> Outcomes:
    """Boot an initramfs and return what its tests told; the console and the results lie in folder.

    qemu's exit code tells nothing: it is 0 after a kernel panic, too (7.2).
    """
    results, console = folder / "results.jsonl", folder / "console.log"
    results.unlink(missing_ok=True)
    began = time.monotonic()
    ended_in_time = True
    with console.open("wb") as output:
        try:
            subprocess.run(
                [
                    # the guest goes when the test run is killed, and not at its own end
                    *("setpriv", "--pdeathsig", "KILL"),
                    *_MACHINE,
                    *("-serial", f"file:{results}"),
                    *("-kernel", str(kernel.find())),
                    *("-initrd", str(archive)),
                    *("-append", _KERNEL_LINE),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            ended_in_time = False
    text = results.read_text(errors="replace") if results.exists() else ""
    return read(
        text,
        console.read_text(errors="replace"),
        seconds=time.monotonic() - began,
        ended_in_time=ended_in_time,
    )
