from pathlib import Path

import msgspec

from tests.host.machine import build
from tuner.host.identity import HOST_FACTS, probe


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
