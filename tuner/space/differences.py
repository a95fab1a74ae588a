"""How this host differs from that of a recommendation, and whether it matters."""

from __future__ import annotations

import msgspec

from tuner.engines import ENGINES
from tuner.frameworks import DISTRIBUTIONS
from tuner.host.identity import Host
from tuner.record.identities import differing, said
from tuner.record.recommendation import Recommendation
from tuner.record.workload import CPU

_SELDOM = ("cxx", "memory_gib")
"""Parts of an identity that speeds seldom depend on."""
_GPUS = "gpus"
"""The part that speeds on a CPU do not depend on."""


class Difference(msgspec.Struct, frozen=True):
    """A difference from the host where the recommendation was measured."""

    what: str
    there: str
    here: str
    matters: bool
    """Whether speeds are known to depend on it."""

    def in_words(self) -> str:
        """Tell it in words."""
        return f"{self.what}: {self.there} there, {self.here} here"


def differences(recommendation: Recommendation, host: Host) -> list[Difference]:
    """Compare this host with the one that the recommendation was measured on."""
    there = recommendation.host
    if there.fingerprint == host.fingerprint():
        return []
    if not there.identity:
        return _of_an_older_file(recommendation, host)
    in_use = {str(setting.value) for setting in recommendation.settings}
    on_cpu = recommendation.workload.device == CPU
    return [
        Difference(part.replace("_", " "), said(was), said(now), _matters(part, in_use, on_cpu))
        for part, (was, now) in differing(there.identity, host.identity()).items()
    ]


def _matters(part: str, in_use: set[str], on_cpu: bool) -> bool:
    """Tell whether speeds are known to depend on a part of an identity."""
    whole, _, name = part.partition(", ")
    if whole == _GPUS:
        return not on_cpu
    if whole == "versions":
        entry = ENGINES.get(name)
        return name in DISTRIBUTIONS or (entry is not None and name in in_use)
    return name in in_use if whole == "libraries" else whole not in _SELDOM


def _of_an_older_file(recommendation: Recommendation, host: Host) -> list[Difference]:
    """Compare the fields of older recommendations, which did not hold the whole identity."""
    there = recommendation.host
    pairs: dict[str, tuple[object, object, bool]] = {
        "processor": (there.cpu, host.processor.model, True),
        "cores": (there.physical_cores, host.physical_cores, True),
    }
    if there.cpus is not None:
        pairs["CPUs"] = (there.cpus, host.usable_cpus, True)
    for name, version in recommendation.versions.items():
        # only what was imported there tells of its build
        was, now = (v.partition("+")[0] for v in (version, host.versions.get(name, "none")))
        pairs[name] = (was, now, name in DISTRIBUTIONS)
    found = [
        Difference(what, str(there), str(here), matters)
        for what, (there, here, matters) in pairs.items()
        if str(there) != str(here)
    ]
    unnamed = Difference("the rest of the host", "its identity", "another", matters=True)
    return [*found, unnamed] if not any(d.matters for d in found) else found
