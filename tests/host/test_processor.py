from pathlib import Path

from tests.host.machine import build, write
from tuner.host.identity import read_processor


def test_an_intel_processor(tmp_path: Path) -> None:
    found = read_processor(build(tmp_path, flags="fpu avx2 avx512f amx_bf16 hypervisor"))
    assert (found.vendor, found.isa) == ("intel", ("avx2", "avx512f", "amx_bf16"))
    assert found.virtualised


def test_an_arm_processor(tmp_path: Path) -> None:
    write(
        tmp_path,
        "proc/cpuinfo",
        "processor\t: 0\nFeatures\t: fp asimd bf16 sve\nCPU implementer\t: 0x41\nCPU part\t: 0xd40",
    )
    found = read_processor(tmp_path, arch="aarch64")
    assert (found.vendor, found.arch) == ("arm", "aarch64")
    assert found.isa == ("asimd", "bf16", "sve")
