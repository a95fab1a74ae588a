"""What a knob can be set to at all, on whatever host."""

import importlib
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tuner.frameworks import FRAMEWORKS
from tuner.galleries import SEARCH_SPACES
from tuner.host.identity import HOST_FACTS
from tuner.record.configuration import Value
from tuner.space.catalogue import KNOBS, fault_of_value
from tuner.space.knobs_of import allocators, engines, launch, onednn, openmp

GOLDEN = Path(__file__).parent / "golden_baselines.toml"


def written(part: object) -> Iterator[tuple[str, Value]]:
    """Yield every knob with each of its values that stands in a TOML file."""
    if isinstance(part, list):
        for each in part:
            yield from written(each)
    elif isinstance(part, dict):
        for value in part.get("values", []) if "id" in part else []:
            yield part["id"], value["value"] if isinstance(value, dict) else value
        for key, value in part.items():
            if key.startswith("env.") or key in KNOBS:
                yield key, value
            else:
                yield from written(value)


def test_every_knob_of_the_catalogue_has_a_domain_and_is_declared_once() -> None:
    assert [k.id for k in KNOBS.values() if k.domain is None] == []
    declared = [k.id for m in (launch, allocators, openmp, onednn, engines) for k in m.KNOBS]
    for entry in FRAMEWORKS.values():
        declared += [k.id for k in importlib.import_module(entry.knobs).KNOBS]
    assert sorted(declared) == sorted(KNOBS)


def test_what_bounds_a_number_is_a_fact_of_the_host() -> None:
    bounds = [k.domain.bound for k in KNOBS.values() if k.domain and k.domain.bound]
    assert bounds
    assert {bound.fact for bound in bounds} <= {*HOST_FACTS}


def test_every_value_of_the_shipped_spaces_is_one() -> None:
    files = [*SEARCH_SPACES.glob("*.toml"), GOLDEN]
    pairs = {pair for path in files for pair in written(tomllib.loads(path.read_text()))}
    assert len(pairs) > 100
    for knob, value in pairs:
        if not str(value).startswith("="):
            assert fault_of_value(knob, value) is None


@pytest.mark.parametrize(
    ("knob", "value"),
    [
        ("launch.instances", "lots"),
        ("launch.instances", 0),
        ("launch.instances", True),
        ("launch.instances", 2.0),
        ("launch.cores_per_instance", "shared"),
        ("launch.numa_node", True),
        ("launch.numa_node", "abc"),
        ("launch.allocator", "tcmalloc; touch x"),
        ("workload.batch", 10**20),
        ("torch.compile.mode", 1),
        ("torch.memory_format", 17),
        ("torch.autocast", "x'; touch x"),
        ("torch.flush_denormal", 1),
        ("env.OMP_NUM_THREADS", "banana"),
        ("env.OMP_NUM_THREADS", 0),
        ("env.OMP_NUM_THREADS", True),
        ("env.OMP_NUM_THREADS", "٣"),
        ("env.OMP_PROC_BIND", "close,false"),
        ("env.KMP_BLOCKTIME", -1),
        ("env.GLIBC_TUNABLES", "PATH=/tmp"),
        ("env.ANYTHING", "two\nlines"),
        ("env.ANYTHING", float("nan")),
    ],
)
def test_what_could_mean_nothing_is_no_value(knob: str, value: Value) -> None:
    fault = fault_of_value(knob, value)
    assert fault is not None
    assert fault.startswith(knob)
    assert fault.isprintable()


@pytest.mark.parametrize(
    ("knob", "value"),
    [
        ("launch.instances", 2),
        ("launch.cores_per_instance", "share"),
        ("launch.numa_node", 0),
        ("launch.numa_node", "none"),
        ("torch.compile.mode", "off"),
        ("torch.flush_denormal", True),
        ("env.OMP_NUM_THREADS", "4"),
        ("env.OMP_NUM_THREADS", "4,2"),
        ("env.OMP_PROC_BIND", "spread,close"),
        ("env.OMP_PLACES", "{0:4},{4:4}"),
        ("env.OMP_SCHEDULE", "dynamic,4"),
        ("env.GOMP_CPU_AFFINITY", "0 3 4-15:2"),
        ("env.KMP_AFFINITY", "granularity=core,noverbose,scatter"),
        ("env.KMP_BLOCKTIME", "infinite"),
        ("env.TF_ENABLE_ONEDNN_OPTS", "1"),
        ("env.TF_XLA_FLAGS", "--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit"),
        ("env.ANYTHING", "whatever you like"),
    ],
)
def test_what_a_library_accepts_is_a_value(knob: str, value: Value) -> None:
    assert fault_of_value(knob, value) is None
