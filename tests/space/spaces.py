"""Spaces to test with: the fake framework's profile on a machine that is only described."""

import functools
from pathlib import Path

import msgspec

from tests.host.machine import Machine, build
from tuner.galleries import SEARCH_SPACES
from tuner.host.identity import Host, probe
from tuner.record.configuration import Value
from tuner.record.workload import ModelCard, ModelFacts, ModelRef, Workload
from tuner.space.profile import Profile
from tuner.space.profile_file import load_profile
from tuner.space.resolve import resolve_space
from tuner.space.restrictions import Restrictions
from tuner.space.space import Space

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
    "launch.openmp": "libgomp",
    "launch.cpus": "all",
    "launch.numa_node": "none",
    "launch.memory_policy": "local",
    "env.OMP_NUM_THREADS": 8,
    "env.OMP_DYNAMIC": "FALSE",
    "env.OMP_SCHEDULE": "DYNAMIC",
    "env.OMP_PROC_BIND": "false",
    "torch.interop_threads": 8,
    "torch.compile.mode": "off",
    "torch.compile.max_autotune": False,
    "torch.compile.cpp_wrapper": False,
    "torch.jit.mode": "off",
    "torch.export.mode": "off",
    "torch.mkldnn": True,
    "torch.weights": "private",
    "torch.memory_format": "contiguous",
    "torch.autocast": "off",
    "torch.dtype": "fp32",
}
TENSORFLOW_DEFAULTS: dict[str, Value] = {
    "launch.allocator": "glibc",
    "launch.numa_node": "none",
    "env.TF_NUM_INTRAOP_THREADS": 8,
    "env.TF_NUM_INTEROP_THREADS": 8,
    "env.TF_ENABLE_ONEDNN_OPTS": 1,
    "launch.cpus": "all",
    "launch.memory_policy": "local",
    "tensorflow.layout_optimizer": True,
    "tensorflow.remapping": True,
    "tensorflow.keras_policy": "float32",
    "tensorflow.frozen": False,
    "tensorflow.jit_compile": False,
    "tensorflow.auto_mixed_precision": "off",
}
ALL_LIBRARIES = {
    "tcmalloc": "/l/libtcmalloc.so",
    "jemalloc": "/l/libjemalloc.so",
    "libomp": "/l/libomp.so.5",
    "libiomp5": "/l/libiomp5.so",
    "libnuma": "/n",
}


@functools.cache
def shipped_profile(name: str) -> Profile:
    """Return a profile of the gallery, read once: it is never altered."""
    return load_profile(name, SEARCH_SPACES)


def machine(root: Path, **shape: object) -> Host:
    """Return a described host with every library and a compiler."""
    build(root, **shape)  # type: ignore[arg-type]
    n_cpus = len(list((root / "sys/devices/system/cpu").glob("cpu[0-9]*")))
    host = probe(root, allowed=tuple(range(n_cpus)))
    return msgspec.structs.replace(host, libraries=ALL_LIBRARIES, cxx="/usr/bin/g++")


def real_machine(root: Path, machine: Machine) -> Host:
    """Return a described real machine, raised at `root`, with every library and a compiler."""
    host = probe(root, allowed=machine.allowed)
    arch = "aarch64" if machine.vendor.startswith("0x") else "x86_64"  # an Arm implementer's number
    return msgspec.structs.replace(
        host,
        processor=msgspec.structs.replace(host.processor, arch=arch),
        libraries=ALL_LIBRARIES,
        cxx="/usr/bin/g++",
        observations=msgspec.structs.replace(host.observations, transparent_huge_pages="madvise"),
    )


def defaults_on(host: Host, framework: str) -> dict[str, Value]:
    """Return what is in force there with nothing set.

    torch runs as many threads as its mask has physical cores, TensorFlow as it has CPUs.
    """
    if framework == "torch":
        n_cores = host.physical_cores
        return {
            **TORCH_DEFAULTS,
            "env.OMP_NUM_THREADS": n_cores,
            "torch.interop_threads": n_cores,
        }
    n_cpus = len(host.cpus)
    return {
        **TENSORFLOW_DEFAULTS,
        "env.TF_NUM_INTRAOP_THREADS": n_cpus,
        "env.TF_NUM_INTEROP_THREADS": n_cpus,
    }


def workload(
    framework: str, kind: str = "cnn", form: str = "code", scenario: str = "offline"
) -> Workload:
    card = ModelCard("m", "M", "t", kind, (framework,), 4, (4, 16), 10, "0" * 64, form)
    return Workload(ModelRef("m", "/m.py"), framework, scenario, card)


def model(defaults: dict[str, Value], width: float = 1.0, **unread: str) -> ModelFacts:
    """Return what a described model would have told."""
    return ModelFacts(
        n_parameters=10,
        input_shapes=((3,),),
        versions={},
        effective_defaults=defaults,
        unread={f"env.{name}": why for name, why in unread.items()},
        graph_width=width,
        graph_fault="",
        import_s=1.0,
        build_s=1.0,
        call_s=0.1,
        input_types=("float32",),
    )


def resolved(
    host: Host,
    framework: str,
    defaults: dict[str, Value],
    profile: str | Profile = "auto",
    restrictions: Restrictions | None = None,
    kind: str = "cnn",
    scenario: str = "offline",
) -> Space:
    loaded = shipped_profile(profile) if isinstance(profile, str) else profile
    asked = workload(framework, kind, scenario=scenario)
    return resolve_space(loaded, host, asked, model(defaults), restrictions or Restrictions())
