from pathlib import Path

import msgspec
import pytest

from tests.host.machine import build, described, raise_tree
from tuner.host.identity import HOST_FACTS, STANDS_IN, probe


def test_a_described_machine_passes_for_this_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(STANDS_IN, raising=False)
    here = probe()
    monkeypatch.setenv(STANDS_IN, str(raise_tree(tmp_path, described()["pod-half-a-core-v1"])))
    found = probe()
    assert (len(found.cpus), found.limits.quota_cores, found.usable_cores) == (4, 0.5, 1)
    # all else is this host's: it is what computes
    assert (found.processor, found.versions) == (here.processor, here.versions)


def test_identity_is_stable_and_observations_are_apart(tmp_path: Path) -> None:
    root = build(tmp_path)
    first = probe(root, allowed=(0, 1))
    busier = msgspec.structs.replace(
        first, observations=msgspec.structs.replace(first.observations, load_1min=99.0)
    )
    assert first.fingerprint() == busier.fingerprint() == probe(root, allowed=(0, 1)).fingerprint()


def test_formulas_are_checked_against_the_facts_that_there_are(tmp_path: Path) -> None:
    assert tuple(probe(build(tmp_path), allowed=(0, 1)).facts()) == HOST_FACTS


def test_another_mask_library_or_version_is_another_host(tmp_path: Path) -> None:
    host = probe(build(tmp_path), allowed=(0, 1))
    others = [
        probe(tmp_path, allowed=(0,)),
        msgspec.structs.replace(host, libraries={"tcmalloc": "/lib/libtcmalloc.so.9"}),
        msgspec.structs.replace(host, versions={**host.versions, "torch": "9.9"}),
        msgspec.structs.replace(host, cxx=None),
    ]
    assert len({h.fingerprint() for h in [host, *others]}) == 5


def test_an_ordinary_host_is_told_as_before(tmp_path: Path) -> None:
    """A stored study is recognised by its fingerprint: what few hosts have adds no key to others.

    Neither does a mask within one of several nodes, nor the HBM beside them.
    """
    described_ones = described()
    for name in ("xeon-8180m-2s", "xeon-max-9470c-2s-flat"):
        host = probe(raise_tree(tmp_path / name, described_ones[name]), allowed=(0, 1, 2))
        assert host.identity().keys() == {
            "processor", "allowed_cpus", "sockets", "numa_nodes", "physical_cores",
            "logical_cpus", "last_level_caches", "quota_cores", "memory_gib", "gpus", "libraries",
            "cxx", "versions",
        }  # fmt: skip


def test_efficient_cores_make_another_host(tmp_path: Path) -> None:
    host = probe(raise_tree(tmp_path, described()["core-i7-1370p"]), allowed=tuple(range(20)))
    assert host.identity()["efficient_cores"] == 8


def test_memory_that_the_cpuset_keeps_away_makes_another_host(tmp_path: Path) -> None:
    machine = msgspec.structs.replace(described()["xeon-8180m-2s"], mems_allowed="1")
    host = probe(raise_tree(tmp_path, machine), allowed=(0, 1, 28))
    assert host.identity()["nodes_without_memory"] == [0]
    local = msgspec.structs.replace(
        host, limits=msgspec.structs.replace(host.limits, allowed_nodes=(0, 1))
    )
    assert local.fingerprint() != host.fingerprint()
