"""Spaces to test with: the fake framework's profile on a machine that is only described."""

from pathlib import Path

import msgspec

from tests.host.machine import build
from tuner.galleries import SEARCH_SPACES
from tuner.host.identity import Host, probe
from tuner.record.configuration import Value
from tuner.record.workload import ModelCard, ModelRef, Workload
from tuner.space.profile import Profile, load_profile
from tuner.space.resolve import Space, resolve_space
from tuner.space.restrictions import Restrictions

FAKE_DEFAULTS: dict[str, Value] = {
    "launch.allocator": "glibc",
    "env.FAKE_THREADS": 2,
    "fake.streams": 1,
    "fake.layout": "plain",
    "fake.compile": "off",
    "fake.precision": "fp32",
}
TORCH_DEFAULTS: dict[str, Value] = {
    "launch.allocator": "glibc",
    "launch.numa_node": "none",
    "env.OMP_NUM_THREADS": 8,
    "torch.interop_threads": 8,
    "torch.compile.mode": "off",
    "torch.memory_format": "contiguous",
    "torch.autocast": "off",
}
TENSORFLOW_DEFAULTS: dict[str, Value] = {
    "launch.allocator": "glibc",
    "launch.numa_node": "none",
    "env.TF_NUM_INTRAOP_THREADS": 8,
    "env.TF_NUM_INTEROP_THREADS": 8,
    "tensorflow.frozen": False,
    "tensorflow.jit_compile": False,
    "tensorflow.auto_mixed_precision": "off",
}
ALL_LIBRARIES = {"tcmalloc": "/l/libtcmalloc.so", "jemalloc": "/l/libjemalloc.so", "libnuma": "/n"}


def machine(root: Path, **shape: object) -> Host:
    """Return a described host with every library and a compiler."""
    build(root, **shape)  # type: ignore[arg-type]
    n_cpus = len(list((root / "sys/devices/system/cpu").glob("cpu[0-9]*")))
    host = probe(root, allowed=tuple(range(n_cpus)))
    return msgspec.structs.replace(host, libraries=ALL_LIBRARIES, cxx="/usr/bin/g++")


def workload(framework: str, kind: str = "cnn") -> Workload:
    card = ModelCard("m", "M", "t", kind, (framework,), 4, (4, 16), 10, "0" * 64)
    return Workload(ModelRef("m", "/m.py"), framework, "offline", card)


def resolved(
    host: Host,
    framework: str,
    defaults: dict[str, Value],
    profile: str | Profile = "auto",
    restrictions: Restrictions | None = None,
    kind: str = "cnn",
) -> Space:
    loaded = load_profile(profile, SEARCH_SPACES) if isinstance(profile, str) else profile
    return resolve_space(
        loaded, host, workload(framework, kind), defaults, restrictions or Restrictions()
    )
