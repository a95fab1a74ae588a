"""`kubernetes`: a Deployment with CPUs of its own, one pod per instance."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import yaml

from tuner.output.exports.needs import (
    comments,
    leaves_siblings,
    n_cpus,
    needs_gpu,
    notes,
    placing_command,
)
from tuner.output.exports.preloads import in_image, libraries
from tuner.record.load import SERVER
from tuner.record.recommendation import Recommendation

_ROOM = 1.25
"""Times the most memory that was seen."""
_STEP_MIB = 256
_UNMEASURED_MIB = 4096


def render(recommendation: Recommendation, command: Sequence[str], source: str) -> str:
    """Return the manifest: requests are limits, whole CPUs, so that they may be exclusive."""
    r = recommendation
    name = _name(r)
    resources = {"cpu": str(n_cpus(r)), "memory": f"{_memory_mib(r)}Mi"}
    container: dict[str, Any] = {
        "name": name,
        "image": "replace.invalid/image:tag",
        **({"command": [_literal(word) for word in command]} if command else {}),
        "env": [{"name": k, "value": _literal(v)} for k, v in sorted(in_image(r).items())],
        "resources": {"requests": resources, "limits": dict(resources)},
    }
    if needs_gpu(r):  # a limit is the request (Kubernetes, "Schedule GPUs")
        container["resources"]["limits"] |= {"nvidia.com/gpu": 1}
    if huge := _huge_pages_mib(r):
        for side in ("requests", "limits"):
            container["resources"][side] |= {"hugepages-2Mi": f"{huge}Mi"}
    labels = {"app.kubernetes.io/name": name}
    manifest = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": dict(labels)},
        "spec": {
            "replicas": len(r.placements),
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": dict(labels)},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }
    body: str = yaml.safe_dump(manifest, sort_keys=False, allow_unicode=False)
    said = [*notes(r, source), *_kubelet(r)]
    return "".join(f"{line}\n" for line in comments(said)) + body


def _literal(text: str) -> str:
    """Escape $(NAME), which Kubernetes would take for a variable."""
    return text.replace("$", "$$")


def _name(recommendation: Recommendation) -> str:
    """Return a DNS label (RFC 1123) for the model."""
    stem = recommendation.workload.model.rpartition("/")[2].partition("@")[0].lower()
    label = re.sub(r"[^a-z0-9]+", "-", stem).strip("-")[:50].strip("-")
    return label or "model"


def _memory_mib(recommendation: Recommendation) -> int:
    used = recommendation.memory_bytes
    if used is None:
        return _UNMEASURED_MIB
    return _STEP_MIB * math.ceil(_ROOM * used / len(recommendation.placements) / 2**20 / _STEP_MIB)


def _huge_pages_mib(recommendation: Recommendation) -> int:
    """Return reserved huge pages, as many as memory; 0 if none are needed."""
    tunables = recommendation.environment.get("GLIBC_TUNABLES", "")
    return _memory_mib(recommendation) if "malloc.hugetlb=2" in tunables else 0


def _kubelet(recommendation: Recommendation) -> list[str]:
    """Say what the manifest cannot: the configuration of kubelet and image."""
    r = recommendation
    lines = ["image: put yours"]
    if r.workload.scenario == SERVER:
        lines.append("ports: add yours; the program must listen on 0.0.0.0, not on 127.0.0.1")
    if any(library.pypi for library in libraries(r)):
        lines.append("what pip installs lies in the image where export --to docker links it")
    if r.memory_bytes is None:
        lines.append(f"memory: {_UNMEASURED_MIB} Mi is a guess, nothing was measured")
    else:
        seen = f"{r.memory_bytes / 2**20:.0f} MiB that were seen"
        of = f" of {len(r.placements)} instances together" if len(r.placements) > 1 else ""
        lines.append(f"memory: {_ROOM:g} times the {seen}{of}, in steps of {_STEP_MIB} Mi")
    lines.append(
        "CPUs of its own need kubelet's cpuManagerPolicy: static (requests = limits, whole CPUs); "
        "with SMT also cpuManagerPolicyOptions: full-pcpus-only"
    )
    placements = r.placements
    if placements[0].cpus is None:
        lines.append(
            "cpu: all that were measured on; kubelet keeps some for itself: ask for fewer where "
            "the node has no more"
        )
    if leaves_siblings(r):
        lines.append(
            "one CPU of each core was used; kubelet hands out whole cores, so that the others are "
            "asked for as well: leave them alone (taskset in the image)"
        )
    if len(placements) > 1 and needs_gpu(r):
        lines.append(
            "each replica asks for a GPU of its own; all were measured on one, which takes the "
            "time slicing of NVIDIA's device plugin"
        )
    if len(placements) > 1:
        lines.append(
            f"{len(placements)} instances are {len(placements)} replicas, on one node; "
            "TUNE_FRAMEWORK_RANK and its like are not set"
        )
    if any(p.memory_policy.startswith("bind") for p in placements):
        lines.append(
            "memory of one NUMA node: kubelet's topologyManagerPolicy: single-numa-node and "
            "memoryManagerPolicy: Static"
        )
    elif any(p.memory_policy.startswith("interleave") for p in placements):
        lines.append(
            "interleaved memory cannot be asked for: start the program by numactl "
            f"--interleave={placements[0].memory_policy.partition(':')[2]}, in an image with "
            "numactl, with the capability SYS_NICE"
        )
    else:
        lines.append(
            "several NUMA nodes: kubelet's topologyManagerPolicy: restricted keeps CPUs and memory "
            "together"
        )
    if any(p.cpus for p in placements):
        shown = "; ".join(" ".join(placing_command(p)) for p in placements)
        lines.append(f"which CPUs and nodes is kubelet's choice; measured as: {shown}")
    return lines
